"use strict";
const {runs, charts} = JSON.parse(document.getElementById("data").textContent);
const margin = {left: 70, right: 16, top: 12, bottom: 44};
// What the page shows, kept when it is reloaded.
const shown = {axis: "steps", zoom: null, smoothing: 0, log: [], whole: [], hidden: [], filter: "",
               sort: {column: "", descends: false}, open: {}, scroll: 0, ...(history.state || {})};

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

// Multiples of 1, 2 or 5 times a power of ten, about `count` of them from low to high, and at least three unless
// they would be closer than `least`.
function linearTicks(low, high, count, least) {
  const rough = Math.max((high - low) / count, least);
  const power = 10 ** Math.floor(Math.log10(rough));
  const steps = [10, 5, 2, 1, 0.5, 0.2].map(f => f * power).filter(step => step >= least * 0.999);
  const from = steps.findLastIndex(step => step >= rough * 0.999);
  for (const step of steps.slice(Math.max(from, 0))) {
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i <= high / step + 1e-9; ++i)
      ticks.push(Number((i * step).toPrecision(12)));
    if (ticks.length > 2 || step === steps.at(-1)) return ticks;
  }
  return [];
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
  const largest = Math.max(...ticks.map(Math.abs));
  if (!isLog && largest >= 1e-2 && largest < 1e4)
    for (let decimals = 0; decimals < 6; ++decimals) {
      const texts = ticks.map(t => t.toFixed(decimals));
      if (texts.every((t, i) => near(t, ticks[i]))) return texts;
    }
  for (let digits = 1; digits < 12; ++digits) {
    const texts = ticks.map(v => number(v, digits));
    if (new Set(texts).size === ticks.length && texts.every((t, i) => near(t, ticks[i]))) return texts;
  }
  return ticks.map(String);
}
function near(text, value) {
  const power = {k: 1e3, M: 1e6, G: 1e9, T: 1e12}[text.slice(-1)] || 1;
  return Math.abs(parseFloat(text) * power - value) <= 1e-9 * Math.abs(value);
}

// The point of a series whose x is nearest.
function nearest(points, x) {
  let low = 0, high = points.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle].x < x) low = middle + 1; else high = middle;
  }
  return low > 0 && x - points[low - 1].x < points[low].x - x ? points[low - 1] : points[low];
}

function duration(seconds) {
  if (seconds < 60) return Number(seconds.toPrecision(3)) + " s";
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, Math.floor(seconds) % 60];
  const two = n => String(n).padStart(2, "0");
  return h >= 100 ? `${Math.floor(h / 24)}d ${two(h % 24)}h` : h ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}
const timeUnits =
  [[86400, "time (days)"], [3600, "time (hours)"], [60, "time (minutes)"], [1, "time (seconds)"]];
const axes = {
  steps: {at: (run, step) => step, name: () => [1, "step"], tick: whole, value: x => "step " + whole(x), least: 1},
  tokens: {at: (run, step) => interpolated(run.tokens, step), name: () => [1, "trained tokens"],
           tick: v => number(v, 3), value: x => number(x, 4) + " tokens", least: 1},
  time: {at: (run, step) => interpolated(run.seconds, step),
         name: range => timeUnits.find(([size]) => range >= 3 * size) || timeUnits[3],
         tick: v => String(Number(v.toPrecision(6))), value: duration, least: 1e-3},
};

// The value at a step of a curve with fewer points, linear in between.
function interpolated(table, step) {
  let low = 0, high = table.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (table[middle][0] <= step) low = middle; else high = middle;
  }
  const [a, b] = [table[low], table[high]];
  if (step <= a[0]) return a[1];
  return b[0] > a[0] && step < b[0] ? a[1] + (b[1] - a[1]) * (step - a[0]) / (b[0] - a[0]) : b[1];
}

// The range of smoothing, in steps to both sides: up to a tenth of the longest curve; 0: none.
const mostSmoothing = 20;
const longest = Math.max(0, ...charts.flatMap(chart => chart.series.map(s => s.points.at(-1)[0] - s.points[0][0])));
const reach = () => Math.ceil(longest / 10 * (shown.smoothing / mostSmoothing) ** 2);

