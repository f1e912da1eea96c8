// Keys and freshness. Every page can be read and used without this.
"use strict";
const all = (what) => [...document.querySelectorAll(what)];
const isTyping = () => /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
const isBusy = () => isTyping() || document.querySelector("details[open], dialog[open]") || String(getSelection()) !== "";

function toFailure(step) {
  const failures = all(".alarm");
  if (!failures.length) return;
  const at = failures.indexOf(document.activeElement);
  failures[(at < 0 ? (step > 0 ? 0 : failures.length - 1) : at + step + failures.length) % failures.length].focus();
}

function toCell(down, right) {
  const here = document.activeElement?.closest(".grid td, .grid th");
  if (!here) return document.querySelector(".grid tbody a")?.focus();
  let row = here.parentElement, column = here.cellIndex + right;
  for (let next = row; next; next = down > 0 ? next.nextElementSibling : next.previousElementSibling) {
    if (down && next === row) continue;
    const link = next.cells[Math.min(Math.max(column, 0), next.cells.length - 1)]?.querySelector("a");
    if (link) return link.focus();
    if (!down) return;
  }
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping()) return;
  const focused = document.activeElement;
  const keys = {
    j: () => toFailure(1), k: () => toFailure(-1), g: () => location.assign("/"),
    "/": () => document.querySelector(".search input[type=search]")?.select(),
    f: () => document.querySelector(".filter input")?.select(),
    "?": () => document.querySelector("dialog.help").showModal(),
    l: () => focused?.href ? location.assign(focused.href) : document.querySelector(".log")?.focus(),
    r: () => (focused?.closest("td, li")?.querySelector("[data-verb=retry]") ?? document.querySelector(".head [data-verb=retry]"))?.click(),
    ArrowDown: () => toCell(1, 0), ArrowUp: () => toCell(-1, 0), ArrowLeft: () => toCell(0, -1), ArrowRight: () => toCell(0, 1),
  };
  const isArrow = event.key.startsWith("Arrow");
  if (!(event.key in keys) || isArrow && !document.querySelector(".grid") || isArrow && focused?.classList.contains("log")) return;
  event.preventDefault();
  keys[event.key]();
});

// What changed is put in place while nobody types, has opened a form, or has selected a text. Focus and places of scrolling stay.
async function refresh() {
  if (document.hidden || isBusy()) return;
  const answer = await fetch(location.href, { headers: { accept: "text/html" } });
  if (!answer.ok || answer.redirected) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const main = document.querySelector("main"), next = fresh.querySelector("main");
  if (!next || isBusy() || main.innerHTML === next.innerHTML) return;
  const scrolled = all("main .scroll, main .log").map((e) => [e.scrollTop, e.scrollLeft, e.scrollTop + e.clientHeight >= e.scrollHeight - 4]);
  const focused = document.activeElement?.closest("main a")?.getAttribute("href");
  main.innerHTML = next.innerHTML;
  document.title = fresh.title;
  all("main .scroll, main .log").forEach((e, i) => { if (scrolled[i]) e.scrollTo(scrolled[i][1], scrolled[i][2] && e.matches(".log") ? e.scrollHeight : scrolled[i][0]); });
  if (focused) all("main a").find((e) => e.getAttribute("href") === focused)?.focus({ preventScroll: true });
}

document.querySelectorAll(".log").forEach((log) => { if (!location.hash) log.scrollTop = log.scrollHeight; });
if (document.querySelector("main .head") && !location.pathname.startsWith("/-/")) setInterval(() => refresh().catch(() => {}), 2000);
