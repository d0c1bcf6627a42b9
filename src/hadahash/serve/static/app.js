// The page: search by image.

import * as api from "./api.js";
import { drawBits, labelMark } from "./draw.js";
import { DuplicatesView } from "./duplicates.js";
import { CollectionMap } from "./map.js";
import { scaled } from "./scale.js";
import { installTheme } from "./theme.js";
import { description, dialWords, number, similarity, summary, weightAt } from "./words.js";

const MAX_CHIPS = 200;
const MAX_RESULTS = 100;
const MAX_UPLOADS = 20; // kept for the browser's "back"
const SUGGESTIONS = 18;

const $ = (id) => document.getElementById(id);
const create = (tag, className, text) => {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text; // never as HTML: names can contain anything
  return element;
};
const narrow = matchMedia("(max-width: 56rem)");

// The query is an item of the index (id) or an uploaded image (upload: {file, url, query}).
const state = { id: null, upload: null, labels: new Set(), numbers: new Map(), stats: null, rank: null, request: null };
const uploads = new Map();
const map = new CollectionMap($("map"), $("tip"), $("map-live"), searchFromItem);
const duplicates = new DuplicatesView({
  box: $("duplicates"), groups: $("groups"), more: $("more"), threshold: $("threshold"), value: $("threshold-value"), status: $("status"),
}, { create, card: (item, size) => card(item, undefined, undefined, size), onError: showError });

// ---- search -------------------------------------------------------------------------------------------------------

const parameters = () => ({
  k: Number($("k").value),
  radius: Number($("radius").value) === state.stats.bits ? null : Number($("radius").value),
  label: [...state.labels],
  ...(hasDial() ? { rank: "photo", weight: weightAt(Number($("dial").value), state.stats) } : {}),
});
const hasDial = () => state.stats?.ranks.includes("photo") ?? false;

async function search() {
  if (!state.stats || (state.id === null && state.upload === null)) return;
  state.request?.abort();
  const request = (state.request = new AbortController());
  document.body.classList.add("busy");
  try {
    const answer = await send(request.signal);
    if (request === state.request) showResults(answer);
  } catch (error) {
    if (request === state.request && error.name !== "AbortError") showError(error);
  } finally {
    if (request === state.request) document.body.classList.remove("busy");
  }
}

function send(signal) {
  const given = parameters();
  if (state.id !== null) {
    const k = Math.min(given.k + 1, state.stats.limits.max_k); // one more: the item finds itself
    return api.search({ ...given, id: state.id, k }, signal);
  }
  const { upload } = state;
  if (!upload.query) return sendImage(upload, given, signal);
  return api.search({ ...given, ...upload.query }, signal).catch((error) => {
    if (error.code !== "model_changed") throw error;
    upload.query = null; // the index was upgraded
    return sendImage(upload, given, signal);
  });
}

async function sendImage(upload, given, signal) {
  upload.scaled ??= scaled(upload.file);
  const image = await upload.scaled;
  const limit = state.stats.limits.max_bytes;
  if (image.size <= limit) return api.searchImage(image, given, signal);
  throw new Error(`This image is ${(image.size / 1e6).toFixed(1)} MB; the limit is ${(limit / 1e6).toFixed(0)} MB.`);
}

function searchFromItem(id) {
  const hash = `#id=${encodeURIComponent(id)}`;
  if (location.hash !== hash) history.pushState(null, "", hash);
  showAddress();
  if (narrow.matches) $("query").scrollIntoView();
}

function searchFromFile(file) {
  if (!file) return;
  const key = `${Date.now()}-${uploads.size}`;
  uploads.set(key, { file, url: URL.createObjectURL(file), query: null });
  if (uploads.size > MAX_UPLOADS) {
    const [oldest, { url }] = uploads.entries().next().value;
    URL.revokeObjectURL(url);
    uploads.delete(oldest);
  }
  history.pushState({ upload: key }, "", location.pathname);
  showAddress();
  if (narrow.matches) $("results").scrollIntoView();
}

// Restore the page from the address and the history entry. Before the statistics have arrived
// this shows the query only; start() calls it again.
function showAddress() {
  const id = idOf(location.hash);
  const upload = uploads.get(history.state?.upload);
  duplicates.hide();
  $("grid").hidden = false;
  $("dial-box").hidden = !hasDial();
  if (location.hash === "#duplicates") showDuplicates();
  else if (id !== null) showItem(id);
  else if (upload) showUpload(upload);
  else showStart();
}

function idOf(hash) {
  try {
    return hash.startsWith("#id=") ? decodeURIComponent(hash.slice(4)) : null;
  } catch {
    return null;
  }
}

// ---- the query ----------------------------------------------------------------------------------------------------

function showItem(id) {
  Object.assign(state, { id, upload: null });
  api.show($("preview"), id, { large: true }).catch(() => {});
  showPreview("The selected image");
  search();
}

