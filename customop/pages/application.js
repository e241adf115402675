"use strict";
// What applications share: their data, numbers as text, search, and long lists.
const data = JSON.parse(document.getElementById("data").textContent);
const at = id => document.getElementById(id);

// ---- numbers ----
const scaled = (n, step, units) => {
  let u = 0;
  while (n >= 0.9995 * step && u < units.length - 1) { n /= step; u++; }
  return (u ? n.toFixed(n < 9.995 ? 2 : n < 99.95 ? 1 : 0) : String(n)) + units[u];
};
const bytesText = n => scaled(n, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]);
const numberText = n => scaled(n, 1000, ["", " k", " M", " G", " T", " P"]);
const timeText = ns => scaled(ns, 1000, [" ns", " us", " ms", " s"]);
const counted = (n, noun) => n === 1 ? `1 ${noun}` : `${n} ${noun}s`;

// ---- elements ----
const make = (tag, name, text) => {
  const e = document.createElement(tag);
  if (name) e.className = name;
  if (text !== undefined) e.textContent = text;
  return e;
};
// A list of names and values, and functions that add to it.
function facts(list) {
  return (title, ...content) => { const dd = make("dd"); dd.append(...content); list.append(make("dt", "", title), dd); };
}

// ---- search: a row is found if it has all words ----
let wanted = [];
const matches = words => wanted.every(w => words.includes(w));
function marked(parent, text) {
  let rest = text, low = text.toLowerCase();
  if (low.length !== text.length) { parent.append(text); return; }
  while (rest) {
    let first = -1, length = 0;
    for (const w of wanted) { const j = low.indexOf(w); if (j >= 0 && (first < 0 || j < first)) { first = j; length = w.length; } }
    if (first < 0) break;
    parent.append(rest.slice(0, first), make("mark", "", rest.slice(first, first + length)));
    rest = rest.slice(first + length); low = low.slice(first + length);
  }
  parent.append(rest);
}
function searching(update, enter = () => {}) {
  const box = at("search");
  const read = () => { wanted = box.value.toLowerCase().split(/\s+/).filter(Boolean); update(); };
  box.oninput = read;
  box.onkeydown = event => {
    if (event.key === "Enter") enter();
    if (event.key === "Escape") { event.stopPropagation(); box.value = ""; read(); }
  };
  addEventListener("keydown", event => { if (event.key === "/" && event.target !== box) { event.preventDefault(); box.focus(); box.select(); } });
}

// ---- long lists: only the rows on the screen are in the document ----
const HEIGHT = 24;
function windowed(box, space, count, rowElement) {
  const render = () => {
    space.style.height = count() * HEIGHT + "px";
    const from = Math.max(0, Math.floor(box.scrollTop / HEIGHT) - 8);
    const to = Math.min(count(), from + Math.ceil((box.clientHeight || 600) / HEIGHT) + 16);
    const rows = [];
    for (let i = from; i < to; i++) { const row = rowElement(i); row.style.top = i * HEIGHT + "px"; rows.push(row); }
    space.replaceChildren(...rows);
  };
  box.addEventListener("scroll", render);
  addEventListener("resize", render);
  return render;
}
