// Keys and freshness. Every page can be read and used without this.
"use strict";
const all = (what) => [...document.querySelectorAll(what)];
const isTyping = () => /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");

// For what a page that has changed waits; empty: it follows at once. An input that is empty, or as it was served, keeps its focus and its caret.
function waitsFor() {
  const at = document.activeElement;
  if (isTyping() && at.closest("main") && !(at.matches("input") && at.form && inputOf(at) === servedIn(at))) return "you have finished typing";
  if (document.querySelector("main details.ask[open], dialog[open]")) return "the open menu or form is closed";
  return !isTyping() && String(getSelection()) !== "" ? "no text is selected" : "";
}

// The next or previous failure that nobody has handled, from the focus on. After the last one of a page of the grid comes the page with earlier ones, and before the first one that with later ones.
function toFailure(step) {
  const failures = all(".alarm"), at = document.activeElement ?? document.body;
  const side = step > 0 ? Node.DOCUMENT_POSITION_FOLLOWING : Node.DOCUMENT_POSITION_PRECEDING;
  const ahead = at === document.body ? failures : failures.filter((e) => at.compareDocumentPosition(e) & side);
  const further = document.querySelector(".grid")?.closest(".card").dataset[step > 0 ? "earlier" : "later"];
  if (!ahead.length && further) {
    sessionStorage.setItem("further", JSON.stringify([step, failures.at(step > 0 ? -1 : 0)?.getAttribute("href")]));
    return location.assign(further);
  }
  const next = (ahead.length ? ahead : failures).at(step > 0 ? 0 : -1);
  if (!next && !failing) {
    const where = /[?&]columns=/.test(location.search) ? "in the columns of this page" : "of this page";
    const more = location.pathname === "/" ? "" : " The overview (key g) has everything that needs a person.";
    write(document.querySelector(".outdated"), `No failure ${where} needs anybody.${more}`);
  }
  next?.focus();
  if (next && !ahead.length) say(step > 0 ? "No further failure below: this is the first one of this page." : "No failure above: this is the last one of this page.");
}

// Says something about the cell at hand, before its own sentence.
function say(words) {
  const line = shown?.closest(".card")?.querySelector(".foot .line");
  if (line) line.textContent = `${words} ${shown.title}`;
}

function toCell(down, right) {
  const here = document.activeElement?.closest(".grid td, .grid th");
  if (!here) return document.querySelector(".grid tbody a")?.focus();
  for (let row = here.parentElement, column = here.cellIndex; row;) {
    if (down) row = down > 0 ? row.nextElementSibling : row.previousElementSibling;
    else if (!row.cells[column += right]) return;
    const link = row?.cells[Math.min(column, row.cells.length - 1)].querySelector("a");
    if (link) return link.focus();
  }
}

// The cell at hand: its edges, all it waited for in its run and one step up, and one sentence. Everything is in the page already.
let shown = null, madeAt = Date.now();
const cellOf = (target) => target.closest?.(".grid tbody .cell a[id]") ?? null;

function pathOf(link) {
  const edges = [], seen = new Set([link]), row = link.closest("tr");
  for (const at of seen) {
    if (at !== link && at.closest("tr") !== row) continue;
    for (const edge of (at.dataset.edges ?? "").split(" ").filter(Boolean)) {
      const source = document.getElementById("t" + (at.id.slice(1) - edge.slice(1)));
      if (!source || edge[0] === "x" && at !== link) continue;
      edges.push([source, at, edge[0]]);
      seen.add(source);
    }
  }
  return [edges, seen];
}

// The line from cell to cell, `zero` being the corner of the picture. In its column, it stays to the right of the commits, which end at `end`. Past other columns, it follows the border of the row, so that it strikes no cell through.
function curve(source, target, zero, end) {
  const a = source.getBoundingClientRect(), b = target.getBoundingClientRect();
  const [y, z] = [a.top + a.height / 2 - zero.top, b.top + b.height / 2 - zero.top];
  const isNext = target.closest("td").cellIndex - source.closest("td").cellIndex === 1;
  if (Math.abs(y - z) < 2 && isNext) return `M${a.right - zero.left} ${y}H${b.left - zero.left}`;
  if (Math.abs(a.left - b.left) < 2) return `M${a.left - zero.left} ${y}H${Math.min(Math.max(a.left - 5, end + 2), a.right) - zero.left}V${z}H${a.left - zero.left}`;
  const middle = b.left - zero.left - 8, [from, out] = a.right < b.left ? [a.right, 4] : [a.left, -4];
  const row = source.closest("tr").getBoundingClientRect(), past = (z < y ? row.top : row.bottom) - zero.top;
  return `M${from - zero.left} ${y}${isNext ? "" : `h${out}V${past}`}H${middle}V${z}H${b.left - zero.left}`;
}

