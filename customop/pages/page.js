"use strict";
// Search in tables and folds, order of tables, folds; for pages that `write.page` makes.
const search = document.getElementById("search"), found = document.getElementById("found");
const rows = [...document.querySelectorAll("tbody tr")].map(row => ({ row, words: row.textContent.toLowerCase() }));
const folds = [...document.querySelectorAll("details")];
const opened = new Map(folds.map(fold => [fold, fold.open]));
const inside = new Map(folds.map(fold => [fold, fold.textContent.toLowerCase()]));

function update() {
  const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const groups = new Map();
  let count = 0;
  for (const { row, words } of rows) {
    const has = wanted.every(word => words.includes(word));
    if (row.hidden === has) row.hidden = !has;
    count += has;
    const grid = row.closest(".grid");
    groups.set(grid, groups.get(grid) || has);
  }
  for (const [grid, has] of groups) grid.hidden = wanted.length > 0 && !has;
  for (const fold of folds) {
    const has = wanted.length && wanted.every(word => inside.get(fold).includes(word));
    fold.open = wanted.length ? Boolean(has) : opened.get(fold);
  }
  found.textContent = wanted.length ? `${count} of ${rows.length} rows` : "";
}

// A number, or a time in seconds; NaN for words.
const UNITS = { ns: 1e-9, us: 1e-6, ms: 1e-3, s: 1 };
function number(text) {
  const found = /^([+-]?\d+(?:\.\d+)?)(?: (ns|us|ms|s|x|%))?$/.exec(text);
  return found ? Number(found[1]) * (UNITS[found[2]] ?? 1) : NaN;
}

function order(head) {
  const table = head.closest("table"), index = [...head.parentNode.children].indexOf(head);
  const up = head.getAttribute("aria-sort") !== "ascending";
  for (const other of head.parentNode.children) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const text = row => row.children[index].textContent.trim();
  const body = table.tBodies[0];
  const words = new Intl.Collator("en", { numeric: true }).compare;
  const compare = (a, b) => number(a) - number(b) || words(a, b);
  const list = [...body.children].sort((a, b) => (up ? 1 : -1) * compare(text(a), text(b)));
  body.replaceChildren(...list);
}

for (const head of document.querySelectorAll("th")) {
  head.tabIndex = 0;
  head.setAttribute("aria-sort", "none");
  head.onclick = () => order(head);
  head.onkeydown = event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); order(head); } };
}
for (const fold of folds) fold.querySelector("summary").addEventListener("click", () => { if (!search.value) opened.set(fold, !fold.open); });
const setAll = state => { for (const fold of folds) { fold.open = state; opened.set(fold, state); } };
document.getElementById("fold").onclick = () => setAll(false);
document.getElementById("unfold").onclick = () => setAll(true);
if (!folds.length) for (const id of ["fold", "unfold"]) document.getElementById(id).hidden = true;
search.oninput = update;
addEventListener("keydown", event => {
  if (event.key === "/" && event.target !== search) { event.preventDefault(); search.focus(); search.select(); }
  if (event.key === "Escape" && search.value) { search.value = ""; update(); }
});