// The mean of the values that far around each point, but no farther than the first point, from which most curves
// fall steeply; taken twice, so that the curve has no corners.
function smoothed(points, reach) {
  const means = values => {
    let low = 0, high = 0;
    return points.map(({step}) => {
      const far = Math.min(reach, step - points[0].step);
      while (points[low].step < step - far) ++low;
      while (high < points.length && points[high].step <= step + far) ++high;
      let sum = 0;
      for (let i = low; i < high; ++i) sum += values[i];
      return sum / (high - low);
    });
  };
  const values = means(means(points.map(p => p.value)));
  return points.map((p, i) => ({...p, value: values[i]}));
}

let axis, first, last, only;
// Places all points on the chosen axis.
function useAxis(name) {
  shown.axis = name;
  axis = axes[name];
  first = Infinity, last = -Infinity;
  const place = (run, step) => {
    const x = axis.at(runs[run], step);
    first = Math.min(first, x); last = Math.max(last, x);
    return x;
  };
  for (const chart of charts) {
    chart.markXs = chart.marks.filter(m => !isHidden(m[0])).map(([run, step]) => place(run, step));
    for (const s of chart.series) {
      s.hidden = isHidden(s.run);
      const placed = points => s.hidden ? [] : points.map(([step, value]) => ({step, value, x: place(s.run, step)}));
      s.placed = placed(s.points);
      s.smooth = reach() > 0 && chart.noisy && !s.dots ? smoothed(placed(s.means || s.points), reach()) : [];
    }
  }
  if (first > last) first = 0, last = 1;
  only = first === last;
  const [begin, end] = stretch(), isShown = x => x >= begin && x <= end;
  for (const chart of charts) {
    chart.markXs = chart.markXs.filter(isShown);
    for (const s of chart.series) s.visible = s.placed.filter(p => isShown(p.x));
  }
}

// Series of one run have different colours, and so have different runs.
const colour = (series, index) => `var(--series${(runs.length > 1 ? series.run : index) % 8})`;
// Of several runs, curves of different kinds are dashed differently, or else the ninth run and later ones.
function dash(chart, series) {
  if (runs.length === 1 || series.dots) return "";
  const lines = chart.kinds.filter(kind => !kind.dots);
  const kind = lines.length > 1 ? lines.findIndex(k => k.name === series.name) : series.run >= 8 ? 1 : 0;
  return ["", "dashed", "dotted"][kind % 3];
}
const drawn = (chart, points) => chart.isLog ? points.filter(p => p.value > 0) : points;