function draw(svg, edges) {
  const zero = svg.getBoundingClientRect(), end = svg.parentElement.querySelector(".commit").getBoundingClientRect().right;
  svg.replaceChildren(...edges.map(([source, target, kind]) => {
    const path = document.createElementNS(svg.namespaceURI, "path");
    path.setAttribute("d", curve(source, target, zero, end));
    path.setAttribute("class", kind);
    return path;
  }));
}

function show(link) {
  if (link === shown) return;
  const before = shown;
  shown = link;
  for (const e of document.querySelectorAll(".cell a.on, .cell a.at")) e.classList.remove("on", "at");
  const grid = (link ?? before)?.closest(".scroll"), foot = grid?.parentElement.querySelector(".foot"), svg = grid?.querySelector(".edges");
  if (!svg) return;
  if (!link) {
    grid.classList.remove("focused");
    foot.classList.remove("shown");
    return svg.replaceChildren();
  }
  const [edges, seen] = pathOf(link);
  draw(svg, edges);
  for (const e of seen) e.classList.add("on");
  link.classList.add("at");
  grid.classList.add("focused");
  foot.classList.add("shown");
  foot.querySelector(".shape").replaceChildren(link.querySelector(".s").cloneNode(true));
  foot.querySelector(".line").textContent = link.title = sentenceOf(link);
  foot.querySelector("a").href = link.href;
  foot.querySelector("a").hidden = !("log" in link.dataset);
}

// What is scrolled sideways moves below the commits, which stay.
addEventListener("scroll", ({ target }) => { if (shown && target === shown.closest(".scroll")) draw(target.querySelector(".edges"), pathOf(shown)[0]); }, { capture: true, passive: true });

// A place in the grid by its run and column: who stands for the items of a list changes.
function placeOf(element) {
  const cell = element?.closest(".grid tbody td.cell");
  return cell ? [cell.parentElement.querySelector("th a").getAttribute("href"), cell.cellIndex] : null;
}

function linkAt([run, column]) {
  const row = all(".grid tbody tr").find((row) => row.querySelector("th a").getAttribute("href") === run);
  return row?.cells[column]?.querySelector("a");
}

// What failed in the cell or line at hand is retried: from there, never the whole archive or run.
function retry() {
  const at = document.activeElement, foot = document.querySelector(".grid") && document.querySelector(".foot");
  const line = at?.closest(foot ? "td, li" : "tr, li"), button = line?.querySelector("[data-verb=retry]");
  if (button) return button.click();
  if (!foot && line) return write(document.querySelector(".outdated"), "Nothing of this line can be retried.");
  if (!foot) return document.querySelector(".head [data-verb=retry]:not(.rare *)")?.click();
  const link = cellOf(at), failed = link?.querySelector(".s.failed");
  if (!link) foot.querySelector(".shape").replaceChildren();
  foot.classList.add("shown");
  foot.querySelector(".line").textContent = !link ? "No cell has the focus. Go to one that failed with j, k or the arrows; then r retries it." : failed ? "It cannot be retried here." : "Nothing of this cell has failed, so there is nothing to retry.";
}

addEventListener("submit", (event) => {
  const place = placeOf(event.target);
  if (place) sessionStorage.setItem("place", JSON.stringify(place));
});

const showFocused = () => show(cellOf(document.activeElement ?? document.body));
addEventListener("focusin", (event) => {
  const link = cellOf(event.target);
  if (!event.target.closest?.(".foot")) show(link);
  if (link && location.hash !== "#" + link.id) history.replaceState(null, "", "#" + link.id);
});
addEventListener("mouseover", (event) => { const link = cellOf(event.target); if (link) show(link); });
addEventListener("mouseout", (event) => { if (cellOf(event.target) && !event.relatedTarget?.closest?.(".foot, .grid td")) showFocused(); });
const focusNamed = () => /^#t\d+$/.test(location.hash) && document.getElementById(location.hash.slice(1))?.focus();
focusNamed();
if (document.querySelector(".grid") && sessionStorage.getItem("place")) {
  linkAt(JSON.parse(sessionStorage.getItem("place")))?.focus();
  sessionStorage.removeItem("place");
}
if (sessionStorage.getItem("further")) {
  const [step, from] = JSON.parse(sessionStorage.getItem("further")), failures = all(".grid .alarm");
  sessionStorage.removeItem("further");
  // The newest page may also have failures of the page from which somebody came.
  const place = failures.findIndex((e) => e.getAttribute("href") === from);
  failures.at(step > 0 ? place + 1 : place < 0 ? -1 : Math.max(place - 1, 0))?.focus();
  say(`These are ${step > 0 ? "earlier" : "later"} runs, with failures that nobody has handled.`);
}

