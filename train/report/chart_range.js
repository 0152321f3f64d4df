// The ranges that charts show: horizontally the stretch over which the reader has dragged, vertically the values in
// it, which a few outliers do not flatten. report.js, which follows in the same script, draws the charts.

// The shown stretch of the horizontal axis, all of it unless the reader has zoomed.
function stretch() {
  const {zoom} = shown;
  return zoom && zoom[0] < last && zoom[1] > first ? zoom : [first, last];
}

// The bounds beyond which sorted values are outliers; null if there are none. At each end they are at most the given
// share of the values, and only where they would leave the others less than a sixth of the height.
function outlierBounds(values, share, fromZero) {
  const fromFloor = fromZero && values[0] >= 0;
  const [least, low] = fromFloor ? [0, 0] : [values[0], values[Math.ceil(share * (values.length - 1))]];
  const high = values[Math.floor((1 - share) * (values.length - 1))], spread = high - low;
  return values.length >= 20 && spread > 0 && values.at(-1) - least > 6 * spread
    ? [low - spread, high + spread] : null;
}

// The range of the shown values with a margin; a single value is centered.
function valueRange(chart, isLog) {
  let values = chart.series.flatMap(s => s.visible.map(p => p.value));
  if (isLog) values = values.filter(v => v > 0);
  values.sort((a, b) => a - b);
  // Of four runs or more, one may have diverged.
  const share = new Set(chart.series.filter(s => s.visible.length).map(s => s.run)).size < 4 ? 0.025 : 0.15;
  const bounds = !isLog && chart.noisy ? outlierBounds(values, share, chart.from_zero) : null;
  chart.wholeButton.hidden = bounds === null;
  if (bounds && !chart.isWhole) values = values.filter(v => v >= bounds[0] && v <= bounds[1]);
  if (!values.length) return isLog ? [1, 10] : [0, 1];
  const low = values[0], high = values.at(-1);
  if (isLog) return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.04, high * (high / low) ** 0.04];
  if (chart.from_zero && low >= 0) return [0, high > 0 ? high * 1.08 : 1];
  const air = high > low ? 0.05 * (high - low) : Math.abs(high) * 0.1 || 1;
  return [low - air, high + air];
}

// Triangles at the edge of the plot where values lie beyond it.
function drawOutliers(chart, series, fill, low, high, top, bottom) {
  const drawnAt = new Set();
  for (const p of series.visible) {
    if (p.value >= low && p.value <= high || chart.isLog && p.value <= 0) continue;
    const x = chart.x(p.x), up = p.value > high, place = `${up} ${Math.round(x / 6)}`;
    if (drawnAt.has(place)) continue;
    drawnAt.add(place);
    const [tip, base] = up ? [top - 1, top + 8] : [bottom + 1, bottom - 8];
    element(chart.svg, "path", {class: "outlier", fill, "data-run": series.run,
                                d: `M${x - 5} ${base}L${x} ${tip}L${x + 5} ${base}Z`});
  }
}

function zoomTo(range) {
  shown.zoom = range;
  keep();
  drawAll();
}

// Dragging with a mouse or pen over a chart zooms all charts to that stretch; a double click shows all again. A
// finger scrolls the page and reads values.
function zoomByDragging(chart) {
  const leastDrag = 8;
  let begin = null;
  const placeOf = event => {
    const box = chart.svg.getBoundingClientRect();
    return Math.max(margin.left, Math.min(event.clientX - box.left, box.width - margin.right));
  };
  const listen = (name, react) => chart.svg.addEventListener(name, react);
  listen("pointerdown", event => {
    if (event.pointerType === "touch" || event.button !== 0 || only) return;
    begin = placeOf(event);
    chart.svg.setPointerCapture(event.pointerId);
  });
  listen("pointermove", event => {
    if (begin === null) return;
    const end = placeOf(event);
    chart.band.setAttribute("x", Math.min(begin, end));
    chart.band.setAttribute("width", Math.abs(end - begin));
  });
  listen("pointerup", event => {
    if (begin === null) return;
    const ends = [begin, placeOf(event)].sort((a, b) => a - b);
    begin = null;
    chart.band.setAttribute("width", 0);
    if (ends[1] - ends[0] >= leastDrag) zoomTo(ends.map(chart.xAt));
  });
  listen("pointercancel", () => {
    begin = null;
    chart.band.setAttribute("width", 0);
  });
  listen("dblclick", () => zoomTo(null));
}
