// The tab One text: predictions while you type, by one mode or by all modes side by side.

import * as address from "./address.js";
import { button, byId, count, el, meaning, percent, sayProblem, settled } from "./dom.js";
import { MODES, Rows } from "./rows.js";
import { call, isAborted } from "./service.js";

const TYPING_MS = 120;
const SAYING_MS = 900;
const RETRIES = 3;
const MIN_RECALL = 0.05; // a threshold that finds fewer of the right labels is no help

const [text, k, min, language, results, problem] = ["text", "k", "min", "language", "results", "problem"].map(byId);
let info = null;
let lists = [];
let last = null; // {text, k, answers: [{mode, labels, known}]}
let gone = false; // the last request had no answer
let request = null;
let mode = "both"; // or "compare"

export const settings = () => ({ k: Number(k.value), mode: mode === "compare" ? info.modes[0] : mode, min: Number(min.value), language: language.value });
export const inAddress = () => ({ text: text.value, k: k.value === "5" ? null : k.value, mode: mode === info?.modes[0] ? null : mode, min: Number(min.value) || null, language: language.value });

export const changed = new EventTarget();
const tellChanged = () => changed.dispatchEvent(new Event("change"));

const askSoon = settled(ask, TYPING_MS);
const say = settled(() => (byId("found-said").textContent = summary()), SAYING_MS);

function summary() {
  if (!last) return "";
  return last.answers.map(({ mode: name, labels }) => {
    const shown = above(labels);
    const first = shown[0] && `, best: ${shown[0].text}${shown[0].probability === null ? "" : `, ${percent(shown[0].probability)}`}`;
    return `${last.answers.length > 1 ? `${MODES[name]}: ` : ""}${count(shown.length, "label")}${first ?? ""}`;
  }).join(". ");
}

export const above = (labels) => labels.filter((row) => row.probability === null || row.probability >= Number(min.value));

async function ask(tries = 0) {
  request?.abort();
  tellChanged();
  byId("text-count").textContent = text.value.length > 1000 ? count(text.value.length, "character") : "";
  const asked = text.value;
  if (asked.trim() === "" || info === null) {
    request = last = null;
    gone = false;
    sayProblem(problem, null);
    text.ariaInvalid = false;
    return draw();
  }
  const own = request = new AbortController();
  results.ariaBusy = true;
  const modes = mode === "compare" ? info.modes : [mode];
  const labelsAsked = Number(k.value);
  const predict = async (one) => {
    const body = { texts: [asked], k: labelsAsked, mode: one, language: language.value };
    const { labels, known } = (await call("POST", "v1/predict", { body, signal: own.signal })).predictions[0];
    return { mode: one, labels, known };
  };
  try {
    const answers = await Promise.all(modes.map(predict));
    if (own !== request) return; // A newer request replaced this one.
    last = { text: asked, k: labelsAsked, answers };
    gone = false;
    sayProblem(problem, null);
    draw();
  } catch (error) {
    if (isAborted(error) || own !== request) return;
    own.abort();
    // Labels of another text would be wrong here. Without any answer the line at the top says so too.
    gone = error.status === 0;
    last = null;
    sayProblem(problem, gone ? null : error, () => ask());
    draw();
    if (error.retryAfter > 0 && tries < RETRIES) setTimeout(() => own === request && ask(tries + 1), error.retryAfter * 1000);
  }
  text.ariaInvalid = !problem.hidden;
  results.ariaBusy = false;
}

function draw() {
  const answers = last?.answers ?? [];
  say();
  byId("one").classList.toggle("compares", mode === "compare");
  if (answers.length === 0) {
    lists = [];
    results.ariaBusy = false;
    drawMarks();
    return results.replaceChildren(problem.hidden ? empty() : "");
  }
  const same = lists.length === answers.length && lists.every((list, place) => list.mode === answers[place].mode);
  if (!same) {
    lists = answers.map(({ mode: name }) => new Rows(`Predicted labels, ${MODES[name] ?? name}`, name));
    results.replaceChildren(...lists.map((list) => {
      list.unknown = el("p", { class: "problem" }, "No known words: the model has seen none of the words of this text, so these labels are guesses.");
      list.note = el("p", { class: "hint note" });
      const name = answers.length > 1 ? el("h2", { title: meaning(list.mode) }, MODES[list.mode] ?? list.mode) : el("h2", {}, "Labels");
      return el("section", { class: "column" }, name, list.unknown, list.element, list.note);
    }));
  }
  const shown = answers.map(({ labels }) => above(labels));
  for (const [place, list] of lists.entries()) {
    const others = new Set(shown.flatMap((labels, other) => (other === place ? [] : labels.map((row) => row.id))));
    const only = new Set(answers.length > 1 ? shown[place].map((row) => row.id).filter((id) => !others.has(id)) : []);
    list.show(last, shown[place], only);
    list.unknown.hidden = answers[place].known !== 0;
    list.note.replaceChildren(...note(answers[place].labels, shown[place]));
  }
  drawMarks();
}

