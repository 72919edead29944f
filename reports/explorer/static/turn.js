// One turn: what it read, what it made of its memory, what it said.

import { button, count, el, label, longText, placesOf } from "./text.js";
import { memoryDiff } from "./diff.js";

const NOT_TOLD = "The method does not tell what it remembers.";

/** The memory after turn `number`, null before the first that told one. */
export function memoryAfter(turns, number) {
  for (let n = number; n >= 0; n -= 1) {
    const { memory, reply } = turns[n];
    if (memory !== null) return memory === true ? reply : memory;
  }
  return null;
}

/** Whether the memory after a turn is another than before it. */
export function changed(turns, number) {
  return turns[number].memory !== null && memoryAfter(turns, number) !== memoryAfter(turns, number - 1);
}

/** What happened to facts in each turn: number of the turn -> [[event, number of the fact], ...]. */
export function eventsOf(sample) {
  const events = new Map();
  const add = (turn, event, fact) => {
    if (turn === null) return;
    if (!events.has(turn)) events.set(turn, []);
    events.get(turn).push([event, fact]);
  };
  sample.lifelines.forEach((line, fact) => {
    add(line.read, "read", fact);
    add(line.stored, "stored", fact);
    for (const turn of line.changed) add(turn, "changed", fact);
    add(line.blurred, "blurred", fact);
    add(line.lost, "lost", fact);
  });
  return events;
}

export const gatesText = (gates) =>
  gates === "unparsed" ? "not parsed, memory kept" : `update gate ${gates[0] ? "open" : "closed"}, exit gate ${gates[1] ? "end" : "continue"}`;

function section(title, ...content) {
  return el("section", { className: "part" }, el("h4", {}, title), ...content);
}

function readPart(sample, turn) {
  const places = turn.reads.map(([a, b]) => `${count(a)}\u2013${count(b)}`).join(", ");
  if (!turn.reads.length) {
    if (turn.tag === "answer") return section("What it read", el("p", { className: "small" }, "Its memory, and the question."));
    return section("What it read", el("p", { className: "small" }, sample.gone ?? "Not told."));
  }
  const title = `What it read: tokens ${places}`;
  if (turn.text === undefined) {
    return section(title, el("p", { className: "gone" }, sample.gone ? `The text cannot be made again. ${sample.gone}` : sample.left_out));
  }
  const facts = new Set(turn.marks.map((mark) => mark[2]));
  const held = facts.size ? `${facts.size} piece${facts.size > 1 ? "s" : ""} of evidence, marked` : "no evidence";
  return section(title, el("p", { className: "small" }, `${count(turn.text.length)} characters, ${held}.`), longText(turn.text, turn.marks));
}

function memoryPart(sample, turns, number) {
  const turn = turns[number];
  if (turn.memory === null) return null;
  const [before, after] = [memoryAfter(turns, number - 1), memoryAfter(turns, number)];
  if (before === after) return section("Memory: unchanged", longText(after, placesOf(after, sample.golds)));
  const from = before === null ? "the first" : `${count(before.length)} characters before`;
  return section(`Memory: ${from}, ${count(after.length)} after`, memoryDiff(before ?? "", after, sample.golds));
}

/** Turn `number` in full. */
export function turnView(sample, number) {
  const turn = sample.turns[number];
  const facts = [
    [`${count(turn.prompt_tokens)} tokens in`],
    [`${count(turn.completion_tokens)} out`],
    [`${turn.seconds} s`],
    [turn.finish === "length" ? "cut by the token budget" : `finish: ${turn.finish}`, turn.finish === "length" ? "pill wrong" : "pill"],
  ];
  if (turn.gates) facts.push([gatesText(turn.gates), turn.gates === "unparsed" ? "pill wrong" : "pill"]);
  for (const [event, fact] of eventsOf(sample).get(number) ?? []) {
    const text = sample.lifelines[fact].fact;
    facts.push([el("span", {}, `${event}: `, label(text, 60)), `pill event ${event}`]);
  }
  const memory = memoryPart(sample, sample.turns, number);
  const whole = turn.memory !== true;
  const reply = section(memory ? "Reply" : `Reply${turn.tag === "memory" ? `. ${NOT_TOLD}` : ""}`, longText(turn.reply, placesOf(turn.reply, sample.golds)));
  const thought = turn.reasoning ? section("Reasoning, which is no part of the reply", longText(turn.reasoning)) : null;
  const pills = facts.map(([text, kind]) => el("li", { className: kind ?? "pill" }, text));
  return el("div", { className: "turn" },
    el("h3", { tabIndex: -1 }, `Turn ${number + 1} of ${sample.turns.length}: ${turn.tag}`),
    el("ul", { className: "pills" }, ...pills), memory, whole ? reply : null, thought, readPart(sample, turn));
}

const SVG = "http://www.w3.org/2000/svg";

function shape(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/** One fact's way through the turns as a strip: a line while it was in memory, marks where
 *  something happened to it. A click goes to the turn. */
function strip(line, turns, go) {
  const made = shape("svg", { viewBox: `0 0 ${turns} 10`, preserveAspectRatio: "none", class: "strip", "aria-hidden": "true" });
  const bar = (from, to, kind) => made.append(shape("rect", { x: from, y: kind === "alive" ? 3.5 : 1, width: Math.max(to - from, turns / 400), height: kind === "alive" ? 3 : 8, class: kind }));
  if (line.stored !== null) bar(line.stored, line.lost ?? turns, "alive");
  if (line.read !== null) bar(line.read, line.read + 1, "read");
  if (line.stored !== null && line.stored !== line.read) bar(line.stored, line.stored + 1, "stored");
  for (const turn of line.changed) bar(turn, turn + 1, "changed");
  if (line.blurred !== null) bar(line.blurred, line.blurred + 1, "blurred");
  if (line.lost !== null) bar(line.lost, line.lost + 1, "lost");
  made.append(shape("rect", { x: 0, y: 0, width: 1, height: 10, class: "here" }));
  made.addEventListener("click", (event) => {
    const box = made.getBoundingClientRect();
    go(Math.min(turns - 1, Math.floor(((event.clientX - box.left) / box.width) * turns)));
  });
  return made;
}

/** The lifelines of all facts, and what moves the mark of the turn that is shown. */
export function lifelines(lines, turns, go) {
  const rows = lines.map((line) => {
    const steps = [["read", line.read], ["stored", line.stored], ["blurred", line.blurred], ["lost", line.lost]];
    const jumps = steps.filter(([, turn]) => turn !== null).map(([event, turn]) => button(`${event} ${turn + 1}`, () => go(turn), { className: `event ${event}` }));
    const end = [line.kept ? "in the last memory" : null, line.answered ? "in the answer" : "not in the answer", line.guessed ? "guessed by its words" : null];
    return el("li", {},
      el("div", { className: "fact" }, label(line.fact, 90), " ", ...jumps, el("span", { className: "small" }, ` ${end.filter(Boolean).join(", ")}`)),
      strip(line, turns, go));
  });
  const made = el("ul", { className: "lifelines", "aria-label": "Facts, and what became of them" }, ...rows);
  const mark = (number) => {
    for (const here of made.querySelectorAll(".here")) {
      here.setAttribute("x", number);
      here.setAttribute("width", Math.max(1, turns / 300));
    }
  };
  return { element: made, mark };
}
