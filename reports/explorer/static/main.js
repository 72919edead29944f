// The page: filters and table, one sample or two side by side, links, keys, and what a sweep adds.

import { button, count, el, label } from "./text.js";
import { COLUMNS, lengthLabel, Samples, unpacked } from "./table.js";
import { Rows } from "./rows.js";
import { sampleHead, Side } from "./sample.js";

const POLL_MS = 2000;
const KEYS = [["j / k", "next turn, or the one before"], ["l", "the turn where it was lost"], ["n / p", "next failure, or the one before"], ["Esc", "back to the table"], ["/", "search"], ["?", "these keys"]];

const at = (id) => document.getElementById(id);
const samples = new Samples();
const state = { filters: {}, sorted: { column: "", descending: false }, rows: [], open: null, sides: [], active: 0 };
const live = at("explorer").dataset.live !== undefined;
let list;

// -- the table ------------------------------------------------------------------------------

function heads() {
  return COLUMNS.map(([name, text, kind, width]) => {
    const sort = button(text, () => {
      const { column, descending } = state.sorted;
      const bySize = kind === "number" || kind === "score";
      state.sorted = { column: name, descending: column === name ? !descending : bySize };
      update();
    });
    const head = el("th", { scope: "col", "data-column": name, "aria-sort": "none", className: kind === "number" || kind === "score" ? "n" : "" }, sort);
    head.style.width = `${width}px`;
    return head;
  });
}

function choices(name, text, options) {
  const made = el("select", { "aria-label": text, onchange: () => { state.filters[name] = made.value; update(); } });
  made.append(el("option", { value: "" }, `${text}: all`), ...options.map(([value, shown]) => el("option", { value }, shown)));
  made.value = state.filters[name] ?? "";
  return made;
}

function filters() {
  const scores = [["failed", "under 1"], ["right", "1"], ["part", "between 0 and 1"]];
  const made = COLUMNS.filter(([, , kind]) => kind === "names" || kind === "score").map(([name, text, kind]) => {
    const options = kind === "score" ? scores : samples.names(name).map((value) => [value, samples.shown(name, value)]);
    return choices(name, text, options);
  });
  const words = el("input", { type: "search", id: "words", placeholder: "question, gold or answer", "aria-label": "Words in question, gold or answer", value: state.filters.text ?? "", oninput: () => { state.filters.text = words.value; update(); } });
  at("filters").replaceChildren(...made, words, button("Clear", () => { state.filters = {}; filters(); update(); }));
}

function line(place) {
  const row = state.rows[place];
  const cells = COLUMNS.map(([name, , kind], column) => {
    const value = samples.value(name, row);
    const shown = kind === "text" || kind === "names" ? label(samples.shown(name, value), 60) : samples.shown(name, value);
    const made = el(column ? "td" : "th", column ? {} : { scope: "row" }, column ? shown : el("a", { href: link({ row }) }, shown));
    if (kind === "number" || kind === "score") made.className = "n";
    if (kind === "names") made.title = samples.shown(name, value);
    if (name === "strict") made.className += samples.failed(row) ? " wrong" : " fine";
    return made;
  });
  return el("tr", { onclick: (event) => { if (!event.target.closest("a")) location.hash = link({ row }); } }, ...cells);
}

/** Filters and sorts again, and shows the result. */
function update() {
  state.rows = samples.rows(state.filters, state.sorted);
  for (const head of at("rows").querySelectorAll("th[data-column]")) {
    const { column, descending } = state.sorted;
    head.setAttribute("aria-sort", head.dataset.column === column ? (descending ? "descending" : "ascending") : "none");
  }
  const failures = state.rows.filter((row) => samples.failed(row)).length;
  const owed = samples.data.cells.reduce((sum, cell) => sum + cell[4] * cell[5], 0) - samples.size;
  at("found").textContent = `${count(state.rows.length)} of ${count(samples.size)} samples, ${count(failures)} of them failures${owed > 0 ? `; ${count(owed)} have not ended yet` : ""}`;
  at("rows").querySelector("table").setAttribute("aria-rowcount", state.rows.length + 1);
  list.reset(state.rows.length);
}

// -- one sample -----------------------------------------------------------------------------

/** The address of a sample, of a turn of it, and of another method beside it. */
function link({ row, turn, beside }) {
  const words = new URLSearchParams(samples.place(row));
  if (turn !== undefined) words.set("turn", turn + 1);
  if (beside !== undefined) {
    const other = samples.place(beside);
    words.set("beside_model", other.model);
    words.set("beside_method", other.method);
    words.set("beside_sample", other.sample);
  }
  return `#sample?${words}`;
}

async function turnsOf(row) {
  const [cell, index] = [samples.cell[row], samples.columns.index[row]];
  if (!live) return unpacked(`turns-${cell}-${index}`);
  const reply = await fetch(`turns?cell=${cell}&index=${index}`);
  if (!reply.ok) throw new Error(await reply.text());
  return reply.json();
}

