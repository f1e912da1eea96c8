// A log of any length: only the lines that are seen are in the page. Others are fetched when they come near, and what is shown stays until they are there.
"use strict";
const HEIGHT = 20, MOST_PIXELS = 8e6, MOST_KEPT = 8000, BLOCK = 400;
let view = null;

class LogView {
  constructor(box, before) {
    this.box = box;
    this.of = box.dataset.of;
    this.address = box.dataset.address;
    this.total = +box.dataset.total; // the number of the last line
    [this.after, this.missing] = (box.dataset.gap ?? "0 0").split(" ").map(Number); // as many lines are missing after this one
    const isSame = before?.of === this.of && before.address === this.address;
    this.lines = isSame ? before.lines : new Map();
    // A line that had no end may have grown.
    if (isSame) for (const number of this.lines.keys()) if (number >= before.total) this.lines.delete(number);
    this.asked = new Set();
    this.take(box);
    this.space = document.createElement("div");
    this.shown = document.createElement("div");
    this.space.className = "space";
    this.shown.className = "seen";
    this.space.append(this.shown);
    box.replaceChildren(this.space);
    box.classList.add("virtual");
    box.parentElement.querySelector(".parts")?.remove();
    this.resize();
    const hash = /^#L(\d+)$/.exec(location.hash), at = hash ? +hash[1] : +box.dataset.at;
    this.marked = at || (isSame ? before.marked : 0);
    if (isSame && !before.wasAtEnd) this.top = this.rowOf(before.top > before.after ? before.top + before.missing : before.top);
    else this.top = !isSame && at ? Math.max(this.rowOf(at) - 8, 1) : this.last;
    this.wanted = this.top;
    this.sought = isSame ? 0 : at;
    this.place();
    for (const act of ["wheel", "keydown", "pointerdown"]) box.addEventListener(act, () => this.wanted = null, { passive: true });
    box.addEventListener("scroll", () => this.scrolled(), { passive: true });
    box.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    box.addEventListener("keydown", (event) => this.key(event));
    box.addEventListener("click", (event) => this.click(event));
    new ResizeObserver(() => { this.resize(); this.place(); }).observe(box);
    this.draw();
    this.reveal();
    if (!before && !at) this.revealEnd();
  }

  // What stands above the log may be so high that the log ends below the window: the page is scrolled until the end is in the window.
  revealEnd() {
    const low = this.box.getBoundingClientRect().bottom + HEIGHT / 2 - innerHeight;
    if (low > 0) scrollBy(0, low);
  }

  // To the line that the address names now.
  toHash() {
    const hash = /^#L(\d+)$/.exec(location.hash);
    if (!hash) return;
    this.marked = this.sought = +hash[1];
    this.top = this.rowOf(this.marked) - 8;
    this.place();
    this.draw();
    this.reveal();
  }

  // A line near the end stands low in the log, and the log may end below the window: the page is scrolled until the line is in the window.
  reveal() {
    const line = this.sought && this.shown.querySelector(`#L${this.sought}`);
    if (!line) return;
    const low = line.getBoundingClientRect().bottom + 2 * HEIGHT - innerHeight;
    if (low > 0) scrollBy(0, low);
    if (document.readyState === "complete") this.sought = 0;
  }

  // The browser itself scrolls to the line that the address names, while the page is loaded. It knows only the lines that are in the page: it goes too far, or elsewhere.
  settle() {
    if (this.wanted === null) return;
    this.top = this.wanted;
    this.place();
    this.draw();
    this.reveal();
  }

  // The lines of an answer, each with what arkqueue says before it.
  take(from) {
    let before = [], last = 0;
    for (const line of [...(from.querySelector(":scope > .lines") ?? from).children]) {
      before.push(line);
      if (!/^L\d+$/.test(line.id)) continue;
      this.lines.set(last = +line.id.slice(1), before);
      before = [];
    }
    if (before.length && last === this.total) this.lines.get(last).push(...before);
  }

  // The rows of the view are the lines that were kept.
  get count() { return this.total - this.missing; }
  numberOf(row) { return row > this.after ? row + this.missing : row; }
  rowOf(number) { return number > this.after ? Math.max(number - this.missing, this.after + 1) : number; }
  get rows() { return Math.max(Math.floor(this.box.clientHeight / HEIGHT), 1); }
  get last() { return Math.max(this.count - this.rows + 1, 1); }
  get isAtEnd() { return this.top >= this.last - 0.5; }
  get isExact() { return this.count * HEIGHT <= MOST_PIXELS; }

