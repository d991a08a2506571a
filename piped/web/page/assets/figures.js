// @ts-check
// Draws the figures of delivery from the table below them. Without this script the table says it
// all; a click on a point opens the deployments of its row.
"use strict";

/** @typedef {{at: number, label: string, path: string, values: Record<string, number|null>, words: Record<string, string>}} Bucket */

/** The rows of the table, the oldest first. @returns {Bucket[]} */
function buckets() {
  return [...document.querySelectorAll("[data-figures] tr[data-at]")].map((row) => {
    const link = row.querySelector("a");
    /** @type {Bucket} */
    const b = { at: Number(row.getAttribute("data-at")), label: link?.textContent ?? "", path: link?.getAttribute("href") ?? "", values: {}, words: {} };
    for (const cell of row.querySelectorAll("[data-figure]")) {
      const name = cell.getAttribute("data-figure") ?? "", value = cell.getAttribute("data-value");
      b.values[name] = value ? Number(value) : null;
      b.words[name] = cell.textContent ?? "";
    }
    return b;
  }).reverse();
}

function axisWord(/** @type {string} */ name, /** @type {number} */ value) {
  if (name === "failures") return `${Math.round(value * 100)} %`;
  if (name === "frequency") return String(value);
  return value === 0 ? "0" : duration(value);
}

/** Distances of labels on an axis of times, in milliseconds. */
const steps = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2419200, 9676800].map((s) => s * 1000);
const inTime = (/** @type {string} */ name) => name === "lead" || name === "restore";

/** @param {HTMLElement} figure @param {Bucket[]} list */
function draw(figure, list) {
  const name = figure.dataset.plot ?? "";
  const canvas = figure.querySelector(".plot-canvas"), about = figure.querySelector(".plot-about");
  if (!(canvas instanceof HTMLElement) || !about || list.length === 0) return;
  canvas.replaceChildren();
  const token = (/** @type {string} */ t) => getComputedStyle(document.documentElement).getPropertyValue(t).trim();
  const rest = about.textContent, height = 132;
  const axis = { stroke: token("--muted"), font: `11px ${token("--sans")}`, ticks: { show: false } };
  // @ts-ignore: uPlot is a vendored script
  const { bars, linear } = uPlot.paths;
  const most = Math.max(...list.map((b) => b.values[name] ?? 0));
  const half = list.length > 1 ? (list[1].at - list[0].at) / 2 : 43200;
  const every = Math.ceil(list.length * 60 / Math.max(figure.clientWidth - 90, 60)); // labels that have room
  const options = {
    width: figure.clientWidth - 24, height, legend: { show: false }, padding: [8, 12, 0, 0],
    // @ts-ignore: times are of the server's zone, written as if they were UTC
    tzDate: (/** @type {number} */ s) => uPlot.tzDate(new Date(s * 1000), "Etc/UTC"),
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    scales: { x: { range: [list[0].at - half, list[list.length - 1].at + half] }, y: { range: [0, most * 1.1 || 1] } },
    axes: [
      { ...axis, grid: { show: false }, size: 22, splits: () => list.filter((_, i) => (list.length - 1 - i) % every === 0).map((b) => b.at), values: (/** @type {unknown} */ _, /** @type {number[]} */ at) => at.map((s) => new Date(s * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" })) },
      { ...axis, grid: { stroke: token("--line"), width: 1 }, size: 52, space: 30, ...(inTime(name) ? { incrs: steps } : {}), values: (/** @type {unknown} */ _, /** @type {number[]} */ ys) => ys.map((y) => axisWord(name, y)) },
    ],
    series: [{}, {
      stroke: token("--accent"), width: 1.75, fill: name === "frequency" ? token("--accent") : undefined, spanGaps: true,
      paths: name === "frequency" ? bars({ size: [0.7, 40] }) : linear(), points: { show: name !== "frequency", size: 5, fill: token("--surface") },
    }],
    hooks: {
      setCursor: [(/** @type {any} */ u) => {
        const b = list[u.cursor.idx];
        about.textContent = b ? `${b.label}: ${b.words[name]}` : rest;
      }],
    },
  };
  // @ts-ignore: uPlot is a vendored script
  const plot = new uPlot(options, [list.map((b) => b.at), list.map((b) => b.values[name])], canvas);
  plot.over.addEventListener("click", () => { if (list[plot.cursor.idx]?.path) location.assign(list[plot.cursor.idx].path); });
}

(() => {
  const list = buckets();
  const drawAll = () => { for (const f of all("figure[data-plot]")) draw(f, list); };
  drawAll();
  let width = innerWidth;
  addEventListener("resize", () => {
    if (width !== innerWidth) drawAll();
    width = innerWidth;
  });
  new MutationObserver(drawAll).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
})();
