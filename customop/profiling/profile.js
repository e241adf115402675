// The rows of the data are lists; see page.py for their order.
const text = i => data.texts[i];
const branches = data.branches.map((b, i) => ({
  i, above: b[0], thread: b[1], operator: text(b[2]), rule: text(b[3]), count: b[4], total: b[5], own: b[6],
  shortest: b[7], longest: b[8], parts: [], depth: 0 }));
for (const b of branches) {
  b.words = `${b.operator} ${b.rule}`.toLowerCase();
  if (b.above >= 0) { b.depth = branches[b.above].depth + 1; branches[b.above].parts.push(b); }
}
const rows = data.rows.map(r => ({
  operator: text(r[0]), rule: text(r[1]), count: r[2], errors: r[3], total: r[4], own: r[5], shortest: r[6], mean: r[7],
  longest: r[8], taken: r[9], given: r[10], kinds: text(r[11]), words: `${text(r[0])} ${text(r[1])} ${text(r[11])}`.toLowerCase() }));
const spent = rows.reduce((sum, r) => sum + r.own, 0);
const share = ns => spent ? `${(100 * ns / spent).toFixed(1)} %` : "";

// ---- boxes: each has a begin and an end on the axis, and a lane ----
const depths = data.threads.map((_, t) => branches.reduce((most, b) => b.thread === t ? Math.max(most, b.depth + 1) : most, 0));
const many = data.threads.length > 1;
// The lanes of a thread come after a line with its name, if there are several.
const starts = []; let lanes = 0;
for (const depth of depths) { if (many) lanes++; starts.push(lanes); lanes += depth; }

function flameBoxes() {
  const boxes = [];
  const place = (b, x) => {
    if (!b.total) return;
    boxes.push({ from: x, to: x + b.total, lane: starts[b.thread] + b.depth, branch: b });
    let next = x;
    for (const part of [...b.parts].sort((p, q) => q.total - p.total)) { place(part, next); next += part.total; }
  };
  const ends = data.threads.map(() => 0);
  for (const b of branches.filter(b => b.above < 0).sort((p, q) => q.total - p.total)) { place(b, ends[b.thread]); ends[b.thread] += b.total; }
  return boxes;
}
const timelineBoxes = () => data.events.filter(e => e[2] >= 0).map(e => {
  const branch = branches[e[2]];
  return { from: e[0], to: e[0] + Math.max(e[1], 1), lane: starts[branch.thread] + branch.depth, branch, arrays: text(e[3]), error: text(e[4]) }; });

function layout(boxes) {
  const found = Array.from({ length: lanes }, () => []);
  for (const box of boxes) found[box.lane].push(box);
  for (const lane of found) lane.sort((a, b) => a.from - b.from);
  return { lanes: found, end: boxes.reduce((end, box) => Math.max(end, box.to), 1) };
}
const VIEWS = { flame: flameBoxes, timeline: timelineBoxes }, layouts = {};
const view = { name: "flame", from: 0, to: 1, drawn: 0 };
const laidOut = () => layouts[view.name] || (layouts[view.name] = layout(VIEWS[view.name]()));
let picked = null, over = null;

// ---- drawing ----
const canvas = at("canvas"), pen = canvas.getContext("2d"), LANE = 22, AXIS = 24;
const hue = name => { let h = 7; for (const sign of name) h = (h * 31 + sign.codePointAt(0)) % 3600; return (h * 137) % 360; };
function inks() {
  const probe = make("span"); canvas.parentNode.append(probe);
  const read = name => { probe.style.color = `var(${name})`; return getComputedStyle(probe).color; };
  const found = { ink: read("--ink"), soft: read("--soft"), line: read("--line"), back: read("--back"), blue: read("--blue") };
  probe.remove();
  found.dark = Number(found.back.match(/\d+/)[0]) < 128;
  return found;
}
function fill(name, ink, faded) {
  const h = hue(name);
  if (faded) return ink.dark ? `hsl(${h} 8% 20%)` : `hsl(${h} 12% 93%)`;
  return ink.dark ? `hsl(${h} 38% 34%)` : `hsl(${h} 62% 80%)`;
}
const isFaded = box => (wanted.length && !matches(box.branch.words)) || (over && (box.branch.operator !== over.operator || box.branch.rule !== over.rule));
const first = (list, x) => { let low = 0, high = list.length; while (low < high) { const mid = (low + high) >> 1; if (list[mid].to <= x) low = mid + 1; else high = mid; } return low; };