// The log of the cell at hand, or that of the page.
function toLog() {
  const focused = document.activeElement, link = cellOf(focused ?? document.body);
  if (link && !("log" in link.dataset)) document.querySelector(".foot .line").textContent = `${link.title} It has no log, as it never started.`;
  else if (focused?.href) location.assign(focused.href);
  else document.querySelector(".log")?.focus();
}

function toUnhandled() {
  const address = new URL(location.href), asked = address.searchParams;
  address.hash = "";
  asked.delete("before");
  if (asked.get("state") === "unhandled") asked.delete("state");
  else asked.set("state", "unhandled");
  if (document.querySelector(".filter")) location.assign(address);
}

// Closes the form, menu or section at hand. Returns whether one was open.
function closeOpened() {
  const opened = document.activeElement?.closest("details[open]") ?? document.querySelector("details.ask[open]");
  if (!opened) return false;
  opened.open = false;
  opened.querySelector("summary").focus();
  return true;
}

// A menu closes when somebody clicks elsewhere; a form stays open.
addEventListener("click", (event) => {
  for (const menu of all("details.ask[open]:has(> .menu)")) if (!menu.contains(event.target)) menu.open = false;
});

addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
    if (closeOpened() || !isTyping()) return;
    document.activeElement.blur();
    return void focusNamed();
  }
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping()) return;
  const focused = document.activeElement;
  const keys = {
    j: () => toFailure(1), k: () => toFailure(-1), g: () => location.assign("/"),
    u: toUnhandled,
    "/": () => document.querySelector(".search input[type=search]")?.select(),
    f: () => document.querySelector(".filter input, .find input[type=search]")?.select(),
    "?": () => document.querySelector("dialog.help").showModal(),
    l: toLog,
    r: retry,
    ArrowDown: () => toCell(1, 0), ArrowUp: () => toCell(-1, 0), ArrowLeft: () => toCell(0, -1), ArrowRight: () => toCell(0, 1),
  };
  const isArrow = event.key.startsWith("Arrow");
  if (!(event.key in keys) || isArrow && !document.querySelector(".grid") || isArrow && focused?.classList.contains("log")) return;
  event.preventDefault();
  keys[event.key]();
});

// What changed is put in place while nobody types, has opened a form, or has selected a text: then the page says for what it waits. Focus, places of scrolling and forms that are filled in stay.
// After an answer a page rests for three times as long as that took, two seconds at most: however much changes, it asks for a quarter of the time at most.
const PATIENCE = 45_000; // milliseconds: the server says something each 15 s
let isAsking = false, isStale = false, isWaiting = false, rested = 0, later = 0, served = document.querySelector("main").innerHTML;

// A button that is replaced while it is pressed gets no click. The click comes after the release.
let isPressed = false;
addEventListener("pointerdown", ({ target }) => { isPressed = target.closest?.("a, button, summary, label") != null; }, true);
for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => setTimeout(released), true);
addEventListener("blur", released);

function released() {
  isPressed = false;
  if (isStale) refresh();
}

async function refresh() {
  isStale = true;
  if (isAsking || isPressed || document.hidden || mustWait()) return;
  const began = performance.now();
  clearTimeout(later);
  if (began < rested) return void (later = setTimeout(refresh, rested - began));
  isAsking = true;
  isStale = false;
  let answer = null, text = "";
  try {
    answer = await fetch(location.href, { headers: { accept: "text/html" }, signal: AbortSignal.timeout(PATIENCE) });
    text = await answer.text();
  } catch {
    answer = null;
  }
  if (answer?.redirected) {
    keep();
    return location.reload();
  }
  const now = performance.now();
  isAsking = false;
  rested = now + Math.min(3 * (now - began), 2000);
  // A page that says that its subject is gone, or not to be seen, takes the place of the subject.
  if (!answer || answer.status >= 500 || answer.status === 429) {
    isStale = true; // the clock asks again
    return void (rested = now + failed(answer ? `the server refuses (${answer.status})` : "the server does not answer"));
  }
  put(new DOMParser().parseFromString(text, "text/html"));
  if (isConnected()) succeeded();
  if (isStale) refresh(); // it changed meanwhile
}