  resize() {
    this.space.style.height = `${Math.max(Math.min(this.count * HEIGHT, MOST_PIXELS), 1)}px`;
    this.shown.style.height = `${Math.min(this.box.clientHeight, this.count * HEIGHT)}px`;
  }

  // The place of the scroll bar for the line at the top, and the other way round. Browsers have no room for millions of lines: then a pixel stands for several.
  place() {
    this.top = Math.min(Math.max(this.top, 1), this.last);
    const room = this.space.clientHeight - this.box.clientHeight;
    this.expected = Math.round(this.isExact ? (this.top - 1) * HEIGHT : (this.top - 1) / Math.max(this.last - 1, 1) * room);
    this.box.scrollTop = this.expected;
    this.expected = this.box.scrollTop;
  }

  scrolled() {
    const at = this.box.scrollTop;
    if (Math.abs(at - this.expected) < 1) return;
    this.expected = at;
    const room = this.space.clientHeight - this.box.clientHeight;
    this.top = this.isExact ? at / HEIGHT + 1 : 1 + at / Math.max(room, 1) * (this.last - 1);
    this.draw();
  }

  move(lines) {
    this.top += lines;
    this.place();
    this.draw();
  }

  wheel(event) {
    if (this.isExact || !event.deltaY || event.ctrlKey) return;
    event.preventDefault();
    this.move(event.deltaY / (event.deltaMode ? 1 : HEIGHT));
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: this.rows - 1, PageUp: 1 - this.rows, Home: -this.count, End: this.count }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.move(step);
  }

  click(event) {
    const link = event.target.closest("a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    this.marked = +link.textContent;
    history.replaceState(null, "", link.href);
    this.draw();
  }

  draw() {
    const first = Math.floor(this.top), nodes = [];
    this.wasAtEnd = this.isAtEnd;
    for (let row = first; row <= Math.min(first + this.rows + 1, this.count); row++) {
      const lines = this.lines.get(this.numberOf(row));
      if (!lines) return this.fetch(row);
      nodes.push(...lines);
    }
    for (const node of nodes) node.classList.toggle("marked", node.id === `L${this.marked}`);
    this.shown.replaceChildren(...nodes);
    this.shown.scrollTop = 0;
    this.shown.style.setProperty("--up", `${-Math.round(this.isAtEnd ? Math.max(nodes.length * HEIGHT - this.shown.clientHeight, 0) : (this.top - first) * HEIGHT)}px`);
    // What comes next in either direction is there before it is seen.
    for (const near of [first + this.rows + 150, first - 150]) if (near >= 1 && near <= this.count && !this.lines.has(this.numberOf(near))) this.fetch(near);
  }

  async fetch(row) {
    const from = Math.max(row - BLOCK / 4, 1), number = this.numberOf(row);
    if (this.asked.size > 1 || [...this.asked].some((one) => one <= row && row < one + BLOCK / 2)) return;
    this.asked.add(from);
    try {
      const answer = await fetch(this.address + this.numberOf(from));
      if (!answer.ok || answer.redirected) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-total]");
      this.take(page);
      if (this.lines.size > MOST_KEPT) for (const one of this.lines.keys()) if (Math.abs(this.rowOf(one) - this.top) > MOST_KEPT / 4) this.lines.delete(one);
      // A line that is longer than an answer, or is gone: nothing is waited for.
      if (!this.lines.has(number)) this.lines.set(number, []);
    } catch { return; } finally { this.asked.delete(from); }
    this.draw();
    this.reveal();
  }
}

function openLog() {
  const box = document.querySelector(".log[data-of]");
  view = box ? new LogView(box, view) : null;
}

// A page that is loaded again shows the lines that it showed, unless it showed the end. A line that is chosen changes the address.
const seen = () => "log " + location.pathname + location.search;
addEventListener("pagehide", () => { if (view) sessionStorage.setItem(seen(), JSON.stringify({ of: view.of, address: view.address, total: view.total, after: view.after, missing: view.missing, top: view.top, wasAtEnd: view.isAtEnd, marked: view.marked })); });
if (isSeenBefore && sessionStorage.getItem(seen())) view = { ...JSON.parse(sessionStorage.getItem(seen())), lines: new Map() };
document.addEventListener("put", openLog);
addEventListener("hashchange", () => view?.toHash());
addEventListener("load", () => requestAnimationFrame(() => requestAnimationFrame(() => view?.settle())));
openLog();
