// The tab Many texts: one text per line, a table of results, the same as CSV.

import { csv, download, downloadFile } from "./csv.js";
import { button, byId, count, el, fixed, frequencyMark, hint, number, percent, sayProblem } from "./dom.js";
import { above, changed, settings } from "./one.js";
import { MODES } from "./rows.js";
import { call, isAborted, upload } from "./service.js";

const TOGETHER = 64; // texts per request
const SHOWN = 200; // rows added to the table at a time; the CSV has all

const [lines, run, stop, csvButton, progress, said, results, problem] =
  ["lines", "run", "stop", "csv", "lines-progress", "many-said", "many-results", "many-problem"].map(byId);
let limits = null;
let found = [];
let request = null;

const texts = () => lines.value.split(/\r?\n/).map((text, place) => ({ line: place + 1, text: text.trim() })).filter(({ text }) => text !== "");

export function setModel(info) {
  limits = info.limits;
  tellSettings();
}

function tellSettings() {
  const { k, mode, min } = settings();
  byId("many-settings").textContent = `${(MODES[mode] ?? mode).toLowerCase()}, ${count(k, "label")}${min > 0 ? `, at least ${percent(min)}` : ""}`;
}

function tellCount() {
  const all = texts().length;
  byId("lines-count").textContent = all === 0 ? "no texts" : count(all, "text");
  run.disabled = all === 0 || request !== null;
  byId("file-run").disabled = byId("file").files.length === 0 || request !== null;
}

async function predict() {
  const asked = texts();
  const { k, mode, language } = settings();
  const own = request = new AbortController();
  found = [];
  working(true);
  sayProblem(problem, null);
  results.replaceChildren();
  const size = Math.min(TOGETHER, limits.texts);
  try {
    for (let start = 0; start < asked.length; start += size) {
      const some = asked.slice(start, start + size);
      const body = { texts: some.map(({ text }) => text), k, mode, language };
      const { predictions } = await call("POST", "v1/predict", { body, signal: own.signal });
      found.push(...predictions.map(({ labels, known }, place) => ({ ...some[place], labels: above(labels), known })));
      progress.value = found.length / asked.length;
      said.textContent = `${count(found.length, "text")} of ${asked.length}\u2026`;
    }
    said.textContent = `${count(found.length, "text")} predicted.`;
  } catch (error) {
    said.textContent = isAborted(error) ? `Stopped after ${count(found.length, "text")} of ${asked.length}.` : "";
    if (!isAborted(error)) sayProblem(problem, place(error, asked), predict);
  }
  request = null;
  working(false);
  draw();
}

// The service does not know lines; the page finds the first text that is too long.
function place(error, asked) {
  const long = error.field === "texts" && asked.find(({ text }) => [...text].length > limits.text_length);
  return long ? { ...error, detail: `Line ${long.line}: ${error.detail}` } : error;
}

function working(yes) {
  stop.hidden = progress.hidden = !yes;
  progress.value = 0;
  csvButton.disabled = yes || found.length === 0;
  results.ariaBusy = yes;
  tellCount();
}

function draw() {
  if (found.length === 0) return results.replaceChildren();
  const body = el("tbody");
  const more = button("", () => grow());
  const grow = () => {
    const start = body.children.length;
    body.append(...found.slice(start, start + SHOWN).map(rowOf));
    const left = found.length - body.children.length;
    more.hidden = left === 0;
    more.textContent = `Show more (${count(left, "text")} left)`;
  };
  grow();
  return results.replaceChildren(
    el("table", {}, el("caption", { class: "unseen" }, "Predicted labels of each text"),
      el("thead", {}, el("tr", {}, el("th", { scope: "col", class: "line" }, "Line"), el("th", { scope: "col" }, "Text"), el("th", { scope: "col" }, "Labels"))), body), more);
}

const rowOf = ({ line, text, labels, known }) => el("tr", {}, el("td", { class: "line" }, String(line)), el("th", { scope: "row" }, text),
  el("td", {}, known === 0 && hint("No known words: guesses."), labels.length === 0 ? hint("no label")
    : el("ol", { class: "chips" }, labels.map((row) => el("li", {}, el("span", {}, row.text), number(row.probability === null ? fixed(row.score) : percent(row.probability)), frequencyMark(row.frequency))))));

// A table of texts: the service reads it and answers with a table that has all its columns, then the labels.
const KINDS = { csv: "csv", tsv: "tsv", jsonl: "jsonl", xlsx: "xlsx" };

async function predictFile() {
  const file = byId("file").files[0];
  const source = KINDS[file.name.split(".").at(-1).toLowerCase()];
  const target = byId("file-kind").value;
  if (!source) return sayProblem(problem, { detail: `The file must end in .csv, .tsv, .jsonl or .xlsx, but is called ${file.name}.` });
  if (file.size > limits.body) return sayProblem(problem, { detail: `The file must have at most ${count(limits.body, "byte")}; use the command line for larger ones: unidex predict MODEL FILE --out TABLE.` });
  const { k, mode, min, language } = settings();
  const asked = new URLSearchParams({ source, target, k, mode });
  if (language) asked.set("language", language);
  if (min > 0 && min <= 1) asked.set("min_probability", min);
  if (byId("file-column").value.trim()) asked.set("column", byId("file-column").value.trim());
  const own = request = new AbortController();
  sayProblem(problem, null);
  working(true);
  progress.removeAttribute("value");
  said.textContent = `Predicting ${file.name}\u2026`;
  try {
    const table = await upload(`v1/predict/table?${asked}`, file, { signal: own.signal });
    const name = `${file.name.replace(/\.[^.]*$/, "")}-labels.${target}`;
    downloadFile(name, table);
    said.textContent = `Done: ${name} is downloaded.`;
  } catch (error) {
    said.textContent = isAborted(error) ? "Stopped." : "";
    if (!isAborted(error)) sayProblem(problem, error, predictFile);
  }
  request = null;
  working(false);
  return undefined;
}

byId("file").onchange = tellCount;
byId("file-run").onclick = predictFile;
lines.oninput = tellCount;
run.onclick = predict;
stop.onclick = () => request?.abort();
csvButton.onclick = () => download("unidex-predictions.csv", csv(found));
changed.addEventListener("change", tellSettings);
tellCount();