function draw() {
  const width = canvas.parentNode.clientWidth, height = AXIS + Math.max(lanes, 6) * LANE + 4;
  const ratio = devicePixelRatio || 1;
  canvas.width = width * ratio; canvas.height = height * ratio; canvas.style.height = height + "px";
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  const ink = inks(), scale = width / (view.to - view.from);
  pen.font = "11.5px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"; pen.textBaseline = "middle";
  axis(width, height, scale, ink);
  view.drawn = 0;
  data.threads.forEach((name, t) => { if (many) { pen.fillStyle = ink.soft; pen.fillText(name, 8, AXIS + (starts[t] - 0.5) * LANE); } });
  for (const [lane, list] of laidOut().lanes.entries()) {
    const y = AXIS + lane * LANE;
    let i = first(list, view.from);
    while (i < list.length && list[i].from < view.to) {
      const box = list[i], x = Math.max(0, (box.from - view.from) * scale), end = Math.min(width, (box.to - view.from) * scale);
      rectangle(box, x, y, Math.max(end - x, 0.6), ink);
      // Boxes that end within this pixel would not be seen.
      i = end - x < 0.6 ? Math.max(i + 1, first(list, view.from + (Math.floor(x) + 1) / scale)) : i + 1;
    }
  }
}
function rectangle(box, x, y, width, ink) {
  view.drawn++;
  const faded = isFaded(box), gap = width > 3 ? 1 : 0;
  pen.fillStyle = fill(box.branch.operator, ink, faded); pen.beginPath();
  pen.roundRect(x, y + 1, width - gap, LANE - 2, width > 6 ? 3 : 0); pen.fill();
  if (box === picked) { pen.strokeStyle = ink.blue; pen.lineWidth = 2; pen.stroke(); }
  if (width < 26) return;
  const name = `${box.branch.operator} ${box.branch.rule}`, most = Math.floor((width - 12) / 6.95);
  if (most < 3) return;
  pen.fillStyle = faded ? ink.soft : ink.ink;
  pen.fillText(name.length > most ? name.slice(0, most - 1) + "\u2026" : name, x + 6, y + LANE / 2 + 0.5);
}
function axis(width, height, scale, ink) {
  const rough = 110 / scale, ten = 10 ** Math.floor(Math.log10(rough)), step = ten * [1, 2, 5, 10].find(k => k * ten >= rough);
  pen.strokeStyle = ink.line; pen.fillStyle = ink.soft; pen.lineWidth = 1;
  for (let k = Math.ceil(view.from / step); k * step <= view.to; k++) {
    const x = Math.round((k * step - view.from) * scale) + 0.5;
    pen.beginPath(); pen.moveTo(x, AXIS - 6); pen.lineTo(x, height); pen.stroke();
    const label = tickText(k * step, step);
    if (x + 4 + pen.measureText(label).width < width) pen.fillText(label, x + 4, AXIS / 2);
  }
}
function tickText(ns, step) {
  const [size, unit] = [[1e9, " s"], [1e6, " ms"], [1e3, " us"], [1, " ns"]].find(([s]) => step >= s || ns >= 100 * s) || [1, " ns"];
  return Number((ns / size).toPrecision(6)) + unit;
}

