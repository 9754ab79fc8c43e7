// The page /docs: every route of the OpenAPI document, with its fields, and a form that sends a request.

import { button, byId, el, hint, sayProblem } from "./dom.js";
import { call, token } from "./service.js";

let schemas = {};

const resolved = (schema) => (schema?.$ref ? schemas[schema.$ref.split("/").at(-1)] : schema) ?? {};

// The kind of a value in words, such as "list of text" or "PredictedLabel".
function kindOf(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.anyOf) return schema.anyOf.map(kindOf).join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (schema.type === "array") return `list of ${kindOf(schema.items) || "values"}`;
  return { string: "text", integer: "whole number", number: "number", boolean: "true or false", null: "null", object: "object" }[schema.type] ?? "";
}

function rules(schema) {
  const bounds = { minimum: "at least", maximum: "at most", minItems: "entries, at least", maxItems: "entries, at most", maxLength: "characters, at most" };
  const found = [schema, ...(schema.anyOf ?? [])].flatMap((one) => Object.entries(bounds).filter(([name]) => one[name] !== undefined).map(([name, words]) => `${words} ${one[name]}`));
  if (schema.default !== undefined && schema.default !== null) found.push(`default ${JSON.stringify(schema.default)}`);
  return found.join("; ");
}

// A short request that the service accepts: required fields, or the first choice of them.
function example(schema) {
  const { properties = {}, required = [], oneOf = [] } = resolved(schema);
  const names = [...required, ...(oneOf[0]?.required ?? [])];
  return Object.fromEntries(names.map((name) => [name, valueOf(properties[name], name)]));
}

function valueOf(schema, name) {
  const found = resolved(schema?.anyOf?.[0] ?? schema);
  if (found.type === "array") return [valueOf(found.items, name)];
  if (found.type === "integer") return found.minimum ?? 0;
  if (found.properties) return example(found);
  return { text: "a text", texts: "a text" }[name] ?? "text";
}

const table = (title, rows) => rows.length > 0 && el("section", {}, el("h3", {}, title), el("table", { class: "fields" }, el("tbody", {},
  rows.map(([name, kind, words]) => el("tr", {}, el("td", {}, el("code", {}, name)), el("td", {}, kind), el("td", {}, words))))));

const fields = (schema) => {
  const { properties = {}, required = [] } = resolved(schema);
  return Object.entries(properties).map(([name, one]) => [name, kindOf(one), [required.includes(name) && "required", one.description, rules(one)].filter(Boolean).join(". ")]);
};

function route(path, method, { summary, description, parameters = [], requestBody, responses, security, deprecated }) {
  const body = requestBody?.content["application/json"]?.schema;
  const status = Object.keys(responses).find((number) => number < 300);
  const answer = responses[status].content?.["application/json"]?.schema;
  const problems = Object.entries(responses).filter(([number]) => number >= 400).map(([number, { description: words }]) => [number, "", words]);
  return el("details", { class: "route", id: `${method}${path.replaceAll(/[^a-z0-9]+/g, "-")}` },
    el("summary", {}, el("b", {}, method.toUpperCase()), " ", el("code", {}, path), " ", el("span", { class: "hint" }, [summary && description ? description : summary, security && "(token)", deprecated && "(deprecated)"].filter(Boolean).join(" "))),
    !requestBody || body ? form(path, method, parameters, body, security) : el("pre", {}, `curl --data-binary @table.csv "${location.origin}${path}?source=csv&target=xlsx" -o labels.xlsx`),
    table("In the address", parameters.map(({ name, schema, description: words, required }) => [name, kindOf(schema), [required && "required", words, rules(schema)].filter(Boolean).join(". ")])),
    table(`Request: ${kindOf(body)}`, body ? fields(body) : []),
    table(`Answer ${status}: ${kindOf(answer)}`, answer ? fields(answer) : []),
    table("Problems", problems));
}

function form(path, method, parameters, body, security) {
  const id = `${method}${path}`;
  const inputs = parameters.map(({ name, in: where, schema }) => [name, where, el("input", { id: `${id}-${name}`, value: where === "path" ? "0" : schema.default ?? "" })]);
  const text = body && el("textarea", { id: `${id}-body`, rows: 4, spellcheck: "false" });
  if (text) text.value = JSON.stringify(example(body), null, 2);
  const answer = el("pre", { hidden: true, tabindex: 0, "aria-label": "Answer" });
  const problem = el("div", { class: "problem", role: "alert", hidden: true });
  const send = async () => {
    const asked = new URLSearchParams(inputs.filter(([, where, input]) => where === "query" && input.value !== "").map(([name, , input]) => [name, input.value]));
    const place = inputs.reduce((found, [name, where, input]) => (where === "path" ? found.replace(`{${name}}`, encodeURIComponent(input.value)) : found), path);
    answer.hidden = true;
    try {
      const given = text ? JSON.parse(text.value) : undefined;
      const said = await call(method.toUpperCase(), `${place.slice(1)}${asked.size ? `?${asked}` : ""}`, { body: given, secret: security && byId("token").value.trim() });
      sayProblem(problem, null);
      answer.textContent = typeof said === "string" ? said : JSON.stringify(said, null, 2);
      answer.hidden = false;
    } catch (error) {
      sayProblem(problem, error instanceof SyntaxError ? { detail: `The request must be JSON: ${error.message}` } : error);
    }
  };
  return el("section", {}, inputs.map(([name, , input]) => el("div", { class: "field" }, el("label", { for: input.id }, name), input)),
    text && el("div", { class: "field" }, el("label", { for: text.id }, "Request"), text),
    el("div", { class: "actions" }, button("Send", send, { class: "main" })), problem, answer);
}

async function start() {
  try {
    const { paths, components, info } = await call("GET", "v1/openapi.json");
    schemas = components.schemas;
    byId("version").textContent = info.version;
    const groups = new Map();
    for (const [path, methods] of Object.entries(paths)) for (const [method, operation] of Object.entries(methods)) {
      const tag = operation.tags?.[0] ?? "other";
      groups.set(tag, [...(groups.get(tag) ?? []), route(path, method, operation)]);
    }
    byId("routes").replaceChildren(...[...groups].flatMap(([tag, routes]) => [el("h2", {}, { model: "Model", labels: "Labels", service: "Service" }[tag] ?? tag), ...routes]),
      hint("Fields of an answer that are objects, such as PredictedLabel:"),
      ...Object.entries(schemas).filter(([name]) => !/Request|Answer|NewLabel/.test(name)).map(([name, schema]) => table(name, fields(schema))).filter(Boolean));
  } catch (error) {
    sayProblem(byId("problem"), error, start);
  }
}

byId("token").value = token.read();
byId("token-form").onsubmit = (event) => event.preventDefault();
start();
