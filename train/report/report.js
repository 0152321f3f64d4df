"use strict";
const charts = JSON.parse(document.getElementById("data").textContent).charts;
const margin = {left: 56, right: 16, top: 12, bottom: 26};

function element(parent, name, attributes, text) {
  const inSvg = name === "svg" || parent.namespaceURI.endsWith("svg");
  const made = document.createElementNS(inSvg ? "http://www.w3.org/2000/svg" : parent.namespaceURI, name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  return parent.appendChild(made);
}

// 0.00030 -> "3e-4", 51200 -> "51.2k", 2.50 -> "2.5"
function number(v, digits) {
  const size = Math.abs(v);
  if (v === 0) return "0";
  if (size < 1e-2 || size >= 1e15)
    return v.toExponential(digits - 1).replace(/\.?0+e/, "e").replace("e+", "e");
  const power = size < 1e4 ? 0 : Math.min(4, Math.floor(Math.log10(size) / 3));
  const scaled = Number((v / 1000 ** power).toPrecision(Math.max(digits, 3)));
  return scaled + ["", "k", "M", "G", "T"][power];
}

const whole = v => Math.round(v).toLocaleString("en");

// Multiples of 1, 2 or 5 times a power of ten, about `count` of them from low to high.
function linearTicks(low, high, count, least) {
  const rough = Math.max((high - low) / count, least);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(f => f * power >= rough * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i <= high / step + 1e-9; ++i)
    ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}

function logTicks(low, high, count) {
  const decades = [], all = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); ++e)
    for (const f of [1, 2, 5]) {
      const v = Number(f + "e" + e);
      if (v < low * 0.999 || v > high * 1.001) continue;
      all.push(v);
      if (f === 1) decades.push(v);
    }
  if (all.length < 3) return linearTicks(low, high, count, 0).filter(v => v > 0);
  if (all.length <= count + 2) return all;
  const every = Math.ceil(decades.length / (count + 2));
  return decades.filter((_, i) => i % every === 0);
}

// The fewest digits that give the exact position of each tick; on a linear axis the same number of decimals.
function labels(ticks, isLog) {
  for (let digits = 1; digits < 12; ++digits) {
    const texts = ticks.map(v => number(v, digits));
    if (new Set(texts).size === ticks.length && texts.every((t, i) => near(t, ticks[i]))) return isLog ? texts : pad(texts);
  }
  return ticks.map(String);
}
function near(text, value) {
  const power = {k: 1e3, M: 1e6, G: 1e9, T: 1e12}[text.slice(-1)] || 1;
  return Math.abs(parseFloat(text) * power - value) <= 1e-9 * Math.abs(value);
}
function pad(texts) {
  if (texts.some(t => /[a-zA-Z]/.test(t))) return texts;
  const decimals = Math.max(...texts.map(t => (t.split(".")[1] || "").length));
  return texts.map(t => Number(t).toFixed(decimals));
}

// The point of a series whose step is nearest.
function nearest(points, step) {
  let low = 0, high = points.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < step) low = middle + 1; else high = middle;
  }
  return low > 0 && step - points[low - 1][0] < points[low][0] - step ? points[low - 1] : points[low];
}

const steps = charts.flatMap(c => [...c.marks, ...c.series.flatMap(s => s.points.map(p => p[0]))]);
let first = Infinity, last = -Infinity;
for (const s of steps) { first = Math.min(first, s); last = Math.max(last, s); }
if (!steps.length) { first = 0; last = 1; }
const only = first === last;

// The range of the values with a margin; a single value is centered.
function valueRange(chart, isLog) {
  let low = Infinity, high = -Infinity;
  for (const s of chart.series)
    for (const p of s.points) {
      if (isLog && p[1] <= 0) continue;
      low = Math.min(low, p[1]); high = Math.max(high, p[1]);
    }
  if (low > high) return isLog ? [1, 10] : [0, 1];
  if (isLog) return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.04, high * (high / low) ** 0.04];
  if (chart.from_zero && low >= 0) return [0, high > 0 ? high * 1.08 : 1];
  const air = high > low ? 0.05 * (high - low) : Math.abs(high) * 0.1 || 1;
  return [low - air, high + air];
}

