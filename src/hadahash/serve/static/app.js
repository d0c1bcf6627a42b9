// The page: an image in, the nearest ones out.

import * as api from "./api.js";
import { drawBits, labelMark } from "./draw.js";
import { CollectionMap } from "./map.js";

const $ = (id) => document.getElementById(id);
const make = (tag, className, text) => {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text; // as text: names may hold anything
  return element;
};

const state = { file: null, code: null, id: null, labels: new Set(), numbers: new Map(), facts: null, asking: null };
const map = new CollectionMap($("map"), $("tip"), $("map-live"), searchFrom);

// ---- asking -------------------------------------------------------------------------------------------------------

const parameters = () => ({
  k: Number($("k").value),
  radius: Number($("radius").value) === state.facts.bits ? null : Number($("radius").value),
  label: [...state.labels],
});

async function search() {
  if (!state.facts || (state.file === null && state.code === null && state.id === null)) return;
  state.asking?.abort();
  const asking = (state.asking = new AbortController());
  document.body.classList.add("busy");
  try {
    const answer = await ask(asking.signal);
    if (asking === state.asking) present(answer);
  } catch (error) {
    if (asking === state.asking && error.name !== "AbortError") complain(error);
  } finally {
    if (asking === state.asking) document.body.classList.remove("busy");
  }
}

function ask(signal) {
  const asked = parameters();
  if (state.id !== null) return api.search({ ...asked, id: state.id, k: asked.k + 1 }, signal); // it finds itself too
  if (state.code !== null) return api.search({ ...asked, code: state.code }, signal);
  return api.searchImage(state.file, asked, signal);
}

function searchFrom(id) {
  const hash = `#id=${encodeURIComponent(id)}`;
  if (location.hash === hash) readAddress();
  else location.hash = hash; // so that the browser's "back" works
}

