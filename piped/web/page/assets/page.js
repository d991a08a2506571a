// @ts-check
// The page's own script: what HTML and htmx cannot do. It is loaded before the body, so that the
// theme is there at the first paint.
"use strict";

/** @type {HTMLElement} */
const root = document.documentElement;

/** The elements of the page that match. @param {string} selector */
const all = (selector) => [...document.querySelectorAll(selector)].filter((e) => e instanceof HTMLElement);

/** The chosen theme, kept in this browser. */
const theme = {
  read() { try { return localStorage.getItem("piped-theme"); } catch { return null; } },
  apply() {
    const chosen = this.read();
    if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  },
  toggle() {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("piped-theme", root.dataset.theme); } catch { /* it holds for this view only */ }
  },
};
theme.apply();

/** The same words as ago and duration of the server. @param {number} ms */
function duration(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 1) return `${Math.floor(s * 1000)} ms`;
  if (s < 120) return `${Math.floor(s)} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

/** Counts relative times on. */
function countOn() {
  for (const time of all("time[data-ago], time[data-since]")) {
    if (!(time instanceof HTMLTimeElement) || !time.dateTime) continue;
    const passed = Date.now() - Date.parse(time.dateTime);
    const text = time.dataset.since !== undefined ? duration(passed) : passed < 1000 ? "just now" : `${duration(passed)} ago`;
    if (time.textContent !== text) time.textContent = text;
  }
}

/** @param {string} [id] @returns {HTMLDialogElement|null} */
function dialog(id = "dialog") {
  const d = document.getElementById(id);
  return d instanceof HTMLDialogElement ? d : null;
}

/** Opens the command palette, with the text of the last time selected. */
function openPalette() {
  const d = dialog("palette");
  const field = d?.querySelector("input");
  if (!d || !field || document.querySelector("dialog[open]")) return;
  d.showModal();
  field.select();
  field.dispatchEvent(new Event("palette"));
}

/** The arrows go through the results, and Enter in the field opens the first of what is typed. @param {KeyboardEvent} event */
function onPaletteKey(event) {
  const links = all("#palette-results a");
  const at = links.findIndex((a) => a === document.activeElement);
  const field = dialog("palette")?.querySelector("input");
  if (event.key === "ArrowDown") links[Math.min(at + 1, links.length - 1)]?.focus();
  else if (event.key === "ArrowUp" && at > 0) links[at - 1].focus();
  else if (event.key === "ArrowUp") field?.focus();
  else if (event.key === "Enter" && at < 0 && links[0] && links[0].closest(".hits")?.getAttribute("data-text") === field?.value.trim()) links[0].click();
  else return;
  event.preventDefault();
}

/** @param {Event} event @param {string} selector @returns {HTMLElement|null} */
function within(event, selector) {
  const found = event.target instanceof Element ? event.target.closest(selector) : null;
  return found instanceof HTMLElement ? found : null;
}

/** Goes through the rows, as the keys j and k do. @param {number} step */
function move(step) {
  const rows = all("main [data-row]").filter((r) => r.checkVisibility());
  const at = rows.findIndex((r) => r.dataset.current !== undefined);
  const next = rows[Math.min(Math.max(at + step, 0), rows.length - 1)];
  if (!next) return;
  for (const r of rows) delete r.dataset.current;
  next.dataset.current = "";
  next.scrollIntoView({ block: "nearest" });
  const link = next.matches("a, summary") ? next : next.querySelector("a") ?? next.closest("li")?.querySelector(".node-links a:last-child");
  if (link instanceof HTMLElement) link.focus({ preventScroll: true });
}

/** Shows how many rows are selected. */
function countPicked() {
  for (const label of all("[data-picked]")) label.textContent = `${all("#bulk tbody input:checked").length} selected`;
}

let prefix = "";
function onKey(/** @type {KeyboardEvent} */ event) {
  if ((event.ctrlKey || event.metaKey) && event.key === "k") {
    event.preventDefault();
    openPalette();
    return;
  }
  if (within(event, "#palette")) onPaletteKey(event);
  if (event.ctrlKey || event.metaKey || event.altKey || within(event, "input:not([type=checkbox]), textarea, select, dialog")) return;
  const chord = prefix + event.key;
  prefix = event.key === "g" ? "g" : "";
  const link = chord.length === 2 && chord[0] === "g" ? document.querySelector(`.nav a[data-key="${CSS.escape(chord[1])}"]`) : null;
  const act = document.querySelector(`main [data-current] [data-act="${CSS.escape(event.key)}"], main :is(.summary, .tabs) [data-act="${CSS.escape(event.key)}"]`);
  const find = document.querySelector("[data-find]"), node = within(event, "summary")?.parentElement;
  if (link instanceof HTMLElement) link.click();
  else if (event.key === "/") openPalette();
  else if (event.key === "?") dialog("help")?.showModal();
  else if (find instanceof HTMLElement && event.key === "f") find.focus();
  else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (node instanceof HTMLDetailsElement && (event.key === "ArrowRight" || event.key === "ArrowLeft")) node.open = event.key === "ArrowRight";
  else if (act instanceof HTMLElement) act.click();
  else return;
  event.preventDefault();
}

// Nothing moves under the pointer: while it moves over a row, changes wait until it rests.
let moved = 0;
async function rest() {
  const begin = Date.now();
  while (Date.now() - moved < 400 && Date.now() - begin < 2000 && document.querySelector("main .row:hover, main tr:hover")) {
    await new Promise((done) => setTimeout(done, 100));
  }
}

/**
 * A log. Its box begins at the bottom (column-reverse), so that it stays at the end while the user is
 * there, and does not move when lines are added elsewhere.
 */
const log = {
  find(/** @type {string} */ text) {
    const wanted = text.toLowerCase();
    for (const line of all("#log-lines > li")) line.hidden = wanted !== "" && !line.querySelector(".text")?.textContent?.toLowerCase().includes(wanted);
  },
  start() {
    const box = all("[data-log]")[0], lines = box?.firstElementChild, follow = all("[data-log-follow]")[0];
    if (!lines) return;
    for (const e of all(".log [hidden]")) e.hidden = false;
    const find = document.querySelector("[data-log-find]");
    find?.addEventListener("input", () => this.find(/** @type {HTMLInputElement} */ (find).value));
    document.querySelector("[data-log-wrap]")?.addEventListener("change", (event) => {
      box.classList.toggle("unwrapped", !(/** @type {HTMLInputElement} */ (event.target).checked));
    });
    follow?.addEventListener("click", () => { box.scrollTop = box.scrollTop > -40 ? -40 : 0; });
    box.addEventListener("scroll", () => { if (follow) follow.ariaPressed = String(box.scrollTop > -40); }, { passive: true });
    // At the end of lines that are not the last, later ones must not push up those that are shown.
    new MutationObserver((records) => {
      for (const { nextSibling: place, previousSibling: last } of records) if (place && last instanceof Element && box.scrollTop === 0) box.scrollTop = last.getBoundingClientRect().bottom - lines.getBoundingClientRect().bottom;
    }).observe(lines, { childList: true });
  },
};

function connection(/** @type {boolean} */ lost) {
  const line = document.getElementById("lost");
  const since = line?.querySelector("time");
  if (since && lost && line?.hidden) since.dateTime = new Date().toISOString();
  if (line) line.hidden = !lost;
  countOn();
  document.documentElement.toggleAttribute("data-live", !lost);
}

document.addEventListener("DOMContentLoaded", () => {
  log.start();
  for (const e of all("[data-theme-toggle], [data-pick-all], [data-help]")) e.hidden = false;
  for (const { parentElement: bar, offsetLeft } of all(":is(.nav, .tabs) [aria-current]")) if (bar) bar.scrollLeft = offsetLeft - 60;
  setInterval(countOn, 1000);
  document.addEventListener("keydown", onKey);
  document.addEventListener("pointermove", () => { moved = Date.now(); }, { passive: true });
  document.addEventListener("change", (event) => {
    const pick = within(event, "[data-pick-all]");
    if (pick instanceof HTMLInputElement) {
      for (const box of all("#bulk tbody input[type=checkbox]")) if (box instanceof HTMLInputElement) box.checked = pick.checked;
    }
    countPicked();
  });
  document.addEventListener("click", (event) => {
    if (within(event, "[data-theme-toggle]")) theme.toggle();
    if (within(event, "dialog [data-close]") || event.target instanceof HTMLDialogElement) {
      event.preventDefault();
      within(event, "dialog")?.closest("dialog")?.close();
    }
    const opener = within(event, "[data-opener]")?.dataset.opener; // of the object that closes
    if (opener) all(`#tree [hx-get="${CSS.escape(opener)}"]`)[0]?.focus();
    if (within(event, "[data-palette]")) openPalette();
    if (within(event, "[data-help]")) dialog("help")?.showModal();
    if (within(event, "#palette a")) dialog("palette")?.close();
    for (const menu of all("details.menu[open]")) if (!menu.contains(/** @type {Node} */ (event.target))) menu.removeAttribute("open");
  });
  let wanted = false; // a dialog, by the request before the swap
  document.addEventListener("htmx:before:request", (event) => { wanted ||= within(event, "[data-dialog]") !== null; });
  document.addEventListener("htmx:after:swap", () => {
    if (wanted && !dialog()?.open) dialog()?.showModal();
    wanted = false;
  });
  document.addEventListener("htmx:sse:before:message", (event) => {
    if (event instanceof CustomEvent) event.detail.waitUntil(rest());
  });
  document.addEventListener("htmx:sse:error", () => connection(true));
  // htmx retries a stream that broke, but not one whose first connection failed.
  for (const failed of ["htmx:error", "htmx:response:error"]) document.addEventListener(failed, (event) => {
    const stream = within(event, "[hx-trigger$=retry]"), status = /** @type {CustomEvent} */ (event).detail.ctx?.response?.status ?? 0;
    if (!stream || status >= 400 && status < 500) return;
    connection(true);
    setTimeout(() => stream.dispatchEvent(new Event("retry")), 2000);
  });
  document.addEventListener("htmx:sse:after:connection", () => connection(false));
});