// Whether a page that has changed waits, which it says.
function mustWait() {
  const what = waitsFor();
  if (what && !failing) write(document.querySelector(".outdated"), `Not current: it waits until ${what}.`);
  else if (isWaiting && !failing) write(document.querySelector(".outdated"), "");
  isWaiting = what !== "";
  return isWaiting;
}

// A page that cannot be current says so from the second failure in a row on, so that a server that starts anew does not alarm anybody. It tries again after a pause that doubles, up to a minute.
let failures = 0, failing = null;

function failed(why) {
  failing ??= new Date(Date.now() - skew);
  failures++;
  if (failures > 1) write(document.querySelector(".outdated"), `Not current since ${failing.toISOString().slice(11, 16)} UTC: ${why}. Trying again.`);
  return Math.min(500 * 2 ** failures, 60_000) * (1 + Math.random() / 4);
}

function succeeded() {
  failures = 0;
  failing = null;
  write(document.querySelector(".outdated"), "");
}

// What a person has done to a page: where it is scrolled, what is open, and what has the focus, so that all of it is there again when the page is put anew or loaded again.
const meaning = (e) => [e.getAttribute("href"), e.form?.elements.namedItem("verb")?.value, e.form?.elements.namedItem("name")?.value, e.getAttribute("aria-label"), e.matches("summary") && e.textContent].join("\n");
const alike = (name, of) => all("main " + name).filter((e) => meaning(e) === of);

function stateOf() {
  const focused = document.activeElement?.closest("main :is(a, button, summary, [tabindex])");
  const kind = (focused?.closest(".grid") ? ".grid " : "") + focused?.localName; // a twin in the sentence above the grid comes and goes
  return {
    scrolled: all("main .scroll, main .log").map((e) => [e.scrollTop, e.scrollLeft, e.scrollTop + e.clientHeight >= e.scrollHeight - 4]),
    opened: all("main details:is(.more, .long)[open]").map((e) => e.id),
    focused: focused && [kind, meaning(focused), alike(kind, meaning(focused)).indexOf(focused)],
    cell: cellOf(focused ?? document.body) && placeOf(focused),
  };
}

function scrollAndOpen({ scrolled, opened }) {
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  all("main .scroll, main .log").forEach((e, i) => { if (scrolled[i]) e.scrollTo(scrolled[i][1], scrolled[i][2] && e.matches(".log") ? e.scrollHeight : scrolled[i][0]); });
}

function focusAgain({ focused, cell }) {
  ((focused && alike(focused[0], focused[1]).at(focused[2])) ?? (cell && linkAt(cell)))?.focus({ preventScroll: true });
}

// What somebody has put into a form that is not sent. A form is known by where and what it sends, but for what each page has anew; these hidden fields are always those of the new page.
const fields = () => all("main form :is(input:not([type=hidden], [type=file]), select, textarea)");
const isCheck = (field) => /^(checkbox|radio)$/.test(field.type);
const inputOf = (field) => isCheck(field) ? field.checked : field.value;

function servedIn(field) {
  if (isCheck(field)) return field.defaultChecked;
  return field.matches("select") ? (field.querySelector("option[selected]") ?? field.options[0])?.value : field.defaultValue;
}

function nameOf(field) {
  const hidden = [...field.form.querySelectorAll("[type=hidden]:not([name=form], [name=attempt], [name=was])")].map((e) => [e.name, e.value]);
  return JSON.stringify([field.form.getAttribute("action"), hidden, field.name, isCheck(field) && field.value]);
}

const inputs = () => new Map(fields().filter((e) => inputOf(e) !== servedIn(e)).map((e) => [nameOf(e), inputOf(e)]));

function fillIn(before) {
  for (const e of before.size ? fields() : []) {
    const input = before.get(nameOf(e));
    if (input === undefined || e.matches("select") && ![...e.options].some((option) => option.value === input)) continue;
    e[isCheck(e) ? "checked" : "value"] = input;
  }
}

function goOnTyping(name, caret) {
  const field = fields().find((e) => nameOf(e) === name);
  field?.focus({ preventScroll: true });
  if (caret) field?.setSelectionRange(...caret);
}

