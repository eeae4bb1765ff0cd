// The page that tries models: asks /predict while one types, and draws the answer.

const byId = (id) => document.getElementById(id);
const TYPING_MS = 120;
const MAX_NAMED = 60; // features that get a field of their own
const MAX_EXPLAINED = 20000; // characters; the server explains no longer rows
const state = { models: [], model: null, answer: null, asked: "", chosen: 0, request: null, timer: null };

async function call(path, body) {
  const headers = body ? { "Content-Type": "application/json" } : {};
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = `Bearer ${token}`;
  const options = { headers, method: body ? "POST" : "GET", signal: state.request?.signal };
  if (body) options.body = JSON.stringify(body);
  const response = await fetch(path, options);
  byId("sign-in").hidden = response.status !== 401;
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error ?? response.statusText);
  return answer;
}

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// The models

async function start() {
  try {
    state.models = await call("models");
    byId("error").textContent = "";
  } catch (error) {
    byId("error").textContent = error.message;
    return;
  }
  byId("model").replaceChildren(...state.models.map((model) => element("option", model.name)));
  byId("model-choice").hidden = state.models.length < 2;
  chooseModel();
}

function chooseModel() {
  const model = state.models[byId("model").selectedIndex] ?? state.models[0];
  state.model = model;
  const fields = fieldsOf(model);
  const named = fields !== null;
  byId("about").textContent =
    `${model.name}: ${model.labels.toLocaleString()} labels, ${model.features.toLocaleString()} features`;
  document.title = `${model.name} – ltls`;
  byId("text-input").hidden = model.input !== "text";
  byId("row-input").hidden = model.input === "text" || named;
  byId("named-input").hidden = model.input === "text" || !named;
  if (named) {
    const legend = element("legend", model.input === "table" ? "Columns" : "Features");
    byId("named-input").replaceChildren(legend, ...fields.map(labelled));
  }
  byId("row").placeholder = `${model.features} numbers, or pairs as in 0:1 17:0.5`;
  byId("k").max = Math.min(50, model.labels);
  byId("which").replaceChildren(
    ...Array.from({ length: model.trellises }, (_, i) => element("option", String(i))),
  );
  byId("trellis-choice").hidden = model.trellises < 2;
  clear();
  ask();
}

// The names and kinds of the fields of a row; null if features have no names, or too many.
function fieldsOf(model) {
  if (model.columns) {
    return Object.entries(model.columns).flatMap(([kind, names]) => names.map((name) => ({ kind, name })));
  }
  const names = model.input === "text" ? null : model.feature_names;
  return names && names.length <= MAX_NAMED ? names.map((name) => ({ kind: "number", name })) : null;
}

function labelled({ kind, name }) {
  const label = element("label", name);
  const field = element(kind === "text" ? "textarea" : "input");
  if (kind === "number") {
    field.type = "number";
    field.step = "any";
  }
  Object.assign(field.dataset, { kind, name });
  label.append(field);
  return label;
}

// The question

function question() {
  const model = state.model;
  if (model.input === "text") {
    const text = byId("text").value;
    return text.trim() ? { text } : null;
  }
  if (!byId("named-input").hidden) {
    const all = [...byId("named-input").querySelectorAll("input, textarea")];
    const filled = all.filter((field) => field.value !== "");
    const fields = model.input === "table" ? all : filled; // which needs every column
    return filled.length ? { rows: [Object.fromEntries(fields.map(cell))] } : null;
  }
  const words = byId("row").value.split(/[\s,;[\]]+/).filter(Boolean);
  if (!words.length) return null;
  if (!words[0].includes(":")) return { rows: [words.map(number)] };
  const pairs = words.map((word) => word.split(":"));
  return { rows: [{ indices: pairs.map((pair) => number(pair[0])), values: pairs.map((pair) => number(pair[1])) }] };
}

function cell({ value, dataset }) {
  return [dataset.name, dataset.kind !== "number" ? value : value === "" ? null : Number(value)];
}

// The text that the places of n-grams count in.
function askedText({ text, rows }) {
  const names = state.model.columns?.text ?? [];
  return text ?? names.map((name) => rows[0][name]).join("\n");
}

function number(word) {
  const value = Number(word);
  if (word === undefined || word === "" || !Number.isFinite(value)) throw new Error(`${word} is not a number`);
  return value;
}

function askSoon() {
  clearTimeout(state.timer);
  state.timer = setTimeout(ask, TYPING_MS);
}

