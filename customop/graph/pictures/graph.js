// The rows of the data are lists; see page.py for their order.
const rows = data.rows.map((r, i) => ({
  i, parent: r[0], level: r[1], kind: r[2], name: r[3], op: data.texts[r[4]], type: data.texts[r[5]],
  size: r[6], bytes: r[7], cost: r[8], flops: r[9], guess: r[10], place: data.texts[r[11]],
  depth: r[12], args: r[13], inputs: r[14], schema: data.texts[r[15]], users: [], parts: [] }));
for (const r of rows) {
  for (const j of r.inputs) rows[j].users.push(r.i);
  if (r.parent >= 0) rows[r.parent].parts.push(r);
  r.words = [r.name, r.op, r.type, r.place].join(" ").toLowerCase();
}
const roots = rows.filter(r => r.parent < 0), highest = rows.reduce((most, r) => Math.max(most, r.cost), 1);
const folded = new Set(); let shown = [], picked = -1;

const costText = r => r.cost ? (r.guess ? "~" : "") + numberText(r.cost) + (r.flops ? " flop" : " el") : "";
const flopsText = n => n ? numberText(n) + " flop" : "";
const baseOf = place => place.replace(/^.*[\\/]/, "");
const sum = (list, key) => list.reduce((total, r) => total + r[key], 0);

// ---- the tree: lines with children; a line is a node or the head of a group ----
const nodeLine = (r, regroup) => ({ key: "n" + r.i, row: r, parts: r.parts.length ? regroup(r.parts) : [] });
const groupLine = (key, title, list, regroup) => ({ key, title, rows: list, parts: list.map(r => nodeLine(r, regroup)) });
function inOrder(list) { return list.map(r => nodeLine(r, inOrder)); }
function byPlace(list) {
  const lines = []; let run = [];
  const close = () => {
    if (run.length > 1) lines.push(groupLine("p" + run[0].i, baseOf(run[0].place) || "no place", run, byPlace));
    else if (run.length) lines.push(nodeLine(run[0], byPlace));
    run = [];
  };
  for (const r of list) { if (run.length && run[0].place !== r.place) close(); run.push(r); }
  close(); return lines;
}
function byDepth(list) {
  const groups = new Map();
  for (const r of list) { if (!groups.has(r.depth)) groups.set(r.depth, []); groups.get(r.depth).push(r); }
  return [...groups.keys()].sort((a, b) => a - b).map(d => {
    const g = groups.get(d); return groupLine("d" + g[0].parent + "." + d, "depth " + d, g, byDepth); });
}
const sorted = key => () => [...rows].sort((a, b) => b[key] - a[key] || a.i - b.i).map(r => ({ key: "n" + r.i, row: r, parts: [] }));
const TREES = { order: inOrder, place: byPlace, depth: byDepth, bytes: sorted("bytes"), cost: sorted("cost") };
const trees = {}; const tree = () => { const m = at("mode").value; return trees[m] || (trees[m] = TREES[m](roots)); };

function update() {
  shown = []; let count = 0;
  const add = (line, level) => {
    const start = shown.length; shown.push({ line, level });
    let has = !!line.row && line.row.kind !== "graph" && matches(line.row.words);
    if (has) count++;
    if (!wanted.length) { if (!folded.has(line.key)) for (const p of line.parts) add(p, level + 1); return true; }
    for (const p of line.parts) has = add(p, level + 1) || has;
    if (!has) shown.length = start;
    return has;
  };
  for (const line of tree()) add(line, 0);
  at("found").textContent = wanted.length ? `${count} of ${counted(data.count, "node")}` : "";
  render();
}

