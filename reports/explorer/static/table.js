// The samples as columns, filtered and sorted by row numbers.

/** The JSON of an inert block: base64 of what zlib deflated; null where the page has none. */
export async function unpacked(id) {
  const block = document.getElementById(id);
  if (!block) return null;
  const bytes = Uint8Array.from(atob(block.textContent.trim()), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

export const COLUMNS = [
  // name, head, what it is, width in pixels; "names" are chosen from, "number" and "score" are
  // sorted by size
  ["task", "Task", "names", 170],
  ["length", "Length", "names", 84],
  ["strict", "Strict", "score", 76],
  ["cause", "Cause of failure", "names", 170],
  ["method", "Method", "names", 140],
  ["model", "Model", "names", 140],
  ["index", "#", "number", 50],
  ["published", "Published", "score", 110],
  ["answer", "Answer", "text", 260],
  ["turns", "Turns", "number", 72],
  ["prompt_tokens", "Tokens in", "number", 104],
  ["completion_tokens", "Tokens out", "number", 112],
  ["seconds", "Seconds", "number", 96],
  ["cut_turns", "Cut", "number", 62],
];

const CELL = ["task", "length", "method", "model"]; // as `cells` have them

/** All samples. A row number stands for a sample until the next `merge`. */
export class Samples {
  constructor() {
    this.data = { cells: [], samples: [], blocks: {}, causes: {}, methods: {}, models: {} };
    this.size = 0;
  }

  /** Takes what a server or a page gives: whole cells, in place of those that were there. */
  merge(data) {
    data.samples = [...this.data.samples, ...data.samples];
    data.blocks = { ...this.data.blocks, ...data.blocks };
    this.data = data;
    this.cell = [];
    const rest = {};
    const order = Object.keys(data.blocks).map(Number).sort((a, b) => a - b);
    for (const number of order) {
      const block = data.blocks[number];
      for (let n = 0; n < (block.index ?? []).length; n += 1) this.cell.push(number);
      for (const [name, values] of Object.entries(block)) (rest[name] ??= []).push(values);
    }
    this.size = this.cell.length;
    this.columns = Object.fromEntries(Object.entries(rest).map(([name, parts]) => [name, parts.flat()]));
    this.ranks = {};
    this.places = null;
  }

  value(name, row) {
    return CELL.includes(name) ? this.ofCell(name, this.cell[row]) : this.columns[name][row];
  }

  /** What a reader sees of a value. */
  shown(name, value) {
    if (name === "length") return lengthLabel(value);
    if (name === "method") return this.data.methods[value] ?? value;
    if (name === "model") return this.data.models[value] ?? value;
    if (name === "cause") return value ? (this.data.causes[value]?.[0] ?? value) : "";
    if (value === null || value === undefined) return "";
    return typeof value === "number" ? value.toLocaleString("en-US") : String(value);
  }

  /** The question and the golds of a row. */
  sample(row) {
    const [question, golds] = this.data.samples[this.columns.of[row]];
    return { question, golds };
  }

  /** Whether it is scored, and not wholly right. Without golds there is no score: null. */
  failed(row) {
    const score = this.columns.strict[row];
    return score !== null && score < 1;
  }

  names(name) {
    const numbers = [...this.data.cells.keys()];
    const values = CELL.includes(name) ? numbers.map((n) => this.ofCell(name, n)) : this.columns?.[name];
    const found = [...new Set(values)].filter((value) => value !== "");
    return found.sort((a, b) => (typeof a === "number" ? a - b : String(a).localeCompare(String(b))));
  }

  /** Row numbers that pass `filters` ({column: value} and `text`), sorted by a column. */
  rows(filters, sorted) {
    const wanted = Object.entries(filters).filter(([, value]) => value !== "");
    const tests = wanted.map(([name, value]) => this.test(name, value));
    const found = [];
    for (let row = 0; row < this.size; row += 1) {
      if (tests.every((test) => test(row))) found.push(row);
    }
    if (!sorted.column) return found;
    const rank = this.rank(sorted.column);
    const sign = sorted.descending ? -1 : 1;
    return found.sort((a, b) => sign * (rank[a] - rank[b]) || a - b);
  }

  test(name, wanted) {
    if (name === "text") return this.holds(wanted.toLowerCase());
    if (name === "strict" || name === "published") {
      const values = this.columns[name] ?? [];
      if (wanted === "failed") return (row) => values[row] !== null && values[row] < 1;
      return wanted === "right" ? (row) => values[row] === 1 : (row) => values[row] > 0 && values[row] < 1;
    }
    if (name === "cause") return (row) => this.columns.cause[row] === wanted;
    const cells = this.data.cells.map((_, number) => String(this.ofCell(name, number)) === wanted);
    return (row) => cells[this.cell[row]];
  }

  ofCell(name, cell) {
    return this.data.cells[cell][CELL.indexOf(name)];
  }

  holds(words) {
    const samples = this.data.samples.map(([question, golds]) =>
      `${question}\n${golds.join("\n")}`.toLowerCase().includes(words));
    return (row) => samples[this.columns.of[row]] || this.columns.answer[row].toLowerCase().includes(words);
  }

  /** A number for each row, by which it is sorted. */
  rank(name) {
    if (this.ranks[name]) return this.ranks[name];
    const rank = new Float64Array(this.size);
    const kind = COLUMNS.find((column) => column[0] === name)[2];
    if (kind === "names" || kind === "text") {
      const values = Array.from({ length: this.size }, (_, row) => this.value(name, row));
      const different = [...new Set(values)].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
      const order = new Map(different.map((value, place) => [value, place]));
      values.forEach((value, row) => { rank[row] = order.get(value); });
    } else for (let row = 0; row < this.size; row += 1) rank[row] = this.columns[name][row] ?? -1;
    return (this.ranks[name] = rank);
  }

  /** What a link says of a row, and back: the cell and the sample's number in it. */
  place(row) {
    const [task, length, method, model] = this.data.cells[this.cell[row]];
    return { task, length, model, method, sample: this.columns.index[row] };
  }

  /** "sample 3", of several draws "sample 3, draw 2". */
  name(row) {
    const [, , , , size, draws] = this.data.cells[this.cell[row]];
    const number = this.columns.index[row];
    return draws > 1 ? `sample ${number % size}, draw ${Math.floor(number / size) + 1}` : `sample ${number}`;
  }

  find(place) {
    const key = (p) => JSON.stringify([p.task, Number(p.length), p.model, p.method, Number(p.sample)]);
    if (!this.places) {
      this.places = new Map();
      for (let row = 0; row < this.size; row += 1) this.places.set(key(this.place(row)), row);
    }
    return this.places.get(key(place));
  }

  /** Rows of the same sample: other methods and models that met it. */
  pairs(row) {
    const sample = this.columns.of[row];
    const found = [];
    for (let other = 0; other < this.size; other += 1) {
      if (this.columns.of[other] === sample && other !== row) found.push(other);
    }
    return found;
  }
}

/** 2048 -> 2K, 1000000 -> 1M, 1234 -> 1,234. */
export function lengthLabel(tokens) {
  const units = [[1e6, "M", 4], [1e3, "K", 1], [2 ** 20, "M", 4], [1024, "K", 2], [1e3, "K", 2]];
  for (const [unit, letter, parts] of units) {
    if (tokens >= unit && (tokens * parts) % unit === 0) return `${tokens / unit}${letter}`;
  }
  return tokens.toLocaleString("en-US");
}