// ---- zoom ----
function show(from, to) {
  const end = laidOut().end, least = Math.min(end, 20);
  const span = Math.min(end, Math.max(to - from, least)), start = Math.min(Math.max(from, 0), end - span);
  view.from = start; view.to = start + span; draw();
}
const showAll = () => show(0, laidOut().end);
function zoom(factor, x) {
  const middle = x === undefined ? (view.from + view.to) / 2 : view.from + (view.to - view.from) * x;
  show(middle - (middle - view.from) * factor, middle + (view.to - middle) * factor);
}
const pan = part => { const by = part * (view.to - view.from); show(view.from + by, view.to + by); };
function choose(name) {
  view.name = name; picked = null; detail();
  for (const id of Object.keys(VIEWS)) at(id).setAttribute("aria-pressed", String(id === name));
  showAll();
}

// ---- what is under the pointer ----
function boxAt(event) {
  const area = canvas.getBoundingClientRect(), lane = laidOut().lanes[Math.floor((event.clientY - area.top - AXIS) / LANE)];
  if (!lane) return null;
  const scale = (view.to - view.from) / area.width, x = view.from + (event.clientX - area.left) * scale;
  const box = lane[first(lane, x)];
  return box && box.from <= x + 0.6 * scale ? box : null;
}
function tip(event, box) {
  const e = at("tip"); e.hidden = !box; if (!box) return;
  const b = box.branch, time = box.to - box.from;
  e.replaceChildren(make("b", "", b.operator), b.rule, make("br"),
    box.arrays === undefined ? `${timeText(b.total)} in ${counted(b.count, "call")}, ${share(b.total)}` : `${timeText(time)}; ${box.arrays}`);
  e.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - e.offsetWidth - 8)) + "px";
  e.style.top = Math.max(4, Math.min(event.clientY + 16, innerHeight - e.offsetHeight - 8)) + "px";
}
function detail() {
  const box = at("detail"); box.replaceChildren();
  if (!picked) return;
  const b = picked.branch, list = make("dl"); box.append(make("h2", "", b.operator), list);
  const add = facts(list);
  add("rule", b.rule);
  if (picked.arrays !== undefined) {
    add("this call", timeText(picked.to - picked.from)); add("began at", timeText(picked.from)); add("arrays", picked.arrays);
    if (picked.error) add("raised", picked.error);
  }
  add("calls along this path", String(b.count)); add("total", `${timeText(b.total)}, ${share(b.total)}`);
  add("self", `${timeText(b.own)}, ${share(b.own)}`); add("shortest, longest", `${timeText(b.shortest)}, ${timeText(b.longest)}`);
  const path = []; for (let p = b; p; p = branches[p.above]) path.unshift(p);
  add("path", path.map((p, i) => "  ".repeat(i) + p.operator + " " + p.rule).join("\n"));
  if (many) add("thread", data.threads[b.thread]);
}
function pick(box) { picked = box; over = null; detail(); renderRows(); if (box && view.name === "flame") show(box.from, box.to); else draw(); }

let grip = null;
canvas.onpointerdown = event => { grip = { x: event.clientX, from: view.from, to: view.to, moved: false }; canvas.setPointerCapture(event.pointerId); };
canvas.onpointermove = event => {
  if (!grip) { tip(event, boxAt(event)); return; }
  const by = (grip.x - event.clientX) / canvas.clientWidth * (grip.to - grip.from);
  if (Math.abs(grip.x - event.clientX) > 3) grip.moved = true;
  if (grip.moved) { at("tip").hidden = true; show(grip.from + by, grip.to + by); }
};
canvas.onpointerup = event => { if (grip && !grip.moved) pick(boxAt(event)); grip = null; };
canvas.onpointerleave = () => { at("tip").hidden = true; };
canvas.ondblclick = event => { const box = boxAt(event); if (box) show(box.from, box.to); };
canvas.addEventListener("wheel", event => {
  // A page that is taller than the window still scrolls with the wheel.
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / 1000);
  else zoom(Math.exp(event.deltaY / 400), (event.clientX - canvas.getBoundingClientRect().left) / canvas.clientWidth);
  event.preventDefault();
}, { passive: false });
const KEYS = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "0": showAll, Home: showAll, Escape: () => { pick(null); showAll(); },
  ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), ArrowUp: () => zoom(0.7), ArrowDown: () => zoom(1 / 0.7) };