function readAddress() {
  const found = location.hash.match(/^#id=(.+)$/);
  if (!found) return;
  const id = decodeURIComponent(found[1]);
  Object.assign(state, { file: null, code: null, id });
  api.show($("preview"), id, { large: true }).catch(() => {});
  showPreview("The chosen image");
  search();
}

function searchFile(file) {
  if (!file) return;
  if (location.hash) history.pushState(null, "", location.pathname);
  Object.assign(state, { file, code: null, id: null });
  const url = URL.createObjectURL(file);
  $("preview").onload = $("preview").onerror = () => {
    $("preview").classList.toggle("tiny", $("preview").naturalWidth < 96);
    URL.revokeObjectURL(url);
  };
  $("preview").src = url;
  showPreview("The image you gave");
  if (file.size > state.facts?.limits.max_bytes) {
    const most = (state.facts.limits.max_bytes / 1e6).toFixed(0);
    complain(new Error(`This image has ${(file.size / 1e6).toFixed(1)} MB; at most ${most} MB can be sent.`));
    return;
  }
  search();
}

// ---- showing ------------------------------------------------------------------------------------------------------

function showPreview(alt) {
  $("preview").alt = alt;
  $("preview").hidden = false;
  $("prompt").hidden = true;
  $("drop").classList.add("filled");
  $("query-about").hidden = true;
}

function present(answer) {
  const { query } = answer;
  const hits = answer.hits.filter((hit) => query.id === null || hit.id !== query.id).slice(0, parameters().k);
  if (state.file) Object.assign(state, { code: query.code, file: null });
  $("alert").hidden = true;
  $("results-title").textContent = "The nearest images";
  $("query-about").hidden = false;
  $("query-name").textContent = [query.name, ...query.labels].filter((part) => part !== null).join(" · ") || "Your image";
  drawBits($("query-bits"), query.code, query.bits);
  fillGrid(hits.map((hit) => card(hit, query)));
  $("status").textContent = summary(hits, answer);
  map.highlight(query.id, hits.map((hit) => hit.id));
}

function summary(hits, { exact, took_ms: took }) {
  if (!hits.length) return "Nothing lies so near. Allow a greater distance or more labels.";
  const [first, last] = [hits[0].distance, hits[hits.length - 1].distance];
  const range = first === last ? `distance ${first}` : `distance ${first} to ${last}`;
  const count = `${hits.length} image${hits.length === 1 ? "" : "s"}`;
  return [count, range, exact ? "proven exact" : "approximate", `${took.total.toFixed(1)} ms`].join(" · ");
}

function card(hit, query) {
  const button = make("button", "hit");
  button.type = "button";
  const photo = make("div", "photo");
  if (hit.has_image) {
    const img = make("img");
    img.alt = "";
    img.loading = "lazy";
    api.show(img, hit.id).catch(() => {});
    photo.append(img);
  } else photo.append(make("span", "none", "no picture"));
  const about = make("div", "about");
  const label = make("div", "label");
  if (hit.labels.length) label.append(labelMark(state.numbers.get(String(hit.labels[0])) ?? -1));
  label.append(make("span", "", hit.labels.join(", ") || hit.name));
  about.append(label);
  if (hit.labels.length) about.append(make("span", "name", hit.name));
  if (hit.distance !== undefined) {
    photo.append(make("span", "distance", hit.distance));
    const bits = make("canvas", "bits");
    bits.setAttribute("role", "img");
    bits._begin = () => drawBits(bits, hit.code, query.bits, query.code);
    if (hit.code) about.append(bits);
    button.setAttribute("aria-label", `${hit.labels.join(", ") || "image"}, ${hit.name}, distance ${hit.distance}. Search from it.`);
  }
  button.append(photo, about);
  button.addEventListener("click", () => searchFrom(hit.id));
  return button;
}

function fillGrid(cards) {
  $("grid").replaceChildren(...cards.map((each) => {
    const item = make("li");
    item.append(each);
    return item;
  }));
  for (const canvas of $("grid").querySelectorAll("canvas.bits")) canvas._begin();
}

function complain(error) {
  if (error.status === 401) return askForToken();
  $("alert").textContent = error.message;
  $("alert").hidden = false;
  $("status").textContent = "";
  $("results-title").textContent = "That did not work";
  $("query-about").hidden = true;
  fillGrid([]);
  map.highlight(null, []);
}

function askForToken() {
  if (!$("token-dialog").open) $("token-dialog").showModal();
}

// ---- the beginning ------------------------------------------------------------------------------------------------

async function begin() {
  try {
    const [facts, points] = await Promise.all([api.stats(), api.collection()]);
    state.facts = facts;
    $("facts").textContent = `${facts.items.toLocaleString("en")} images · ${facts.bits} bits each · ${facts.model.method} on ${facts.model.backbone}`;
    $("radius").max = $("radius").value = facts.bits;
    points.labels.forEach((label, number) => state.numbers.set(label, number));
    fillLabels(points.labels);
    map.fill(points);
    if (points.total > points.ids.length) {
      $("map-about").textContent = `${points.ids.length.toLocaleString("en")} of ${points.total.toLocaleString("en")} images; near points have like codes.`;
    }
    $("surprise").disabled = points.ids.length === 0;
    if (state.file) search(); // given before all was here
    else if (location.hash) readAddress();
    else suggest();
  } catch (error) {
    if (error.status === 503) setTimeout(begin, 1000);
    else complain(error);
  }
}

function fillLabels(labels) {
  $("labels-box").hidden = labels.length === 0;
  $("labels").replaceChildren(...labels.slice(0, 200).map((label, number) => {
    const chip = make("button", "chip");
    chip.type = "button";
    chip.setAttribute("aria-pressed", "false");
    chip.append(labelMark(number), make("span", "", label));
    chip.addEventListener("click", () => {
      const wanted = !state.labels.delete(label);
      if (wanted) state.labels.add(label);
      chip.setAttribute("aria-pressed", String(wanted));
      search();
    });
    return chip;
  }));
}

const randomPoint = () => map.points[Math.floor(Math.random() * map.points.length)];

// Before the first search: a few images to start from.
function suggest() {
  const chosen = new Set(Array.from({ length: Math.min(18, map.points.length) }, randomPoint));
  fillGrid([...chosen].map((point) => {
    const labels = point.label < 0 ? [] : [map.labels[point.label]];
    return card({ id: point.id, name: String(point.id).split("/").pop(), labels, has_image: true });
  }));
}

// ---- hands --------------------------------------------------------------------------------------------------------

let later;
for (const name of ["k", "radius"]) {
  $(name).addEventListener("input", () => {
    const any = name === "radius" && $(name).value === $(name).max;
    $(`${name}-value`).textContent = any ? "any" : $(name).value;
    clearTimeout(later);
    later = setTimeout(search, 120);
  });
}
$("file").addEventListener("change", () => {
  searchFile($("file").files[0]);
  $("file").value = ""; // the same file may be chosen again
});
$("surprise").addEventListener("click", () => searchFrom(randomPoint().id));
document.addEventListener("paste", (event) => searchFile(event.clipboardData?.files[0]));
for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    $("drop").classList.toggle("over", kind === "dragover");
    if (kind === "drop") searchFile(event.dataTransfer?.files[0]);
  });
}
window.addEventListener("hashchange", readAddress);
$("token-form").addEventListener("submit", () => {
  api.setToken($("token").value);
  $("alert").hidden = true;
  begin();
});

function redraw() {
  for (const canvas of document.querySelectorAll("canvas")) canvas._again?.();
  map.draw();
}
$("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  setTheme(dark ? "light" : "dark");
  redraw();
});
function setTheme(name) {
  document.documentElement.dataset.theme = name;
  localStorage.setItem("theme", name);
}
if (localStorage.getItem("theme")) setTheme(localStorage.getItem("theme"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth !== width) redraw();
  width = window.innerWidth;
});

begin();