function drawChart(chart) {
  const {svg} = chart, isLog = chart.isLog;
  const width = Math.max(svg.clientWidth, 160), height = chart.wide ? 336 : 236;
  const right = width - margin.right, bottom = chart.bottom = height - margin.bottom;
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);

  const [low, high] = valueRange(chart, isLog), scale = isLog ? Math.log : v => v;
  const around = only ? Math.max(1, Math.abs(first) * 0.1) : 0, [begin, end] = stretch();
  const from = begin - around, to = end + around;
  chart.x = x => margin.left + (x - from) / (to - from) * (right - margin.left);
  chart.xAt = x => from + (x - margin.left) / (right - margin.left) * (to - from);
  chart.y = v => bottom - (scale(v) - scale(low)) / (scale(high) - scale(low)) * (bottom - margin.top);

  const ticks = (isLog ? logTicks : linearTicks)(low, high, chart.wide ? 6 : 4, 0);
  labels(ticks, isLog).forEach((text, i) => {
    const y = chart.y(ticks[i]);
    element(svg, "line", {class: "grid", x1: margin.left, x2: right, y1: y, y2: y});
    element(svg, "text", {x: margin.left - 7, y: y + 4, "text-anchor": "end"}, text);
  });
  element(svg, "line", {class: "axis", x1: margin.left, x2: right, y1: bottom, y2: bottom});
  const [unit, name] = axis.name(end - begin), middle = (margin.top + bottom) / 2;
  element(svg, "text", {x: (margin.left + right) / 2, y: height - 8, "text-anchor": "middle"}, name);
  element(svg, "text", {x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})`},
          chart.label);
  const count = (right - margin.left) / 80;
  for (const at of only ? [first / unit] : linearTicks(begin / unit, end / unit, count, axis.least / unit)) {
    const x = chart.x(at * unit), text = axis.tick(at), half = 3.6 * text.length;
    element(svg, "line", {class: "axis", x1: x, x2: x, y1: bottom, y2: bottom + 4});
    element(svg, "text", {x: Math.min(x, width - half), y: bottom + 18, "text-anchor": "middle"}, text);
  }
  const plot = element(svg, "clipPath", {id: chart.plot});
  element(plot, "rect", {x: margin.left, y: margin.top, width: right - margin.left, height: bottom - margin.top});
  for (const x of chart.markXs)
    element(svg, "line", {class: "mark", x1: chart.x(x), x2: chart.x(x), y1: bottom - 9, y2: bottom});
  chart.series.forEach((s, i) => {
    drawSeries(chart, s, colour(s, i), low, high);
    drawOutliers(chart, s, colour(s, i), low, high, margin.top, bottom);
  });
  chart.band = element(svg, "rect", {class: "band", y: margin.top, width: 0, height: bottom - margin.top});
  chart.pointer = element(svg, "line", {class: "pointer", y1: margin.top, y2: bottom, visibility: "hidden"});
  chart.spots = chart.series.map((s, i) =>
    element(svg, "circle", {class: "spot", r: 4.5, fill: colour(s, i), visibility: "hidden"}));
}

function drawSeries(chart, series, stroke, low, high) {
  const place = p => [chart.x(p.x).toFixed(1), chart.y(p.value).toFixed(1)];
  const places = points => drawn(chart, points).map(place);
  const curve = (points, kind) =>
    element(chart.svg, "polyline", {class: `curve ${kind} ${dash(chart, series)}`, stroke,
                                    "clip-path": `url(#${chart.plot})`,
                                    points: points.map(p => p.join(",")).join(" "), "data-run": series.run});
  const at = places(series.placed), isSmooth = series.smooth.length > 0;
  if (!series.dots) curve(at, isSmooth ? "raw" : "");
  if (isSmooth) {
    curve(places(series.smooth), "");
    return;
  }
  const room = (at.length ? at[at.length - 1][0] - at[0][0] : 0) / at.length;
  if (series.dots || at.length === 1 || room > 14)
    for (const [x, y] of series.visible.filter(p => p.value >= low && p.value <= high).map(place))
      element(chart.svg, "circle", {class: series.dots ? "dot" : "", cx: x, cy: y, "data-run": series.run,
                                    r: series.dots && (room > 8 || at.length === 1) ? 3.5 : 2.5, fill: stroke});
}