function empty() {
  if (gone) return el("p", { class: "empty" }, "No labels: the service does not answer. They appear when it is back.");
  const examples = info?.examples ?? [];
  return el("div", { class: "empty" }, el("p", {}, "Labels appear here as you type."), examples.length > 0 && el("p", { class: "hint" }, "Or try one of these texts:"),
    el("ul", { class: "examples" }, examples.map((example) => el("li", {}, button(example, () => tryText(example), { class: "link" })))));
}

function note(labels, shown) {
  const below = labels.length - shown.length;
  const least = `the minimum probability of ${percent(Number(min.value))}`;
  if (labels.length === 0) return ["No label found for this text."];
  if (shown.length === 0) return [`No label reaches ${least}; the best has ${percent(labels[0].probability)}. `, button("Show all labels", () => setMin(0), { class: "quiet" })];
  if (below > 0) return [`${count(below, "label")} below ${least}.`];
  return labels[0].probability === null ? ["Bars show scores relative to the best score, not probabilities."] : [];
}

function drawMin() {
  byId("min-said").textContent = percent(Number(min.value));
  min.ariaValueText = percent(Number(min.value));
}

// The model decides which settings are possible.
export function setModel(said) {
  info = said;
  k.max = said.limits.k;
  const names = [...said.modes.map((name) => [name, MODES[name] ?? name]), ...(said.modes.length > 1 ? [["compare", "Compare"]] : [])];
  if (!names.some(([name]) => name === mode)) mode = said.modes[0];
  byId("modes").replaceChildren(el("legend", {}, "Mode"), el("div", { class: "choices" }, names.map(([value, name]) =>
    el("label", { title: meaning(value) }, el("input", { type: "radio", name: "mode", value, checked: value === mode }), el("span", {}, name)))));
  byId("modes").hidden = said.modes.length < 2;
  drawLanguages(said.languages);
  min.disabled = !said.calibrated;
  if (min.disabled) min.value = "0";
  byId("min-hint").hidden = said.calibrated;
  drawThresholds(said.thresholds ?? {});
  drawMin();
  draw();
}

// Names of languages as the browser knows them; labels without a name in the chosen one keep their own text.
function drawLanguages(tags) {
  const chosen = language.value;
  const names = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });
  const nameOf = (tag) => {
    try {
      return names.of(tag);
    } catch {
      return tag; // not a tag that the browser knows
    }
  };
  language.replaceChildren(el("option", { value: "" }, "as in the model"), ...tags.map((tag) => el("option", { value: tag }, nameOf(tag))));
  language.value = tags.includes(chosen) ? chosen : "";
  byId("language-field").hidden = tags.length < 2;
}

// Marks on the slider: the thresholds that the calibration found.
function drawThresholds(thresholds) {
  const marks = Object.entries(thresholds).filter(([, { recall }]) => recall >= MIN_RECALL);
  byId("thresholds").replaceChildren(...marks.map(([, { probability }]) => el("option", { value: probability })));
  byId("marks").replaceChildren(...marks.map(([name, { probability, precision, recall }]) => button(`${name.replace("f1", "F1").replace("-", " ")} \u00b7 ${percent(probability)}`,
    () => setMin(probability), { value: probability, title: `On held-out texts: ${percent(precision)} of the shown labels are right, and ${percent(recall)} of the right labels are shown.` })));
}

// A threshold that leaves no label of the present text is not offered.
function drawMarks() {
  const best = Math.max(...(last?.answers ?? []).flatMap(({ labels }) => labels.map((row) => row.probability ?? 1)));
  for (const mark of byId("marks").children) mark.disabled = last !== null && best < Number(mark.value);
}

function setMin(value) {
  min.value = value;
  moved();
}

function moved() {
  drawMin();
  draw();
  tellChanged();
}

export function fromAddress(said) {
  if (said.text !== null) text.value = said.text;
  k.value = Math.round(Number(said.k)) || 5;
  min.value = min.disabled ? 0 : Number(said.min) || 0;
  language.value = info.languages.includes(said.language) ? said.language : "";
  for (const input of byId("modes").querySelectorAll("input")) if (input.value === (said.mode ?? info.modes[0])) input.checked = true;
  mode = byId("modes").querySelector(":checked").value;
  drawMin();
}

export function tryText(value) {
  text.value = value;
  text.focus();
  return ask();
}

export const again = () => ask();

text.oninput = askSoon;
k.oninput = () => k.checkValidity() && k.value !== "" && askSoon();
k.onchange = () => {
  if (!k.checkValidity() || k.value === "") k.value = String(Math.max(1, Math.min(Number(k.max), Math.round(Number(k.value)) || 5)));
  askSoon();
};
min.oninput = moved;
language.onchange = () => ask();
byId("modes").onchange = (event) => {
  mode = event.target.value;
  ask();
};
byId("clear").onclick = () => tryText("");
byId("share").onclick = async () => {
  const all = address.write(inAddress());
  try {
    await navigator.clipboard.writeText(location.href);
    byId("share-said").textContent = all ? "Copied." : "Copied, without the text: it is too long for a link.";
  } catch {
    byId("share-said").textContent = "The browser does not allow copying; the link is in the address line.";
  }
  setTimeout(() => (byId("share-said").textContent = ""), 4000);
};