// ---- rows ----
function rowElement(index) {
  const { line, level } = shown[index], r = line.row, e = make("div", "row"); e.setAttribute("role", "row");
  const first = make("span"); first.style.paddingLeft = level * 1.2 + "em";
  const fold = make("span", "fold", line.parts.length ? (folded.has(line.key) && !wanted.length ? "\u25b8" : "\u25be") : "");
  first.append(fold); e.append(first);
  if (r) {
    if (r.i === picked) { e.classList.add("picked"); e.setAttribute("aria-selected", "true"); }
    marked(first, r.name);
    if (r.op) { first.append(" "); const op = make("span", "op"); marked(op, r.op); first.append(op); }
    const type = make("span"); marked(type, r.type); const place = make("span", "soft"); marked(place, baseOf(r.place)); place.title = r.place;
    const cost = make("span", "number cost"), bar = make("i"); bar.style.width = 100 * r.cost / highest + "%"; cost.append(bar, make("span", "", costText(r)));
    e.append(type, make("span", "number soft", r.size), make("span", "number", r.bytes ? (r.guess ? "~" : "") + bytesText(r.bytes) : ""), cost, place);
    e.title = r.name + ": " + r.type;
  } else {
    first.append(make("span", "group", line.title), make("span", "soft", " " + counted(line.rows.length, "node")));
    first.style.gridColumn = "span 3"; e.classList.add("group-row");
    e.append(make("span", "number", bytesText(sum(line.rows, "bytes"))), make("span", "number", flopsText(sum(line.rows.filter(x => x.flops), "cost"))), make("span"));
  }
  e.onclick = event => { if (event.target === fold || !r) toggle(line); else pick(r.i); };
  return e;
}
const render = windowed(at("scroll"), at("space"), () => shown.length, rowElement);
function toggle(line) { if (!line.parts.length) return; folded.has(line.key) ? folded.delete(line.key) : folded.add(line.key); update(); }

// ---- one node in detail ----
function pick(i) { picked = i; detail(); render(); }
function detail() {
  const r = rows[picked], box = at("detail"); box.replaceChildren(); if (!r) return;
  box.append(make("h2", "", r.name)); const list = make("dl"); box.append(list);
  const add = facts(list), entry = (title, text) => { if (text) add(title, text); };
  const links = (title, ids) => {
    if (!ids.length) return;
    const buttons = ids.slice(0, 200).map(j => { const b = make("button", "", rows[j].name); b.onclick = () => reveal(j); return b; });
    add(title, ...buttons, ids.length > 200 ? ` and ${ids.length - 200} more` : "");
  };
  entry("kind", r.kind); entry("operator", r.schema || r.op); entry("type", r.type); entry("elements", r.size);
  entry("bytes", r.bytes ? `${r.guess ? "about " : ""}${r.bytes.toLocaleString("en")}` : "");
  entry("cost", r.cost ? `${r.guess ? "about " : ""}${r.cost.toLocaleString("en")} ${r.flops ? "operations on numbers" : "elements"}` : "");
  entry("place", r.place); entry("arguments", r.args); links("inputs", r.inputs); links("users", r.users);
}
function reveal(i) {
  wanted = []; at("search").value = ""; picked = i;
  const open = (lines, path) => {
    for (const line of lines) {
      if (line.row && line.row.i === i) { path.forEach(k => folded.delete(k)); return true; }
      if (open(line.parts, [...path, line.key])) return true;
    }
    return false;
  };
  open(tree(), []); update(); scrollTo(shown.findIndex(s => s.line.row && s.line.row.i === i)); detail();
}
function scrollTo(index) {
  const box = at("scroll"); if (index < 0) return;
  const top = index * HEIGHT;
  if (top < box.scrollTop || top > box.scrollTop + box.clientHeight - 2 * HEIGHT) box.scrollTop = Math.max(0, top - box.clientHeight / 2);
  render();
}
function step(by) {
  const now = shown.findIndex(s => s.line.row && s.line.row.i === picked);
  for (let k = now + by; k >= 0 && k < shown.length; k += by) if (shown[k].line.row) { pick(shown[k].line.row.i); scrollTo(k); return; }
}

// ---- what the user does ----
const again = () => { at("scroll").scrollTop = 0; update(); };
searching(again, () => { const s = shown.find(x => x.line.row && matches(x.line.row.words)); if (s) pick(s.line.row.i); });
at("mode").onchange = again;
at("fold").onclick = () => { const all = lines => { for (const l of lines) if (l.parts.length) { folded.add(l.key); all(l.parts); } }; all(tree()); again(); };
at("unfold").onclick = () => { folded.clear(); update(); };
at("scroll").onkeydown = event => {
  if (event.key === "ArrowDown") step(1);
  else if (event.key === "ArrowUp") step(-1);
  else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
    const s = shown.find(x => x.line.row && x.line.row.i === picked);
    if (s && folded.has(s.line.key) === (event.key === "ArrowRight")) toggle(s.line);
  } else return;
  event.preventDefault();
};

at("name").textContent = data.title;
at("total").textContent = [counted(data.count, "node"), `${numberText(data.flops)} flop`, `${bytesText(data.bytes)} of results`,
  data.constants ? `${bytesText(data.constants)} of constants` : "", data.note].filter(Boolean).join(" \u00b7 ");
update();