function showUpload(upload) {
  Object.assign(state, { id: null, upload });
  $("preview").onload = () => $("preview").classList.toggle("tiny", $("preview").naturalWidth < 96);
  $("preview").src = upload.url;
  showPreview("The uploaded image");
  search();
}

function showPreview(alt) {
  $("preview").alt = alt;
  $("preview").hidden = false;
  $("prompt").hidden = true;
  $("drop").classList.add("filled");
  $("query-about").hidden = true;
}

function clearQuery(title, status) {
  state.request?.abort();
  Object.assign(state, { id: null, upload: null, request: null });
  document.body.classList.remove("busy");
  $("preview").hidden = true;
  $("prompt").hidden = false;
  $("drop").classList.remove("filled");
  $("query-about").hidden = $("alert").hidden = true;
  $("results-title").textContent = title;
  $("status").textContent = status;
  map.highlight(null, []);
}

function showDuplicates() {
  clearQuery("The same photo more than once", "");
  $("grid").hidden = $("dial-box").hidden = true;
  fillGrid([]);
  if (state.stats) duplicates.show(state.stats);
}

function showStart() {
  clearQuery("Find similar images", "Start with an image of your own, or with one of these.");
  const random = new Set(Array.from({ length: Math.min(SUGGESTIONS, map.points.length) }, randomPoint));
  fillGrid([...random].map((point) => {
    const labels = point.label < 0 ? [] : [map.labels[point.label]];
    return card({ id: point.id, name: String(point.id).split("/").pop(), labels, has_image: true });
  }));
}

const randomPoint = () => map.points[Math.floor(Math.random() * map.points.length)];

// ---- results ------------------------------------------------------------------------------------------------------

function showResults(answer) {
  const { query } = answer;
  const hits = answer.hits.filter((hit) => query.id === null || hit.id !== query.id).slice(0, parameters().k);
  if (state.upload) state.upload.query = { values: query.values };
  $("alert").hidden = true;
  $("results-title").textContent = "Most similar images";
  $("query-about").hidden = false;
  $("query-name").textContent = query.id === null ? "Your image" : [query.id, ...query.labels].join(" · ");
  drawBits($("query-bits"), query.code, query.bits);
  state.rank = answer.rank;
  fillGrid(hits.map((hit, at) => card(hit, query, at + 1)));
  $("status").textContent = summary(hits, answer, state.stats);
  $("status").title = `${answer.took_ms.total.toFixed(1)} ms`;
  map.highlight(query.id, hits.map((hit) => hit.id));
}

// The card of a result, or of an item without a query, then perhaps with the size of its file.
function card(hit, query, place, size) {
  const button = create("button", "hit");
  button.type = "button";
  button.title = String(hit.id);
  button.append(photo(hit, query, place), about(hit, query));
  const names = [...hit.labels, hit.name].join(", ");
  if (query) button.setAttribute("aria-label", `${names}, ${description(hit, state.rank, state.stats)}. Search from this image.`);
  if (size) {
    button.firstChild.append(create("span", "distance", size));
    button.setAttribute("aria-label", `${names}, ${size}. Search from this image.`);
  }
  button.addEventListener("click", () => searchFromItem(hit.id));
  return button;
}

function photo(hit, query, place) {
  const frame = create("div", "photo");
  const none = () => create("span", "none", "no image");
  if (hit.has_image) {
    const img = create("img");
    img.alt = "";
    img.loading = "lazy";
    img.addEventListener("error", () => img.replaceWith(none()));
    api.show(img, hit.id).catch(() => img.replaceWith(none()));
    frame.append(img);
  } else frame.append(none());
  if (query) {
    const { text, title } = similarity(hit, state.rank);
    const badge = create("span", "distance", text);
    badge.title = title;
    frame.append(create("span", "place", place), badge);
  }
  return frame;
}

function about(hit, query) {
  const element = create("div", "about");
  const label = create("div", "label");
  if (hit.labels.length) label.append(labelMark(state.numbers.get(String(hit.labels[0])) ?? -1));
  label.append(create("span", "", hit.labels.join(", ") || hit.name));
  element.append(label);
  if (hit.labels.length) element.append(create("span", "name", hit.name));
  const folder = String(hit.id).split("/").slice(0, -1).join("/");
  if (folder && folder !== String(hit.labels[0])) element.append(create("span", "folder", folder));
  if (query) {
    const bits = create("canvas", "bits");
    bits.setAttribute("role", "img");
    bits._draw = () => drawBits(bits, hit.code, query.bits, query.code);
    element.append(bits);
  }
  return element;
}

function fillGrid(cards) {
  $("grid").replaceChildren(...cards.map((each) => {
    const item = create("li");
    item.append(each);
    return item;
  }));
  for (const canvas of $("grid").querySelectorAll("canvas.bits")) canvas._draw();
}