// When the session has ended, a form that is sent, or a page that asks for its newest state, leads to the sign-in, and from there back to its page: what was put into it is there again.
const PLACE = location.pathname + location.search, isSignIn = location.pathname === "/-/sign-in";
const sent = isSignIn ? null : JSON.parse(sessionStorage.getItem("sent"));

function fillInSent() {
  if (!sent) return;
  sessionStorage.removeItem("sent");
  if (sent.place !== PLACE || !sent.hasSignedIn) return;
  const before = new Map(sent.inputs);
  fillIn(before);
  for (const e of fields()) if (before.has(nameOf(e))) e.closest("details")?.setAttribute("open", "");
}

if (isSignIn && sessionStorage.getItem("sent")) sessionStorage.setItem("sent", JSON.stringify({ ...JSON.parse(sessionStorage.getItem("sent")), hasSignedIn: true }));
addEventListener("submit", ({ target }) => {
  if (!isSignIn && target.method === "post") keep();
});

function keep() {
  try {
    sessionStorage.setItem("sent", JSON.stringify({ place: PLACE, inputs: [...inputs()] }));
  } catch {
    sessionStorage.removeItem("sent"); // a document that is too long for the browser to keep
  }
}
fillInSent();

function put(fresh) {
  const main = document.querySelector("main"), next = fresh.querySelector("main");
  if (!next) return;
  if (served === next.innerHTML) return void (main.dataset.asOf = next.dataset.asOf ?? "");
  if (isPressed || mustWait()) return void (isStale = true);
  const state = stateOf(), before = inputs(), field = document.activeElement;
  const typed = fields().includes(field) && [nameOf(field), field.type === "text" || field.type === "search" ? [field.selectionStart, field.selectionEnd] : null];
  main.innerHTML = served = next.innerHTML;
  fillIn(before);
  main.dataset.asOf = next.dataset.asOf ?? "";
  document.title = fresh.title;
  scrollAndOpen(state);
  shown = null;
  madeAt = Date.now();
  document.dispatchEvent(new Event("put"));
  focusAgain(state);
  if (typed) goOnTyping(...typed);
  if (main.dataset.live !== next.dataset.live) {
    main.dataset.live = next.dataset.live ?? "";
    listen();
  }
}

// A page that is loaded again, or come back to, is as it was left. A log keeps its own place.
const isSeenBefore = performance.getEntriesByType("navigation")[0]?.type !== "navigate";
const left = isSeenBefore && sessionStorage.getItem(`left ${location.pathname}${location.search}`);
if (left) {
  scrollAndOpen(JSON.parse(left));
  if (document.activeElement === document.body) focusAgain(JSON.parse(left));
} else all("main .scroll > .graph").forEach(openAtWhatMatters);

// A graph that is larger than its box opens at its first failed box, or else its first running one.
function openAtWhatMatters(graph) {
  const first = (state) => graph.querySelector(`.node.${state}:not(.waived, :has(.out))`);
  const box = (first("failed") ?? first("running"))?.getBoundingClientRect(), view = graph.parentElement, seen = view.getBoundingClientRect();
  if (!box) return;
  if (box.top < seen.top || box.bottom > seen.top + view.clientHeight) view.scrollTop += (box.top + box.bottom) / 2 - seen.top - view.clientHeight / 2;
  if (box.left < seen.left || box.right > seen.left + view.clientWidth) view.scrollLeft += (box.left + box.right) / 2 - seen.left - view.clientWidth / 2;
}
addEventListener("pagehide", () => sessionStorage.setItem(`left ${location.pathname}${location.search}`, JSON.stringify(stateOf())));

// One connection a page, and none while nobody sees it: a browser has six for a server. The server says at once if something has changed since it made the page.
let source = null, again = 0, heard = 0;
const isConnected = () => !document.querySelector("main").dataset.live || source?.readyState === EventSource.OPEN;

function listen() {
  source?.close();
  source = null;
  clearTimeout(again);
  const { live: address, asOf } = document.querySelector("main").dataset;
  if (!address || document.hidden) return;
  source = new EventSource(address + (address.includes("?") ? "&" : "?") + asOf);
  heard = performance.now();
  source.addEventListener("open", () => { if (failing && !isStale) succeeded(); }); // else it would remove the words of a key
  source.addEventListener("here", () => heard = performance.now());
  source.addEventListener("changed", refresh);
  source.addEventListener("error", lost);
}

