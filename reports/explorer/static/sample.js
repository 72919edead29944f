// One sample turn by turn: its facts' lifelines, its list of turns, and the turn that is shown.

import { button, count, el, label, longText, placesOf } from "./text.js";
import { lengthLabel } from "./table.js";
import { Rows } from "./rows.js";
import { changed, eventsOf, gatesText, lifelines, memoryAfter, turnView } from "./turn.js";

export const NO_TURNS = "The turns of this sample are not in this file. `run.py view RUN` shows those of every sample; `run.py report RUN --turns all` (or failures, or a number) takes more into the file.";

/** One method's way through the sample. `moved` hears of each turn that is shown. */
export class Side {
  constructor(samples, row, sample, moved) {
    Object.assign(this, { samples, row, sample, moved, turn: 0 });
    const place = samples.place(row);
    this.title = `${samples.shown("method", place.method)} on ${samples.shown("model", place.model)}`;
    this.element = el("section", { className: "side", "aria-label": this.title }, el("h2", {}, this.title), this.ending());
    if (!sample || !sample.turns.length) {
      this.element.append(el("p", { className: "gone" }, sample ? "It ended before its first turn." : NO_TURNS));
      return;
    }
    this.events = eventsOf(sample);
    const told = sample.turns.some((turn) => turn.memory !== null || turn.reads.length);
    this.lines = lifelines(told ? sample.lifelines : [], sample.turns.length, (turn) => this.go(turn));
    this.detail = el("div", { className: "detail" });
    this.element.append(this.lines.element, el("div", { className: "reading" }, this.list(), this.detail));
  }

  /** How it ended, in a few words, and the way to the turn of loss. */
  ending() {
    const { samples, row, sample } = this;
    const cause = samples.value("cause", row);
    const made = el("div", { className: "ending" });
    const scored = ["strict", "published"].filter((profile) => samples.value(profile, row) !== null);
    const scores = scored.map((profile) => `${profile} ${samples.value(profile, row)}`);
    if (scores.length) made.append(el("span", { className: samples.failed(row) ? "pill wrong" : "pill fine" }, scores.join(", ")));
    if (cause) made.append(el("span", { className: "pill wrong" }, samples.shown("cause", cause)), el("span", { className: "small" }, ` ${samples.data.causes[cause]?.[1] ?? ""}${sample?.guessed ? " (A guess, by the evidence's words.)" : ""} `));
    if (sample?.lost != null) made.append(button(`Turn ${sample.lost + 1}, where it was lost`, () => this.loss(), { className: "jump" }));
    if (sample?.error) made.append(el("div", { className: "wrong" }, longText(sample.error)));
    const answer = sample?.prediction ?? samples.value("answer", row);
    const golds = samples.sample(row).golds;
    made.append(el("div", { className: "answer" }, el("b", {}, sample && sample.prediction === null && !sample.error ? "Answer: not parsed " : "Answer: "), answer ? longText(answer, placesOf(answer, golds)) : "\u2013"));
    if (sample?.truncated_tokens) made.append(el("p", { className: "small" }, `${count(sample.truncated_tokens)} tokens of the context were cut away.`));
    return made;
  }

  list() {
    const box = el("div", { className: "turns", tabIndex: 0, role: "region", "aria-label": "Turns" });
    const body = el("tbody");
    const heads = ["Turn", "Part", "Out", "Memory", "What happened"].map((text) => el("th", { scope: "col" }, text));
    box.append(el("table", {}, el("thead", {}, el("tr", {}, ...heads)), body));
    this.rows = new Rows(box, body, (place) => this.line(this.shown[place]));
    this.found = el("span", { className: "small", role: "status" });
    const words = el("input", { type: "search", placeholder: "words in a turn", "aria-label": "Words in a turn" });
    const only = el("select", { "aria-label": "Which turns" }, ...[["", "all turns"], ["evidence", "that read evidence"], ["facts", "that did something to a fact"], ["changed", "that changed the memory"], ["cut", "cut by the budget"]].map(([value, text]) => el("option", { value }, text)));
    const filter = () => this.filter(words.value.toLowerCase(), only.value);
    words.addEventListener("input", filter);
    only.addEventListener("change", filter);
    this.sizes = this.sample.turns.map((turn, n) => (turn.memory === null ? null : memoryAfter(this.sample.turns, n).length));
    filter();
    return el("div", { className: "list" }, el("div", { className: "filters" }, only, words, this.found), box);
  }