canvas.onkeydown = event => { const act = KEYS[event.key]; if (act) { act(); event.preventDefault(); } };

// ---- the table ----
const COLUMNS = [["operator", "operator"], ["rule", "rule"], ["calls", "count"], ["total", "total"], ["self", "own"], ["mean", "mean"], ["longest", "longest"], ["bytes", "bytes"]];
let sortedBy = "own", up = false, listed = [];
for (const r of rows) r.bytes = r.taken + r.given;
const most = rows.reduce((largest, r) => Math.max(largest, r.own), 1);
function list() {
  listed = rows.filter(r => matches(r.words)).sort((a, b) => {
    const [p, q] = [a[sortedBy], b[sortedBy]], order = typeof p === "string" ? p.localeCompare(q) : p - q;
    return up ? order : -order; });
  at("heads").replaceChildren(...COLUMNS.map(([title, key], i) => {
    const e = make("span", i > 1 ? "number" : "", title); e.tabIndex = 0; e.setAttribute("role", "columnheader");
    e.setAttribute("aria-sort", key === sortedBy ? (up ? "ascending" : "descending") : "none");
    e.onclick = () => { up = key === sortedBy ? !up : i < 2; sortedBy = key; list(); };
    e.onkeydown = event => { if (event.key === "Enter") e.onclick(); };
    return e; }));
  renderRows();
}
function rowElement(index) {
  const r = listed[index], e = make("div", "row"); e.setAttribute("role", "row");
  if (over === r) e.classList.add("picked");
  const operator = make("span"), rule = make("span", "soft"); marked(operator, r.operator); marked(rule, r.rule);
  const self = make("span", "number share"), bar = make("i"); bar.style.width = 100 * r.own / most + "%"; self.append(bar, make("span", "", timeText(r.own)));
  const calls = make("span", "number", String(r.count)); if (r.errors) calls.title = counted(r.errors, "error");
  e.append(operator, rule, calls, make("span", "number", timeText(r.total)), self, make("span", "number", timeText(r.mean)),
    make("span", "number", timeText(r.longest)), make("span", "number soft", bytesText(r.bytes)));
  e.title = `${r.operator} ${r.rule}: ${share(r.own)} of the time; ${r.kinds}`;
  e.onclick = () => { over = over === r ? null : r; renderRows(); draw(); };
  return e;
}
const renderRows = windowed(at("scroll"), at("space"), () => listed.length, rowElement);

// ---- what the user does ----
searching(() => {
  const found = rows.filter(r => matches(r.words));
  at("found").textContent = wanted.length ? `${found.length} of ${counted(rows.length, "row")}, ${share(found.reduce((sum, r) => sum + r.own, 0))} of the time` : "";
  over = null; at("scroll").scrollTop = 0; list(); draw();
});
for (const name of Object.keys(VIEWS)) at(name).onclick = () => choose(name);
at("closer").onclick = () => zoom(0.5); at("farther").onclick = () => zoom(2); at("all").onclick = showAll;
at("total").textContent = [counted(rows.reduce((sum, r) => sum + r.count, 0), "call"), `${timeText(spent)} of ${timeText(data.wall)}`,
  data.hidden ? `${data.hidden} calls are not in the timeline` : ""].filter(Boolean).join(" \u00b7 ");
if (!rows.length) at("picture").replaceChildren(make("div", "empty", "no operator has run while the profile was open"));
else {
  choose("flame");
  // A frame of a notebook may have no width until its tab is shown.
  new ResizeObserver(draw).observe(at("picture"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}
list();