// Marks the points nearest to a position on the axis in every chart; null hides the marks. A box shows their
// values: in every chart, or, because it is large, of several runs only in the chart under the pointer, and
// there only the dots that are near it.
const dotReach = 16;
let pointed = null;
function pointAt(x, pointedChart) {
  pointed = x;
  for (const chart of charts) {
    chart.tip.replaceChildren();
    let at = null;
    const values = chart.series.map((s, i) => {
      const points = x === null ? [] : drawn(chart, s.visible);
      let p = points.length ? nearest(points, x) : null;
      if (p && s.dots && runs.length > 1 && Math.abs(chart.x(p.x) - chart.x(x)) > dotReach) p = null;
      chart.spots[i].setAttribute("visibility", p ? "visible" : "hidden");
      if (!p) return null;
      if (at === null) at = p;
      const value = s.smooth.length ? interpolated(s.smooth.map(q => [q.step, q.value]), p.step) : p.value;
      chart.spots[i].setAttribute("cx", chart.x(p.x));
      chart.spots[i].setAttribute("cy", Math.max(margin.top, Math.min(chart.y(value), chart.bottom)));
      return {s, i, p, value};
    }).filter(row => row);
    if (runs.length > 1) values.sort((a, b) => b.value - a.value);  // from top to bottom
    chart.pointer.setAttribute("visibility", at ? "visible" : "hidden");
    const tells = at && (runs.length === 1 || chart === pointedChart);
    chart.tip.style.visibility = tells ? "visible" : "hidden";
    if (!at) continue;
    const line = chart.x(runs.length > 1 ? x : at.x);
    chart.pointer.setAttribute("x1", line);
    chart.pointer.setAttribute("x2", line);
    const one = runs.length === 1, onSteps = axis === axes.steps;
    element(chart.tip, "div", {class: "at"},
            axis.value(one ? at.x : x) + (one && !onSteps ? `, step ${whole(at.step)}` : ""));
    for (const {s, i, p, value} of values) {
      const row = element(chart.tip, "div", {class: `key ${s.dots ? "dots" : dash(chart, s)}`});
      row.style.setProperty("--color", colour(s, i));
      element(row, "b", {}, number(value, 5));
      const names = [];
      if (!one) names.push(runs[s.run].name);
      if (chart.kinds.length > 1) names.push(s.name);
      if (s.dots || !one && (!onSteps || p.step !== Math.round(x))) names.push(`step ${whole(p.step)}`);
      if (s.smooth.length) names.push(`smoothed from ${number(p.value, 5)}`);
      if (names.length) element(row, "span", {}, names.join(", "));
    }
    const box = chart.svg.parentElement.getBoundingClientRect(), plot = chart.svg.getBoundingClientRect();
    const width = chart.tip.offsetWidth, beside = plot.left - box.left + line + 12;
    const left = beside + width <= box.width ? beside : beside - width - 24;
    chart.tip.style.left = Math.max(4, Math.min(left, box.width - width - 4)) + "px";
    chart.tip.style.top = plot.top - box.top + margin.top + "px";
  }
}

function makeChart(chart, index) {
  const figure = element(document.getElementById("charts"), "figure", chart.wide ? {class: "wide"} : {});
  const caption = element(figure, "figcaption", {});
  element(caption, "b", {}, chart.title);
  chart.label = chart.quantity + (chart.unit ? ` (${chart.unit})` : "");
  // Run 0, so that the keys are not dashed as the ninth run is.
  chart.kinds = [...new Map(chart.series.map((s, i) => [s.name, {...s, run: 0, color: colour(s, i)}])).values()];
  if (chart.kinds.length > 1)
    for (const kind of chart.kinds)
      element(caption, "span", {class: `key ${kind.dots ? "dots" : dash(chart, kind)}`}, kind.name)
        .style.setProperty("--color", runs.length > 1 ? "var(--faint)" : kind.color);
  if (chart.marks.length)
    element(caption, "span", {class: "key marks"}, "skipped or not finite")
      .style.setProperty("--color", "var(--mark)");
  chart.plot = `plot${index}`;
  const addButton = (name, list, flag) => {
    chart[flag] = list.includes(index);
    const button = element(caption, "button", {type: "button", "aria-pressed": chart[flag]}, name);
    button.addEventListener("click", () => {
      chart[flag] = toggle(list, index);
      button.setAttribute("aria-pressed", chart[flag]);
      drawChart(chart);
      pointAt(pointed);
    });
    return button;
  };
  if (chart.log) addButton("log", shown.log, "isLog");
  chart.wholeButton = addButton("outliers", shown.whole, "isWhole");
  chart.svg = element(figure, "svg", {role: "img", "aria-label": `${chart.title}: ${chart.label}`});
  chart.tip = element(figure, "div", {class: "tip"});
  for (const name of ["pointerdown", "pointermove"])
    chart.svg.addEventListener(name, event =>
      pointAt(chart.xAt(event.clientX - chart.svg.getBoundingClientRect().left), chart));
  zoomByDragging(chart);
  // A finger leaves when it is lifted; then the values stay until it touches something else.
  chart.svg.addEventListener("pointerleave", event => event.pointerType === "touch" || pointAt(null));
}

