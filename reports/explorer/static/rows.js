// A list of any length of which only the rows in view are in the page.

import { el } from "./text.js";

const BEYOND = 12; // rows kept ready above and below
const MOST = 60; // rows in the page, however high the window
const HEIGHT = 30; // pixels, as the style sheet has it

/** Fills `body` (a tbody) inside the scrolling `box`. `make(number)` gives the row of a place in
 *  the list. */
export class Rows {
  constructor(box, body, make) {
    Object.assign(this, { box, body, make, size: 0, first: -1, last: -1 });
    box.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(box);
  }

  /** Shows a list of another size, or the same one with other rows. */
  reset(size) {
    this.size = size;
    this.first = -1;
    this.draw();
  }

  draw() {
    const top = Math.floor(this.box.scrollTop / HEIGHT);
    const first = Math.max(0, Math.min(top, this.size - 1) - BEYOND);
    const seen = Math.ceil(this.box.clientHeight / HEIGHT) + 2 * BEYOND;
    const last = Math.min(this.size, first + Math.min(seen, MOST));
    if (first === this.first && last === this.last) return;
    [this.first, this.last] = [first, last];
    const focused = this.body.contains(document.activeElement)
      ? document.activeElement.closest("tr")?.getAttribute("aria-rowindex")
      : null;
    const made = [this.space(first)];
    for (let place = first; place < last; place += 1) {
      const row = this.make(place);
      row.setAttribute("aria-rowindex", place + 2); // the head is the first
      made.push(row);
    }
    made.push(this.space(this.size - last));
    this.body.replaceChildren(...made);
    if (focused) this.body.querySelector(`[aria-rowindex="${focused}"] a`)?.focus({ preventScroll: true });
  }

  space(rows) {
    const made = el("tr", { className: "space", "aria-hidden": "true" });
    made.style.height = `${rows * HEIGHT}px`;
    return made;
  }

  /** Brings a place of the list into view. */
  show(place) {
    const head = this.body.parentElement.tHead?.offsetHeight ?? 0;
    const [top, room] = [place * HEIGHT, this.box.clientHeight - head];
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top + HEIGHT > this.box.scrollTop + room) this.box.scrollTop = top + HEIGHT - room;
    this.first = -1;
    this.draw();
  }
}
