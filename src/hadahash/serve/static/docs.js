// The API reference, generated from the OpenAPI description.

const theme = localStorage.getItem("theme");
if (theme) document.documentElement.dataset.theme = theme;

const make = (tag, text, className) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
};

const spec = await (await fetch("/openapi.json")).json();
const resolve = (part) => (part?.$ref ? part.$ref.split("/").slice(1).reduce((at, key) => at[key], spec) : part) || {};

function kind(schema) {
  if (schema?.$ref) return schema.$ref.split("/").pop();
  if (schema?.anyOf) return schema.anyOf.map(kind).join(" or ");
  if (schema?.type === "array") return `list of ${kind(schema.items)}`;
  return schema?.format || schema?.type || "";
}

function table(rows) {
  const element = make("table");
  for (const row of rows) {
    const line = make("tr");
    row.forEach((text, at) => {
      const cell = make(at ? "td" : "th");
      cell.append(at ? text : make("code", text));
      line.append(cell);
    });
    element.append(line);
  }
  return element;
}

const fields = (schema) =>
  Object.entries(resolve(schema).properties || {}).map(([name, part]) => [name, kind(part), part.description || ""]);

function details(title, ...content) {
  const element = make("details");
  element.append(make("summary", title), ...content);
  return element;
}

function operation(path, verb, about) {
  const card = make("section", undefined, "card");
  const title = make("h2");
  const code = make("code");
  code.append(make("span", verb.toUpperCase(), "verb"), path);
  title.append(code);
  card.append(title, make("p", about.description || about.summary || ""));
  if (about.parameters?.length) {
    card.append(details("Parameters", table(about.parameters.map((p) => [p.name, `${p.in}, ${kind(p.schema)}`, p.description || ""]))));
  }
  for (const [type, part] of Object.entries(about.requestBody?.content || {})) {
    const rows = fields(part.schema);
    card.append(details(`Body: ${type}`, rows.length ? table(rows) : make("p", part.schema.description || "")));
  }
  const responses = Object.entries(about.responses).map(([status, part]) => {
    const shown = Object.values(resolve(part).content || {})[0]?.schema;
    return [status, part.description || "", kind(shown)];
  });
  card.append(details("Responses", table(responses)));
  return card;
}

const page = document.getElementById("docs");
page.replaceChildren(make("h1", `${spec.info.title} ${spec.info.version}`), make("p", spec.info.description));
const example = 'curl -F image=@cat.jpg -F k=5 http://127.0.0.1:8000/v1/search\ncurl --json \'{"id": "cats/1.jpg", "radius": 4}\' http://127.0.0.1:8000/v1/search';
page.append(make("pre", example));
for (const [path, verbs] of Object.entries(spec.paths)) {
  for (const [verb, about] of Object.entries(verbs)) page.append(operation(path, verb, about));
}
page.append(make("h1", "Schemas"));
for (const [name, schema] of Object.entries(spec.components.schemas)) {
  const card = make("section", undefined, "card");
  card.append(make("h2", name), table(fields(schema)));
  page.append(card);
}