/** What the address asks for: a sample, or the report as it is. */
async function route() {
  const [kind, words] = location.hash.split("?");
  const place = Object.fromEntries(new URLSearchParams(words ?? ""));
  const row = kind === "#sample" ? samples.find(place) : undefined;
  if (row === undefined) {
    if (kind === "#sample") at("found").textContent = "The link's sample is not here, or has not ended yet.";
    return close();
  }
  const other = samples.pairs(row).find((one) => { const p = samples.place(one); return p.model === place.beside_model && p.method === place.beside_method && String(p.sample) === place.beside_sample; });
  const turn = place.turn ? Number(place.turn) - 1 : undefined;
  if (state.open?.row === row && state.open.other === other) {
    if (turn !== undefined && turn !== state.sides[0].turn) state.sides[0].go(turn, { quietly: true });
    return undefined;
  }
  const asked = { row, other };
  state.open = asked;
  try {
    const found = await Promise.all([row, other].filter((one) => one !== undefined).map(async (one) => [one, await turnsOf(one)]));
    if (state.open === asked) show(found, turn);
  } catch (error) {
    at("sample").replaceChildren(button("\u2190 All samples", back), el("p", { className: "wrong" }, `The sample cannot be shown: ${error.message}`));
    document.body.classList.add("one-sample");
  }
  return undefined;
}

function show(found, turn) {
  const [row, sample] = found[0];
  state.sides = found.map(([one, of], number) => new Side(samples, one, of, (side, quietly) => {
    state.active = number;
    if (!quietly && number === 0) history.replaceState(null, "", link({ row, turn: side.turn, beside: found[1]?.[0] }));
  }));
  const beside = el("select", { "aria-label": "Another method beside it", onchange: () => { location.hash = link({ row, turn: state.sides[0].turn, beside: beside.value === "" ? undefined : Number(beside.value) }); } });
  const pairs = samples.pairs(row);
  beside.append(el("option", { value: "" }, pairs.length ? "beside it: nothing" : "no other method met it"), ...pairs.map((one) => el("option", { value: one }, `beside it: ${samples.shown("method", samples.place(one).method)} on ${samples.shown("model", samples.place(one).model)}, ${samples.name(one)}`)));
  beside.value = found[1] ? String(found[1][0]) : "";
  const bar = el("nav", { className: "bar", "aria-label": "Samples" }, button("\u2190 All samples", back), button("Previous failure", () => failure(-1)), button("Next failure", () => failure(1)), beside, button("Keys", keys));
  at("sample").replaceChildren(bar, sampleHead(samples, row, sample), el("div", { className: found[1] ? "sides two" : "sides" }, ...state.sides.map((side) => side.element)));
  document.body.classList.add("one-sample");
  scrollTo(0, 0);
  const first = turn ?? sample?.lost ?? 0;
  for (const side of state.sides) side.go(first, { quietly: true });
  state.active = 0;
  at("sample").querySelector("h1").focus({ preventScroll: true });
}

function back() {
  location.hash = "#samples";
}

function close() {
  const row = state.open?.row;
  state.open = null;
  document.body.classList.remove("one-sample");
  at("sample").replaceChildren();
  if (row === undefined) return;
  at("samples").scrollIntoView();
  const place = state.rows.indexOf(row);
  if (place < 0) return;
  list.show(place);
  at("rows").querySelector(`[aria-rowindex="${place + 2}"] a`)?.focus({ preventScroll: true });
}

/** Opens the next failure of the table as it is filtered and sorted, or the one before. */
function failure(by) {
  const failures = state.rows.filter((row) => samples.failed(row) || row === state.open?.row);
  const here = failures.indexOf(state.open?.row);
  const next = failures[here < 0 ? (by > 0 ? 0 : failures.length - 1) : here + by];
  if (next !== undefined && samples.failed(next)) location.hash = link({ row: next });
}

// -- keys, and a sweep's new samples -----------------------------------------------------------

function keys() {
  const dialog = at("keys");
  dialog.replaceChildren(el("h2", {}, "Keys"), el("dl", {}, ...KEYS.flatMap(([key, text]) => [el("dt", {}, key), el("dd", {}, text)])), button("Close", () => dialog.close()));
  dialog.showModal();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || at("keys").open) return;
  if (event.target.closest("input, select, textarea")) return;
  const side = state.sides[state.active];
  const open = { Escape: back, j: () => side.step(1), k: () => side.step(-1), l: () => side.loss() };
  const always = { n: () => failure(1), p: () => failure(-1), "?": keys, "/": () => { back(); setTimeout(() => at("words").focus()); } };
  const action = always[event.key] ?? (state.open ? open[event.key] : undefined);
  if (!action) return;
  event.preventDefault();
  action();
}

async function poll() {
  try {
    const reply = await fetch(`columns?since=${samples.data.version ?? 0}&samples=${samples.data.samples.length}`);
    if (!reply.ok) throw new Error(await reply.text());
    const data = await reply.json();
    if (Object.keys(data.blocks).length) {
      const open = state.open && samples.place(state.open.row);
      samples.merge(data);
      if (!at("filters").contains(document.activeElement)) filters();
      update();
      if (open) state.open.row = samples.find(open);
    }
    at("live").textContent = `live, as of ${new Date().toLocaleTimeString("en-GB")}`;
  } catch (error) {
    at("live").textContent = `not live: ${error.message}`;
  }
  setTimeout(poll, POLL_MS);
}

async function start() {
  at("rows").replaceChildren(el("table", {}, el("caption", { className: "unseen" }, "Samples"), el("thead", {}, el("tr", {}, ...heads())), el("tbody")));
  list = new Rows(at("rows"), at("rows").querySelector("tbody"), line);
  if (live) at("found").textContent = "Reading the store\u2026";
  if (live) await poll();
  else samples.merge(await unpacked("samples-data"));
  filters();
  update();
  addEventListener("hashchange", route);
  addEventListener("keydown", onKey);
  await route();
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => { at("found").textContent = `The samples cannot be shown: ${error.message}`; });