function drawChart(chart) {
  const {svg} = chart, isLog = chart.isLog;
  const width = Math.max(svg.clientWidth, 160), height = chart.wide ? 320 : 220;
  const right = width - margin.right, bottom = height - margin.bottom;
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);

  const [low, high] = valueRange(chart, isLog), scale = isLog ? Math.log : v => v;
  const from = only ? first - 1 : first, to = only ? last + 1 : last;
  chart.x = s => margin.left + (s - from) / (to - from) * (right - margin.left);
  chart.stepAt = x => from + (x - margin.left) / (right - margin.left) * (to - from);
  chart.y = v => bottom - (scale(v) - scale(low)) / (scale(high) - scale(low)) * (bottom - margin.top);

  const ticks = (isLog ? logTicks : linearTicks)(low, high, chart.wide ? 6 : 4, 0);
  labels(ticks, isLog).forEach((text, i) => {
    const y = chart.y(ticks[i]);
    element(svg, "line", {class: "grid", x1: margin.left, x2: right, y1: y, y2: y});
    element(svg, "text", {x: margin.left - 7, y: y + 4, "text-anchor": "end"}, text);
  });
  element(svg, "line", {class: "axis", x1: margin.left, x2: right, y1: bottom, y2: bottom});
  element(svg, "text", {x: margin.left - 7, y: bottom + 18, "text-anchor": "end"}, "step");
  for (const s of only ? [first] : linearTicks(first, last, (right - margin.left) / 80, 1)) {
    const x = chart.x(s), text = whole(s), half = 3.6 * text.length;
    element(svg, "line", {class: "axis", x1: x, x2: x, y1: bottom, y2: bottom + 4});
    element(svg, "text", {x: Math.min(x, width - half), y: bottom + 18, "text-anchor": "middle"}, text);
  }
  for (const s of chart.marks)
    element(svg, "line", {class: "mark", x1: chart.x(s), x2: chart.x(s), y1: bottom - 9, y2: bottom});
  chart.series.forEach((s, i) => drawSeries(chart, s, `var(--series${i})`));
  chart.pointer = element(svg, "line", {class: "pointer", y1: margin.top, y2: bottom, visibility: "hidden"});
  chart.spots = chart.series.map((s, i) =>
    element(svg, "circle", {class: "spot", r: 4.5, fill: `var(--series${i})`, visibility: "hidden"}));
}

function drawSeries(chart, series, colour) {
  const points = series.points.filter(p => !chart.isLog || p[1] > 0);
  const at = points.map(p => [chart.x(p[0]).toFixed(1), chart.y(p[1]).toFixed(1)]);
  if (!series.dots)
    element(chart.svg, "polyline",
            {class: "curve", stroke: colour, points: at.map(p => p.join(",")).join(" ")});
  const room = (at.length ? at[at.length - 1][0] - at[0][0] : 0) / at.length;
  if (series.dots || at.length === 1 || room > 14)
    for (const [x, y] of at)
      element(chart.svg, "circle", {cx: x, cy: y, r: series.dots && room > 8 ? 3.5 : 2.5, fill: colour});
}

// Shows the values nearest to a step in every chart; null hides them.
let pointed = null;
function pointAt(step) {
  pointed = step;
  for (const chart of charts) {
    const texts = [];
    let shown = null;
    chart.series.forEach((s, i) => {
      const points = chart.isLog ? s.points.filter(p => p[1] > 0) : s.points;
      const p = step !== null && points.length ? nearest(points, step) : null;
      chart.spots[i].setAttribute("visibility", p ? "visible" : "hidden");
      if (!p) return;
      if (shown === null) shown = p[0];
      chart.spots[i].setAttribute("cx", chart.x(p[0]));
      chart.spots[i].setAttribute("cy", chart.y(p[1]));
      const name = chart.series.length > 1 ? s.name + " " : "";
      texts.push(name + number(p[1], 5) + (p[0] === shown ? "" : ` (step ${whole(p[0])})`));
    });
    chart.values.textContent = shown === null ? "" : `step ${whole(shown)}: ${texts.join(", ")}`;
    chart.pointer.setAttribute("visibility", shown === null ? "hidden" : "visible");
    if (shown === null) continue;
    chart.pointer.setAttribute("x1", chart.x(shown));
    chart.pointer.setAttribute("x2", chart.x(shown));
  }
}

for (const chart of charts) {
  const figure = element(document.getElementById("charts"), "figure", chart.wide ? {class: "wide"} : {});
  const caption = element(figure, "figcaption", {});
  element(caption, "b", {}, chart.title);
  if (chart.unit) element(caption, "span", {class: "unit"}, chart.unit);
  if (chart.series.length > 1)
    chart.series.forEach((s, i) =>
      element(caption, "span", {class: s.dots ? "key dots" : "key"}, s.name)
        .style.setProperty("--color", `var(--series${i})`));
  if (chart.marks.length)
    element(caption, "span", {class: "key marks"}, "skipped or not finite")
      .style.setProperty("--color", "var(--mark)");
  if (chart.log) {
    const button = element(caption, "button", {type: "button", "aria-pressed": "false"}, "log");
    button.addEventListener("click", () => {
      chart.isLog = !chart.isLog;
      button.setAttribute("aria-pressed", chart.isLog);
      drawChart(chart);
      pointAt(pointed);
    });
  }
  chart.isLog = false;
  chart.values = element(caption, "span", {class: "values"});
  chart.svg = element(figure, "svg", {role: "img", "aria-label": `${chart.title} over the steps`});
  chart.svg.addEventListener("pointermove", event =>
    pointAt(chart.stepAt(event.clientX - chart.svg.getBoundingClientRect().left)));
  chart.svg.addEventListener("pointerleave", () => pointAt(null));
}
function drawAll() {
  charts.forEach(drawChart);
  pointAt(pointed);
}
window.addEventListener("resize", drawAll);
drawAll();