function showError(error) {
  if (error.status === 401) {
    if (!$("token-dialog").open) $("token-dialog").showModal();
    return;
  }
  $("alert").textContent = error.message;
  $("alert").hidden = false;
  $("status").textContent = "";
  $("results-title").textContent = "Search failed";
  $("query-about").hidden = true;
  fillGrid([]);
  map.highlight(null, []);
}

// ---- start --------------------------------------------------------------------------------------------------------

async function start() {
  try {
    const [stats, points] = await Promise.all([api.stats(), api.collection()]);
    state.stats = stats;
    showStats(stats, points);
    map.fill(points);
    $("surprise").disabled = points.ids.length === 0;
    showAddress();
  } catch (error) {
    if (error.status === 503) setTimeout(start, 1000);
    else showError(error);
  }
}

function showStats(stats, points) {
  $("items").textContent = `${number(stats.items)} images`;
  const bits = stats.content_bits ? `${stats.bits} + ${stats.content_bits}` : stats.bits;
  $("model").textContent = ` · ${bits}-bit codes · ${stats.model.method} on ${stats.model.backbone}`;
  $("notice").hidden = stats.images_found;
  $("radius").max = $("radius").value = stats.bits;
  $("k").max = Math.min(MAX_RESULTS, stats.limits.max_k);
  $("k-value").textContent = $("k").value;
  $("duplicates-link").hidden = stats.same_photo === null;
  points.labels.forEach((label, at) => state.numbers.set(label, at));
  fillLabels(stats.labels.map(({ label }) => label));
  if (points.total > points.ids.length) {
    const shown = `${number(points.ids.length)} of ${number(points.total)} images`;
    $("map-about").textContent = `${shown}. Dots close together are similar.`;
  }
}

function fillLabels(labels) {
  $("labels-box").hidden = labels.length === 0;
  $("labels").replaceChildren(...labels.slice(0, MAX_CHIPS).map((label) => {
    const chip = create("button", "chip");
    chip.type = "button";
    chip.setAttribute("aria-pressed", "false");
    chip.append(labelMark(state.numbers.get(label) ?? -1), create("span", "", label));
    chip.addEventListener("click", () => {
      const selected = !state.labels.delete(label);
      if (selected) state.labels.add(label);
      chip.setAttribute("aria-pressed", String(selected));
      search();
    });
    return chip;
  }));
}

// ---- events -------------------------------------------------------------------------------------------------------

let pending;
function searchSoon() {
  clearTimeout(pending);
  pending = setTimeout(search, 120);
}
for (const name of ["k", "radius"]) {
  $(name).addEventListener("input", () => {
    const any = name === "radius" && $(name).value === $(name).max;
    $(`${name}-value`).textContent = any ? "any" : $(name).value;
    searchSoon();
  });
}
function setDial(position) {
  $("dial").value = position;
  $("dial").setAttribute("aria-valuetext", dialWords(Number($("dial").value)));
  localStorage.setItem("dial", $("dial").value);
}
$("dial").addEventListener("input", () => {
  setDial($("dial").value);
  searchSoon();
});
for (const [name, end] of [["dial-kind", "min"], ["dial-photo", "max"]]) {
  $(name).addEventListener("click", () => {
    setDial($("dial")[end]);
    search();
  });
}
setDial(localStorage.getItem("dial") ?? 0);
$("file").addEventListener("change", () => {
  searchFromFile($("file").files[0]);
  $("file").value = ""; // so that the same file can be chosen again
});
$("surprise").addEventListener("click", () => searchFromItem(randomPoint().id));
document.addEventListener("paste", (event) => searchFromFile(event.clipboardData?.files[0]));
for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    $("drop").classList.toggle("over", kind === "dragover");
    if (kind === "drop") searchFromFile(event.dataTransfer?.files[0]);
  });
}
window.addEventListener("popstate", showAddress);
$("duplicates-link").addEventListener("click", (event) => {
  event.preventDefault();
  if (location.hash !== "#duplicates") history.pushState(null, "", "#duplicates");
  showAddress();
  if (narrow.matches) $("results").scrollIntoView();
});
$("token-form").addEventListener("submit", () => {
  api.setToken($("token").value);
  $("alert").hidden = true;
  start();
});

function redraw() {
  for (const canvas of document.querySelectorAll("canvas")) canvas._again?.();
  map.draw();
}
function setBits(shown) {
  document.body.classList.toggle("show-bits", shown);
  localStorage.setItem("bits", shown ? "shown" : "hidden");
  redraw();
}
$("bits").addEventListener("change", () => setBits($("bits").checked));
$("bits").checked = localStorage.getItem("bits") === "shown";
setBits($("bits").checked);

installTheme($("theme"), redraw);
let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth !== width) redraw();
  width = window.innerWidth;
});
if (narrow.matches) $("controls").open = false;

start();