async function ask() {
  clearTimeout(state.timer);
  state.request?.abort();
  const request = new AbortController();
  state.request = request;
  try {
    const asked = question();
    if (asked === null) {
      clear();
      return;
    }
    const model = state.model;
    const started = performance.now();
    const answer = await call("predict", {
      ...asked,
      model: model.name,
      k: Math.max(1, Math.min(Number(byId("k").value) || 5, model.labels)),
      proba: model.probabilities,
      explain: JSON.stringify(asked).length <= MAX_EXPLAINED,
      ...(state.noTrellis === model.name ? {} : { trellis: byId("which").selectedIndex }),
    });
    const milliseconds = performance.now() - started;
    state.answer = answer;
    state.asked = askedText(asked);
    state.chosen = 0;
    byId("error").textContent = "";
    show(milliseconds);
  } catch (error) {
    if (request.signal.aborted) return;
    if (/too large to draw/.test(error.message) && state.noTrellis !== state.model.name) {
      state.noTrellis = state.model.name;
      ask();
      return;
    }
    clear();
    byId("error").textContent = error.message;
  }
}

// The answer

function clear() {
  state.answer = null;
  byId("labels").replaceChildren();
  byId("latency").textContent = "";
  byId("status").textContent = "";
  byId("error").textContent = "";
  byId("hint").hidden = false;
  byId("why").hidden = true;
  byId("trellis").hidden = true;
}

function percent(value) {
  return `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`;
}

function show(milliseconds) {
  const { labels, probabilities, scores } = state.answer.predictions[0];
  const low = scores ? Math.min(...scores) : 0;
  const span = scores ? Math.max(...scores) - low || 1 : 1;
  const rows = labels.map((label, i) => {
    const button = element("button");
    button.type = "button";
    const bar = element("span", undefined, "bar");
    bar.style.width = `${100 * (probabilities ? probabilities[i] : 0.1 + (0.9 * (scores[i] - low)) / span)}%`;
    const value = probabilities ? percent(probabilities[i]) : scores[i].toPrecision(4);
    button.append(bar, element("span", String(label), "name"), element("span", value, "value"));
    button.addEventListener("click", () => choose(i));
    const item = element("li");
    item.append(button);
    return item;
  });
  byId("labels").replaceChildren(...rows);
  byId("hint").hidden = true;
  const version = new Date(Number(state.answer.version)).toLocaleString();
  byId("latency").textContent =
    `${state.answer.milliseconds.toFixed(1)} ms in the server, ${milliseconds.toFixed(1)} ms in all; ` +
    `model of ${version}`;
  const best = probabilities ? `, ${percent(probabilities[0])}` : "";
  byId("status").textContent = `Best label: ${labels[0]}${best}`;
  choose(0);
}

function choose(place) {
  state.chosen = place;
  [...byId("labels").querySelectorAll("button")].forEach((button, i) =>
    button.setAttribute("aria-pressed", String(i === place)),
  );
  explain();
  draw();
}

// The words that speak for a label

function explain() {
  const label = state.answer.predictions[0].labels[state.chosen];
  const found = state.answer.explanations?.[0]?.find((each) => String(each.label) === String(label));
  byId("why").hidden = !found;
  if (!found) return;
  byId("why-caption").textContent =
    `What speaks for and against ${label}; with the intercept ${short(found.intercept)} it adds up to ` +
    `${short(found.linear_score)}`;
  const largest = byWord(found.contributions).sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  byId("contributions").replaceChildren(
    ...largest.slice(0, 12).map((each) => {
      const row = element("tr");
      const name = String(each.feature); // the spaces of n-grams of characters are made visible
      const shown = name.startsWith("chars:") ? name.replaceAll(" ", "␣") : name;
      row.append(element("td", shown), element("td", short(each.value)));
      return row;
    }),
  );
  mark(found.contributions);
}

// As `Explanation.by_word` does: n-grams of characters are added to their word.
function byWord(contributions) {
  const words = [], places = new Map();
  let from = 0, read = 0; // in code points, as spans count, and in UTF-16
  for (const found of state.asked.matchAll(/[\p{L}\p{N}_]+/gu)) {
    from += Array.from(state.asked.slice(read, found.index)).length;
    const to = from + Array.from(found[0]).length;
    words.push({ from, to, name: found[0].toLowerCase() });
    places.set(String([from, to]), found[0].toLowerCase());
    [from, read] = [to, found.index + found[0].length];
  }
  const sums = new Map(), names = new Map(), others = [];
  const add = (word, value) => sums.set(word, (sums.get(word) ?? 0) + value);
  for (const each of contributions) {
    const spans = each.spans ?? [];
    const own = new Set(spans.map((span) => places.get(String(span))));
    const [word] = own;
    if (words.length && spans.length && each.feature.startsWith("chars:")) {
      for (const [start, end] of spans) {
        const middle = (start + end) / 2;
        const away = ({ from, to }) => Math.max(from - middle, middle - to);
        const nearest = words.reduce((best, one) => (away(one) < away(best) ? one : best));
        add(nearest.name, each.value / spans.length);
      }
    } else if (own.size === 1 && word && (names.get(word) ?? each.feature) === each.feature) {
      names.set(word, each.feature);
      add(word, each.value);
    } else others.push(each);
  }
  const merged = [...sums].map(([word, value]) => ({
    feature: names.get(word) ?? `letters of ${word}`,
    value,
  }));
  return [...others, ...merged];
}