  filter(words, only) {
    const { turns } = this.sample;
    const tests = {
      "": () => true,
      evidence: (n) => this.sample.lifelines.some((line) => line.read === n) || turns[n].marks?.length > 0,
      facts: (n) => this.events.has(n),
      changed: (n) => changed(turns, n),
      cut: (n) => turns[n].finish === "length",
    };
    const holds = (turn) => !words || `${turn.reply}\n${turn.text ?? ""}`.toLowerCase().includes(words);
    this.shown = [...turns.keys()].filter((n) => tests[only](n) && holds(turns[n]));
    this.found.textContent = `${count(this.shown.length)} of ${count(turns.length)}`;
    this.rows.reset(this.shown.length);
  }

  line(number) {
    const turn = this.sample.turns[number];
    const events = (this.events.get(number) ?? []).map(([event]) => event);
    const told = [...new Set(events)].map((event) => el("span", { className: `event ${event}` }, event));
    if (turn.finish === "length") told.push(el("span", { className: "event lost" }, "cut"));
    if (turn.gates) told.push(el("span", { className: "small", title: gatesText(turn.gates) }, turn.gates === "unparsed" ? "not parsed" : `${turn.gates[0] ? "update" : "keep"}${turn.gates[1] ? ", end" : ""}`));
    const link = el("a", { href: "#", onclick: (event) => { event.preventDefault(); this.go(number); } }, String(number + 1));
    const row = el("tr", { onclick: () => this.go(number) },
      el("td", {}, link), el("td", {}, turn.tag), el("td", { className: "n" }, count(turn.completion_tokens)),
      el("td", { className: "n" }, this.sizes[number] === null ? "" : changed(this.sample.turns, number) ? `${count(this.sizes[number])} chars` : "same"),
      el("td", {}, ...told));
    if (number === this.turn) row.setAttribute("aria-current", "true");
    return row;
  }

  /** Shows a turn, 0 the first. */
  go(turn, { quietly = false } = {}) {
    if (!this.detail) return;
    this.turn = Math.max(0, Math.min(turn, this.sample.turns.length - 1));
    this.lines.mark(this.turn);
    this.detail.replaceChildren(turnView(this.sample, this.turn));
    this.detail.scrollTop = 0;
    const place = this.shown.indexOf(this.turn);
    if (place >= 0) this.rows.show(place);
    else this.rows.reset(this.shown.length);
    this.moved(this, quietly);
  }

  /** The next turn, or the one before, of those that the list shows. */
  step(by) {
    if (!this.detail) return;
    const place = this.shown.findIndex((turn) => turn >= this.turn);
    const next = this.shown[(place < 0 ? this.shown.length : place) + by];
    if (next !== undefined) this.go(next);
  }

  loss() {
    if (this.sample?.lost != null) this.go(this.sample.lost);
  }
}

/** The head of a sample: which it is, its question, its golds. */
export function sampleHead(samples, row, sample) {
  const place = samples.place(row);
  const { question, golds } = sample ?? samples.sample(row);
  return el("div", { className: "about" },
    el("h1", { tabIndex: -1 }, `${place.task}, ${lengthLabel(place.length)} tokens, ${samples.name(row)}`),
    el("dl", {},
      el("dt", {}, "Question"), el("dd", {}, longText(question)),
      el("dt", {}, golds.length > 1 ? `Golds (${golds.length})` : "Gold"), el("dd", {}, ...golds.flatMap((gold) => [label(gold, 300), " "]))));
}