// Adds the item to the list or removes it; returns whether it is there now.
function toggle(list, item) {
  const at = list.indexOf(item);
  if (at < 0) list.push(item); else list.splice(at, 1);
  return at < 0;
}

let zoomOut, zoomHint;
function drawAll() {
  useAxis(shown.axis);
  zoomOut.hidden = stretch()[0] === first && stretch()[1] === last;
  zoomHint.hidden = !zoomOut.hidden || only;
  charts.forEach(drawChart);
  pointAt(null);
}

// A label ends with the steps that a point of a smoothed curve is the mean of.
function makeSlider(parent) {
  const label = element(parent, "label", {class: "slider"}, "smoothing");
  const slider = element(label, "input", {type: "range", min: 0, max: mostSmoothing});
  const text = element(label, "output", {});
  const tell = () => text.textContent = reach() ? `\u00b1${whole(reach())} steps` : "off";
  slider.value = shown.smoothing;
  tell();
  slider.addEventListener("input", () => {
    shown.smoothing = Number(slider.value);
    tell();
    drawAll();
  });
}

function makeSwitches() {
  const switches = document.getElementById("switches");
  const group = element(switches, "div", {role: "group", "aria-label": "horizontal axis"});
  const buttons = Object.keys(axes).map(name => {
    const button = element(group, "button", {type: "button", "aria-pressed": name === shown.axis}, name);
    button.addEventListener("click", () => {
      shown.axis = name;
      shown.zoom = null;
      buttons.forEach(b => b.setAttribute("aria-pressed", b === button));
      drawAll();
    });
    return button;
  });
  if (longest > 2) makeSlider(switches);
  zoomOut = element(switches, "button", {type: "button"}, "zoom out");
  zoomOut.addEventListener("click", () => zoomTo(null));
  zoomHint = element(switches, "span", {class: "note mouse"}, "drag over a chart to zoom");
}

function clock(seconds) {
  const at = new Date(seconds * 1000), two = n => String(n).padStart(2, "0");
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

const keep = () => history.replaceState(shown, "");

function reload() {
  shown.scroll = window.scrollY;
  keep();
  location.reload();
}

// While the run is alive, reloads the page, though not under the pointer. A run that was killed no longer
// writes pages; then the page says so, and looks again only when the reader comes back to it.
function followRun(state) {
  const written = Number(state.dataset.written), refresh = Number(state.dataset.refresh);
  const note = state.querySelector("span"), at = clock(written);
  note.textContent = `, ${refresh ? "updated" : "ended"} ${at}`;
  if (!refresh) return;
  if (Date.now() / 1000 - written > 60 + 3 * refresh) {
    state.className = "silent";
    note.textContent = `, no update since ${at}: the run may have been killed`;
    window.addEventListener("focus", reload);
    return;
  }
  const look = () => pointed !== null || document.hidden ? setTimeout(look, 500) : reload();
  setTimeout(look, 1000 * refresh);
}

for (const key of document.querySelectorAll("table [data-run]")) {
  key.style.setProperty("--color", `var(--series${key.dataset.run % 8})`);
  key.classList.toggle("dashed", key.dataset.run >= 8);
}
if (charts.some(chart => chart.series.length)) {
  makeList();
  makeSwitches();
  charts.forEach(makeChart);
  drawAll();
  document.addEventListener("pointerdown", event => event.target.closest("#charts svg") || pointAt(null));
  window.addEventListener("resize", drawAll);
}
for (const d of document.querySelectorAll("details")) {
  const summary = d.querySelector("summary"), name = summary.textContent;
  if (name in shown.open) d.open = shown.open[name];
  summary.addEventListener("click", () => shown.open[name] = !d.open);  // what the click makes it
}
if (shown.scroll) window.scrollTo(0, shown.scroll);
shown.scroll = 0;
// A reload by the reader keeps what the page shows, too. Browsers limit how often that may be stored.
let keeps;
for (const change of ["click", "input"])
  document.addEventListener(change, () => {
    clearTimeout(keeps);
    keeps = setTimeout(keep, 200);
  });
const state = document.getElementById("state");
if (state) followRun(state);
