"use strict";
// The list of compared runs: it sorts, filters, and shows or hides runs in every chart. report.js, which follows
// in the same script, draws the charts and knows what is shown.

// The rows of the list of runs; there is none if the page shows one run.
const rows = [...document.querySelectorAll(".list tbody tr")];
const texts = rows.map(row => [...row.querySelectorAll(".text")].map(cell => cell.textContent)
  .concat(row.dataset.config).join("\n").toLowerCase());
// Whether the texts or settings of a run contain all words of the filter.
const isFound = run => shown.filter.toLowerCase().split(/\s+/).every(word => texts[run].includes(word));
const isHidden = run => rows.length > 0 && (shown.hidden.includes(runs[run].name) || !isFound(run));

// Fades the curves of all other runs; null shows all.
function highlight(run) {
  for (const curve of document.querySelectorAll("#charts [data-run]"))
    curve.classList.toggle("faded", run !== null && Number(curve.dataset.run) !== run);
}

// Numbers, or else texts, in either order; what is missing is last in both.
const sortKey = cell => "value" in cell.dataset ? Number(cell.dataset.value)
  : cell.classList.contains("text") ? cell.textContent : NaN;
function compare(a, b, descends) {
  if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
  const order = typeof a === "string" ? a.localeCompare(b, "en", {numeric: true}) : a - b;
  return descends ? -order : order;
}

// Shows the rows that the filter finds, in the chosen order, and the state of all boxes.
function showList() {
  const {sort, filter} = shown, heads = [...document.querySelectorAll(".list thead th")];
  const column = heads.findIndex(head => head.textContent === sort.column);
  heads.forEach((head, i) =>
    head.setAttribute("aria-sort", i !== column ? "none" : sort.descends ? "descending" : "ascending"));
  const keys = new Map(rows.map((row, i) => [row, column < 0 ? i : sortKey(row.cells[column])]));
  rows[0].parentElement.append(...[...rows].sort((a, b) => compare(keys.get(a), keys.get(b), sort.descends)));
  rows.forEach((row, i) => {
    row.hidden = !isFound(i);
    row.querySelector("input").checked = !shown.hidden.includes(runs[i].name);
  });
  const found = rows.filter(row => !row.hidden), drawn = rows.filter((_, i) => !isHidden(i));
  const all = document.querySelector(".list thead input");
  all.checked = drawn.length > 0 && drawn.length === found.length;
  all.indeterminate = drawn.length > 0 && !all.checked;
  document.querySelector("#filter output").textContent =
    filter.trim() ? `${found.length} of ${rows.length} runs` : "";
}

function makeFilter() {
  const filter = document.getElementById("filter");
  const input = element(filter, "input", {type: "search", "aria-label": "filter the runs",
                                          placeholder: "filter: name, device, key=value \u2026"});
  element(filter, "output", {"aria-live": "polite"});
  input.value = shown.filter;
  input.addEventListener("input", () => {
    shown.filter = input.value;
    redraw();
  });
}

const redraw = () => (showList(), drawAll());

// A heading sorts by its column, once more in descending order, and then no longer.
function makeHeading(head) {
  const name = head.textContent;
  head.textContent = "";
  const button = element(head, "button", {type: "button"}, name);
  button.addEventListener("click", () => {
    const {column, descends} = shown.sort, again = column === name;
    shown.sort = again && descends ? {column: "", descends: false} : {column: name, descends: again};
    showList();
  });
}

function makeRow(row, run) {
  const name = runs[run].name, key = row.querySelector(".key"), label = element(row.cells[0], "label", {});
  const box = element(label, "input", {type: "checkbox"});
  label.append(key);
  box.addEventListener("change", () => {
    toggle(shown.hidden, name);
    redraw();
  });
  row.addEventListener("pointerenter", () => highlight(run));
  row.addEventListener("focusin", event => event.target.matches(":focus-visible") && highlight(run));
  for (const end of ["pointerleave", "focusout"]) row.addEventListener(end, () => highlight(null));
  const command = row.querySelector("td code");
  if (command) makeCommand(command);
}

// The style sheet shortens the command; a click shows all of it.
function makeCommand(command) {
  const button = element(command.parentElement, "button",
                         {type: "button", title: command.textContent, "aria-expanded": false});
  button.append(command);
  button.addEventListener("click", () =>
    button.setAttribute("aria-expanded", button.getAttribute("aria-expanded") === "false"));
}

// The list of runs becomes the legend of all charts.
function makeList() {
  if (!rows.length) return;
  makeFilter();
  const heads = document.querySelectorAll(".list thead th");
  heads.forEach(makeHeading);
  rows.forEach(makeRow);
  const all = element(heads[0], "input", {type: "checkbox", "aria-label": "show all runs"});
  heads[0].prepend(all);
  all.addEventListener("change", () => {
    const found = runs.filter((_, i) => isFound(i)).map(run => run.name);
    shown.hidden = shown.hidden.filter(name => !found.includes(name)).concat(all.checked ? [] : found);
    redraw();
  });
  showList();
}
