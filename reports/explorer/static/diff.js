// What a turn changed in a memory, word by word.

import { el, longText, marked, placesOf, visible } from "./text.js";

const CELLS = 4000000; // of the table that finds the longest common run of words

/** [[-1 | 0 | 1, text], ...]: what went, what stayed, what came; null where it is too long. */
export function diffWords(before, after) {
  const [a, b] = [before, after].map((text) => text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? []);
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let tail = 0;
  while (tail < Math.min(a.length, b.length) - start && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  const middle = common(a.slice(start, a.length - tail), b.slice(start, b.length - tail));
  if (middle === null) return null;
  return joined([[0, a.slice(0, start)], ...middle, [0, a.slice(a.length - tail)]]);
}

function common(a, b) {
  const [n, m] = [a.length, b.length];
  if ((n + 1) * (m + 1) > CELLS) return null;
  const best = new Uint16Array((n + 1) * (m + 1)); // longest common run of a[i:], b[j:]
  for (let i = n - 1; i >= 0; i -= 1) {
    for (let j = m - 1; j >= 0; j -= 1) {
      const here = i * (m + 1) + j;
      best[here] = a[i] === b[j]
        ? best[here + m + 2] + 1
        : Math.max(best[here + m + 1], best[here + 1]);
    }
  }
  const steps = [];
  for (let i = 0, j = 0; i < n || j < m; ) {
    const here = i * (m + 1) + j;
    if (i < n && j < m && a[i] === b[j]) steps.push([0, [a[i++]]]), (j += 1);
    else if (j === m || (i < n && best[here + m + 1] >= best[here + 1])) steps.push([-1, [a[i++]]]);
    else steps.push([1, [b[j++]]]);
  }
  return steps;
}

/** Steps of one kind as one, what went before what came. */
function joined(steps) {
  const made = [];
  let gone = "";
  let came = "";
  const flush = () => {
    if (gone) made.push([-1, gone]);
    if (came) made.push([1, came]);
    gone = came = "";
  };
  for (const [kind, words] of steps) {
    const text = words.join("");
    if (!text) continue;
    if (kind < 0) gone += text;
    else if (kind > 0) came += text;
    else if (text.trim() === "" && (gone || came)) (gone += text), (came += text);
    else {
      flush();
      const last = made[made.length - 1];
      if (last && last[0] === 0) last[1] += text;
      else made.push([0, text]);
    }
  }
  flush();
  return made.filter(([kind, text], place) => !(kind < 0 && made[place + 1]?.[0] > 0 && made[place + 1][1] === text));
}

/** The memory after a turn, with what went struck through and what came underlined. */
export function memoryDiff(before, after, golds) {
  const steps = before.length + after.length > 60000 ? null : diffWords(before, after);
  if (steps === null) {
    return el("div", {}, el("p", { className: "small" }, "Too long to compare; the new memory:"),
      longText(after, placesOf(after, golds)));
  }
  const made = el("div", { className: "text", dir: "auto" });
  for (const [kind, text] of steps) {
    const marks = placesOf(text, golds);
    if (kind === 0 && text.length > 4000) made.append(longText(text, marks));
    else if (kind === 0) made.append(marked(text, 0, text.length, marks));
    else made.append(el(kind < 0 ? "del" : "ins", {}, marks.length ? marked(text, 0, text.length, marks) : visible(text)));
  }
  return made;
}