const short = (value) => (Math.abs(value) < 0.0005 ? "0" : Number(value.toPrecision(3)).toString());

// Every character gets its share of the contributions of the n-grams that it is part of.
function mark(contributions) {
  const characters = Array.from(state.asked); // spans count code points
  const weights = new Float64Array(characters.length);
  for (const { value, spans } of contributions) {
    const size = (spans ?? []).reduce((sum, [from, to]) => sum + to - from, 0);
    for (const [from, to] of spans ?? []) for (let i = from; i < to; i += 1) weights[i] += value / size;
  }
  const most = weights.reduce((top, weight) => Math.max(top, Math.abs(weight)), 1e-9);
  const parts = [];
  for (let first = 0, i = 1; i <= characters.length; i += 1) {
    if (i < characters.length && weights[i] === weights[first]) continue;
    const text = characters.slice(first, i).join("");
    const strength = weights[first] / most;
    if (Math.abs(strength) < 0.02) parts.push(document.createTextNode(text));
    else {
      const marked = element("mark", text, strength > 0 ? "for" : "against");
      const color = strength > 0 ? "--for" : "--against";
      marked.style.backgroundColor = `rgb(var(${color}) / ${(0.45 * Math.abs(strength)).toFixed(3)})`;
      parts.push(marked);
    }
    first = i;
  }
  byId("marked").replaceChildren(...parts);
  byId("marked").hidden = !characters.length;
}

// The trellis

const SVG = "http://www.w3.org/2000/svg";
const COLUMN = 120;

function svg(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function draw() {
  const trellis = state.answer.trellis;
  byId("trellis").hidden = !trellis;
  if (!trellis) return;
  const { width, slices, auxiliary, edges, paths } = trellis;
  const row = Math.max(10, Math.min(44, 260 / width));
  const height = row * Math.max(width - 1, 1);
  const sink = 1 + slices * width + auxiliary;
  const top = -Math.max(40, row);
  const place = (vertex) => {
    if (vertex === 0) return [0, height / 2];
    if (vertex >= sink) return [COLUMN * (slices + 1.8), top];
    const inner = vertex - 1;
    if (inner < slices * width) return [COLUMN * (1 + Math.floor(inner / width)), row * (inner % width)];
    const below = inner - slices * width - (auxiliary - 1) / 2;
    return [COLUMN * (slices + 1), height / 2 + row * below];
  };
  const curve = (tail, head) => {
    const [x, y] = place(tail);
    const [X, Y] = place(head);
    if (head < sink) return { d: `M${x},${y}L${X},${Y}`, at: [x + 0.5 * (X - x), y + 0.5 * (Y - y)] };
    return { d: `M${x},${y}Q${x + 0.6 * (X - x)},${top} ${X},${Y}`, at: [x + 0.55 * (X - x), y * 0.2 + top * 0.8] };
  };
  const chosen = Math.min(state.chosen, paths.length - 1);
  const parts = edges.map(([tail, head]) => svg("path", { class: "edge", d: curve(tail, head).d }));
  const texts = [];
  paths
    .map((path, i) => ({ ...path, i }))
    .sort((a, b) => (a.i === chosen) - (b.i === chosen)) // the chosen one on top
    .forEach(({ vertices, scores, i }) => {
      for (let at = 1; at < vertices.length; at += 1) {
        const line = curve(vertices[at - 1], vertices[at]);
        parts.push(svg("path", { class: i === chosen ? "path chosen" : "path", d: line.d }));
        if (i !== chosen) continue;
        const text = svg("text", { x: line.at[0], y: line.at[1] + 4 });
        text.textContent = short(scores[at - 1]);
        texts.push(text);
      }
    });
  const used = new Set(paths[chosen]?.vertices ?? []);
  const radius = Math.max(2.5, Math.min(7, row / 3));
  for (let vertex = 0; vertex <= sink; vertex += 1) {
    const [cx, cy] = place(vertex);
    parts.push(svg("circle", { cx, cy, r: radius, class: used.has(vertex) ? "chosen" : "" }));
  }
  const title = svg("title", { id: "drawing-title" });
  const label = state.answer.predictions[0].labels[chosen];
  title.textContent =
    `Path of ${label}${trellis.clusters ? " and labels like it" : ""} through trellis ${trellis.trellis}: vertices ${paths[chosen]?.vertices.join(", ")}; ` +
    `edge scores ${paths[chosen]?.scores.map(short).join(", ")}`;
  const box = [-30, top - 20, COLUMN * (slices + 1.8) + 60, height - top + 40];
  byId("drawing").setAttribute("viewBox", box.join(" "));
  byId("drawing").replaceChildren(title, ...parts, ...texts);
}

byId("ask").addEventListener("input", askSoon);
byId("ask").addEventListener("submit", (event) => event.preventDefault());
byId("model").addEventListener("change", chooseModel);
byId("which").addEventListener("change", ask);
byId("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", byId("token").value);
  start();
});
start();
