/* Finds sections of the site by their words. `sections.js` has the text, so that the search works
   without a server, too. */
"use strict";

(() => {
  const STOP = new Set(("a an and any are as at be but by can do does for from get has have how i if in"
    + " into is it its me more my no not of on or per so supported than that the them then there this to use was we what"
    + " when where which while who why will with without you your").split(" "));
  // What readers type -> the words of these pages.
  const MEANS = {
    jit: ["compile"], slow: ["time", "fast"], speed: ["time", "fast"], quick: ["fast"],
    fast: ["time"], derivative: ["grad"], differentiate: ["grad"], gradient: ["grad"],
    grad: ["gradient"], jacobian: ["jacrev", "jacfwd"], batch: ["vmap"], batching: ["vmap"],
    vectorize: ["vmap"], loop: ["scan", "fori_loop"], cuda: ["gpu", "cupy"], gpu: ["cupy"],
    tensor: ["array"], pytree: ["tree"], mutate: ["write", "mutates_args"], inplace: ["place"],
    keyword: ["argnums", "name"], argument: ["argnums"], install: ["pip"], shape: ["size"],
    trace: ["make_fx", "graph"], export: ["save", "file"], serialize: ["save", "file"],
    nan: ["check_nans"], debug: ["print", "profile"], random: ["randomness", "rng"],
    memory: ["checkpoint"], thread: ["threads"], first: ["capture"],
    auxiliary: ["has_aux"], assignment: ["write", "writing"], hessian: ["hvp"], pass: ["argument"],
  };
  const LISTS = new Set(["guide.html", "api.html", "gallery.html", "index.html"]);
  const SHOWN = 25, OF_A_PAGE = 3, AROUND = 110;

  /** The stem of a word: compile, compiles, compiled and compiling have the same one. */
  function stem(word) {
    if (word.length < 4 || word.includes("_")) return word;
    return word.replace(/ies$/, "y").replace(/(?<=[^s])s$/, "").replace(/(ing|ed|er)$/, "")
      .replace(/(.)\1$/, "$1").replace(/e$/, "");
  }

  /** The words of a text; a name such as custom_op is one, and its parts are others. */
  function words(text) {
    const found = [];
    for (const word of text.toLowerCase().match(/[a-z0-9_]+/g) || []) {
      found.push(stem(word));
      const parts = word.split("_").filter(part => part);
      if (parts.length > 1) found.push(...parts.map(stem));
    }
    return found;
  }

  function counts(text) {
    const found = new Map();
    for (const word of words(text)) found.set(word, (found.get(word) || 0) + 1);
    return found;
  }

  const documents = window.sections.map(([page, of, anchor, title, text]) => ({
    page, of, anchor, title: title || of, text,
    name: page.startsWith("api/") && anchor.includes(".") ? anchor : "",
    heads: counts(`${title} ${title} ${of}`), body: counts(text), length: text.length / 6,
  }));
  const average = documents.reduce((sum, d) => sum + d.length, 0) / documents.length;
  const frequency = new Map();
  for (const d of documents)
    for (const word of new Set([...d.heads.keys(), ...d.body.keys()]))
      frequency.set(word, (frequency.get(word) || 0) + 1);
  const rarity = word => Math.log(1 + documents.length / (1 + (frequency.get(word) || 0)));

  /** The words of a query: word -> its weight, and the word of the reader that it stands for. */
  function asked(query) {
    const found = new Map();
    const all = query.toLowerCase().replace(/\bpytorch\b/g, "torch").match(/[a-z0-9_]+/g) || [];
    const kept = all.filter(word => !STOP.has(word));
    const add = (word, weight, from) => {
      if (!found.has(word)) found.set(word, { weight, from });
    };
    for (const word of kept.length ? kept : all)
      for (const part of words(word)) add(part, 1, part);
    for (const word of kept) {
      const key = Object.keys(MEANS).find(each => stem(each) === stem(word));
      for (const other of (key && MEANS[key]) || []) add(stem(other), 0.4, stem(word));
    }
    // Words that no page has: what begins alike.
    for (const word of [...found.keys()])
      if (!frequency.has(word) && word.length > 2)
        for (const other of frequency.keys())
          if (other.startsWith(word)) add(other, 0.5, word);
    return found;
  }

  function score(d, terms, query) {
    let sum = 0;
    const met = new Map(); // word of the reader -> how well it is met
    for (const [word, { weight, from }] of terms) {
      const count = (d.body.get(word) || 0) + 4 * (d.heads.get(word) || 0);
      if (!count) continue;
      const full = count * 2.2 / (count + 1.2 * (0.3 + 0.7 * d.length / average));
      sum += weight * rarity(word) * full;
      met.set(from, Math.max(met.get(from) || 0, weight));
    }
    if (!sum) return 0;
    let part = 0, total = 0;
    for (const from of new Set([...terms.values()].map(term => term.from))) {
      part += (met.get(from) || 0) * rarity(from);
      total += rarity(from);
    }
    sum *= 0.15 + Math.pow(part / total, 2);
    const last = d.name.split(".").pop().toLowerCase();
    if (d.name && (query === last || query === `co.${last}` || query === d.name.toLowerCase()))
      sum *= 6;
    // The page that is about the words of the query.
    const title = words(d.title), isAsked = word => terms.get(word)?.weight === 1;
    if (!d.anchor) sum *= title.join() === words(query).join() ? 3
      : title.every(isAsked) ? 2.2 : title.some(isAsked) ? 1.6 : 1;
    // Pages that only list others.
    if (LISTS.has(d.page)) sum *= 0.4;
    if (d.name && d.name.split(".").length === 2) sum *= 1.3;
    if (d.page === "guide/questions.html") sum *= query.split(/\s+/).length > 2 ? 2.2 : 1.4;
    if (d.page === "guide/errors.html") sum *= /error|[:'"]/i.test(query) ? 2.5 : 1.1;
    else if (d.page.startsWith("gallery/")) sum *= 0.8;
    else if (!d.page.startsWith("api/")) sum *= 1.25;
    return sum;
  }

  /** The line that says what is wrong, of a message or of a whole traceback that was pasted. */
  function essence(query) {
    const found = query.match(/\w+(?:Error|Warning): (?:(?!\s{2}|\n).)+/g);
    return found ? found.at(-1) : query;
  }

  function search(pasted) {
    const query = essence(pasted);
    const terms = asked(query);
    const plain = query.trim().toLowerCase();
    const found = documents.map(d => ({ d, value: score(d, terms, plain) }))
      .filter(each => each.value > 0).sort((a, b) => b.value - a.value);
    const best = found.length ? found[0].value : 0, seen = new Map(), shown = [];
    for (const { d, value } of found) {
      const before = seen.get(d.page) || 0;
      if (before >= OF_A_PAGE || value < 0.12 * best) continue;
      seen.set(d.page, before + 1);
      shown.push(d);
      if (shown.length === SHOWN) break;
    }
    return { shown, terms };
  }

  /** The part of a text with the most words of the query, as nodes with marks. */
  function excerpt(text, terms) {
    const hits = [];
    for (const match of text.matchAll(/[A-Za-z0-9_]+/g)) {
      const parts = words(match[0]);
      const weight = Math.max(0, ...parts.map(part => (terms.get(part)?.weight || 0) * rarity(part)));
      if (weight) hits.push({ at: match.index, size: match[0].length, weight, word: parts[0] });
    }
    let start = 0, most = -1;
    for (const hit of hits) {
      const near = hits.filter(h => h.at >= hit.at && h.at < hit.at + 2 * AROUND);
      const value = [...new Map(near.map(h => [h.word, h.weight])).values()].reduce((a, b) => a + b, 0);
      if (value > most) [most, start] = [value, hit.at];
    }
    start = Math.max(0, start - AROUND / 2);
    if (start) start = text.indexOf(" ", start) + 1;
    let end = Math.min(text.length, start + 2.2 * AROUND);
    if (end < text.length) end = Math.max(text.lastIndexOf(" ", end), start);
    const nodes = [start ? "... " : ""];
    let at = start;
    for (const hit of hits.filter(h => h.at >= start && h.at + h.size <= end && h.weight > 0.3)) {
      nodes.push(text.slice(at, hit.at));
      const mark = document.createElement("mark");
      mark.textContent = text.slice(hit.at, hit.at + hit.size);
      nodes.push(mark);
      at = hit.at + hit.size;
    }
    nodes.push(text.slice(at, end), end < text.length ? " ..." : "");
    return nodes;
  }

  function show(query) {
    const list = document.getElementById("search-results");
    const { shown, terms } = search(query);
    list.replaceChildren(...shown.map(d => {
      const item = document.createElement("li"), link = document.createElement("a");
      link.href = d.page + (d.anchor ? `#${d.anchor}` : "");
      link.textContent = d.title === d.of ? d.title : `${d.of} › ${d.title}`;
      const text = document.createElement("p");
      text.append(...excerpt(d.text, terms));
      item.append(link, text);
      return item;
    }));
    document.getElementById("search-count").textContent = shown.length ? "" : query
      ? `Nothing was found for "${query}". Fewer words find more.` : "";
  }

  const query = new URLSearchParams(window.location.search).get("q") || "";
  for (const box of document.querySelectorAll("input[name=q]")) box.value = query;
  show(query);
})();
