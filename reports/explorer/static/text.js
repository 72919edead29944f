// Texts of models and documents become text nodes here, and nothing else: no markup is parsed.

const ODD = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]+/g;
const SLICE = 20000; // characters that are laid out at a time
const WHOLE = 3000; // a text up to this length is shown whole
const AROUND = 350; // characters shown on each side of a mark

/** An element: `props` are properties, `aria-*`, `data-*` and `role` attributes. */
export function el(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null) continue;
    if (name in made && !name.includes("-")) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function button(text, onclick, props = {}) {
  return el("button", { type: "button", onclick, ...props }, text);
}

export const count = (number) => Number(number).toLocaleString("en-US");

/** What stands for a character that would not show, or would change what stands around it. */
function symbol(char) {
  const code = char.codePointAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  return `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
}

/** A text as nodes, with control characters and direction marks made visible. */
export function visible(text) {
  const made = document.createDocumentFragment();
  let from = 0;
  for (const found of text.matchAll(ODD)) {
    made.append(text.slice(from, found.index));
    const shown = Array.from(found[0], symbol).join("");
    made.append(el("span", { className: "odd", title: "control character" }, shown));
    from = found.index + found[0].length;
  }
  made.append(text.slice(from));
  return made;
}

/** One line of a text, for a table or a label: isolated, so that it cannot turn its neighbours. */
export function label(text, most = 120) {
  const short = text.length > most ? `${text.slice(0, most)}\u2026` : text;
  return el("bdi", {}, visible(short.replace(/[\n\t]+/g, " ")));
}

/** Places of words in a text, upper and lower case alike: [[start, end], ...], none overlapping. */
export function placesOf(text, words) {
  const wanted = words.filter((word) => word.trim()).sort((a, b) => b.length - a.length);
  if (!wanted.length || text.length > 300000) return [];
  const escaped = wanted.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const found = text.matchAll(new RegExp(escaped.join("|"), "giu"));
  return Array.from(found, (one) => [one.index, one.index + one[0].length]);
}

/** Part [start, end) of a text, with the marks that lie in it. */
export function marked(text, start, end, marks) {
  const made = document.createDocumentFragment();
  let from = start;
  for (const [first, last] of marks) {
    const [a, b] = [Math.max(first, from), Math.min(last, end)];
    if (a >= b) continue;
    made.append(visible(text.slice(from, a)), el("mark", {}, visible(text.slice(a, b))));
    from = b;
  }
  made.append(visible(text.slice(from, end)));
  return made;
}

/** Part of a long text in slices that a browser lays out only when they come into view. They end
 *  at line ends where there are any. */
function slices(text, start, end, marks) {
  const made = document.createDocumentFragment();
  for (let from = start; from < end; ) {
    let to = Math.min(from + SLICE, end);
    const line = text.lastIndexOf("\n", to - 1) + 1;
    if (to < end && line > from) to = line;
    const inside = marks.filter((mark) => mark[0] < to && mark[1] > from);
    made.append(el("div", { className: "slice" }, marked(text, from, to, inside)));
    from = to;
  }
  return made;
}

/** The parts of a long text that are shown at first: around its marks, or its two ends. */
function windows(text, marks) {
  if (text.length <= WHOLE) return [[0, text.length]];
  const wanted = marks.length
    ? marks.slice(0, 40).map(([a, b]) => [a - AROUND, Math.min(b, a + 2 * SLICE) + AROUND])
    : [[0, 2 * AROUND], [text.length - AROUND, text.length]];
  const found = [];
  for (const [a, b] of wanted) {
    const [start, end] = [Math.max(a, 0), Math.min(b, text.length)];
    const last = found[found.length - 1];
    if (last && start <= last[1] + AROUND) last[1] = Math.max(last[1], end);
    else found.push([start, end]);
  }
  return found;
}

/** A text that may be very long, its marks in view, the rest behind buttons. */
export function longText(text, marks = []) {
  const made = el("div", { className: "text", dir: "auto" });
  const gap = (start, end) => {
    const show = button(`\u2026 show ${count(end - start)} more characters \u2026`, () =>
      show.replaceWith(slices(text, start, end, marks)));
    show.className = "gap";
    made.append(show);
  };
  let from = 0;
  for (const [start, end] of windows(text, marks)) {
    if (from < start) gap(from, start);
    made.append(end - start > SLICE ? slices(text, start, end, marks) : marked(text, start, end, marks));
    from = end;
  }
  if (from < text.length) gap(from, text.length);
  return made;
}