// A browser asks no server again that has refused the connection. Where nobody is signed in any more, the page that is loaded says so.
function lost() {
  if (this !== source) return;
  const isRefused = source.readyState === EventSource.CLOSED;
  if (isRefused) refresh();
  source.close();
  source = null;
  again = setTimeout(listen, failed(isRefused ? "the server refuses" : "the server does not answer"));
}

addEventListener("visibilitychange", listen);
addEventListener("pagehide", () => source?.close());
addEventListener("pageshow", (event) => { if (event.persisted) listen(); });

// Clocks and ages go on by themselves, by the time of the server.
const skew = Date.now() - Date.parse(document.querySelector("main").dataset.servedAt);
const secondsUntil = (moment) => (Date.parse(moment) + skew - Date.now()) / 1000;
const secondsSince = (moment) => Math.max(Math.floor(-secondsUntil(moment)), 0);
const two = (n) => String(n).padStart(2, "0");

function inClock(s) {
  const h = Math.floor(s / 3600), minutes = Math.floor(s / 60) % 60;
  return h ? `${h}:${two(minutes)}:${two(s % 60)}` : `${minutes}:${two(s % 60)}`;
}

function inAge(s, word) {
  for (const [size, unit] of [[86_400, "d"], [3600, "h"], [60, "min"]]) if (s >= size) return `${Math.floor(s / size).toLocaleString("en")} ${unit} ${word}`.trim();
  return word ? "just now" : "now";
}

// A future moment, like “in 3 h, 03:00 UTC”: how soon it is changes. `late`: the words for one that is over.
function inSoon(s, words, late) {
  const exact = words.split(", ").at(-1);
  return s > 0 ? `in ${inAge(s, "").replace("now", "a moment")}, ${exact}` : late === "overdue" ? `overdue, ${exact}` : late;
}

// Writes a text that has changed. The sentence of a cell has its clock, too.
function write(element, text) {
  const before = element.textContent, cell = cellOf(element);
  if (before === text) return;
  element.textContent = text;
  if (!cell) return;
  cell.title = cell.title.replace(` for ${before}`, ` for ${text}`);
  if (cell === shown) document.querySelector(".foot .line").textContent = cell.title;
}

// The bar of a running task goes on with its clock, and its sentence says when the task takes longer than usual.
function advance(bar) {
  const at = bar.closest("a, td"), seconds = secondsSince(at.querySelector("[data-since]").dataset.since);
  bar.lastElementChild.setAttribute("width", Math.min(60 * seconds / bar.dataset.usual, 60).toFixed(1));
  if (seconds > bar.dataset.usual) tell(at, at.title.replace(/( for [\d:]+) of about /, "$1, longer than usual: about "));
}

// The sentence of a cell at this moment: the expected start and end of a waiting task come nearer. If one of them is over and nothing has changed, nobody knows when it is.
function sentenceOf(link) {
  if (!link.dataset.expected) return link.title;
  const passed = (Date.now() - madeAt) / 1000, [start, end] = link.dataset.expected.split(" ").map(Number);
  if (passed < 5) return link.title;
  const isOver = end < passed || start > 0 && start < passed;
  const words = isOver ? "" : `; it may start in ${inAbout(start - passed)} and end in ${inAbout(end - passed)}`;
  return link.title.replace(/; it may start in .+? and end in (a moment|about [\d:]+( [sh])?)/, words);
}

function inAbout(s) {
  if (s < 10) return "a moment";
  return `about ${s < 60 ? `${Math.round(s)} s` : s < 3600 ? inClock(Math.floor(s)) : `${Math.round(s / 3600)} h`}`;
}

// Gives a cell its sentence at this moment, also at the foot, unless the foot says something else.
function tell(cell, sentence) {
  const line = cell === shown ? document.querySelector(".foot .line") : null, before = cell.title;
  cell.title = sentence;
  if (line?.textContent === before) line.textContent = sentence;
}

function tick() {
  if (document.hidden) return;
  if (isStale) refresh();
  if (source && performance.now() - heard > PATIENCE) lost.call(source);
  for (const e of all("[data-since]")) write(e, inClock(secondsSince(e.dataset.since)));
  for (const e of all(".bar[data-usual]")) advance(e);
  if (shown) tell(shown, sentenceOf(shown));
  for (const e of all("[data-age]")) write(e, inAge(secondsSince(e.dateTime), e.dataset.age));
  for (const e of all("[data-until]")) if (e.textContent !== e.dataset.until) write(e, inSoon(secondsUntil(e.dateTime), e.textContent, e.dataset.until));
}

listen();
setInterval(tick, 1000);
