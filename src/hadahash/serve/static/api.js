// Requests to the service. An error has a human-readable message and the HTTP status.

let token = sessionStorage.getItem("token");

export function setToken(value) {
  token = value;
  sessionStorage.setItem("token", value);
}

function headers(more = {}) {
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: headers(options.headers) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The service cannot be reached. Is it still running?");
  }
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  const detail = answer.error || { message: `The service answered ${response.status}.`, hint: "" };
  const error = new Error([detail.message, detail.hint].filter(Boolean).join(" "));
  error.status = response.status;
  error.code = detail.code;
  throw error;
}

export const stats = async () => (await request("/v1/stats")).json();
export const duplicates = async (parameters, signal) =>
  (await request(`/v1/duplicates?${new URLSearchParams(parameters)}`, { signal })).json();
export const dismiss = (key, threshold) => post("/v1/duplicates/dismiss", { key, threshold });
export const collection = async () => (await request("/v1/map")).json();

export const search = (parameters, signal) => post("/v1/search", parameters, signal);

async function post(path, parameters, signal) {
  const options = { method: "POST", body: JSON.stringify(parameters), signal };
  return (await request(path, { ...options, headers: { "Content-Type": "application/json" } })).json();
}

export async function searchImage(file, { label, ...parameters }, signal) {
  const form = new FormData();
  form.append("image", file, "image");
  for (const [name, value] of Object.entries(parameters)) if (value !== null) form.append(name, value);
  for (const each of label) form.append("label", each);
  return (await request("/v1/search", { method: "POST", body: form, signal })).json();
}

// Show the image of an item. An <img> cannot send a token: then the image is fetched first.
export async function show(img, id, { large = false } = {}) {
  const path = `/v1/${large ? "images" : "thumbnails"}/${encodeURIComponent(id)}`;
  img.onload = () => img.classList.toggle("tiny", img.naturalWidth < 96);
  if (!token) {
    img.src = path;
    return;
  }
  const url = URL.createObjectURL(await (await request(path)).blob());
  img.addEventListener("load", () => URL.revokeObjectURL(url), { once: true });
  img.src = url;
}
