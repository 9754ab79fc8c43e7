// Why a label was predicted: parts of the score, attribution to words, train texts that have it, labels that occur with it.

import { el, fixed, hint, meaning, number, percent, problemBox, signed } from "./dom.js";
import { call, isAborted } from "./service.js";

const PARTS = {
  dual: "Dual encoder", classifier: "Classifier", label_tree: "Label tree", decision_tree: "Decision tree", knn: "Nearest texts (kNN)",
  linear: "Linear classifier", links: "Links between labels", label_prior: "Label prior", weighted_sum: "Weighted sum", words: "Shared words",
  pretrained: "Pretrained encoder", frequency: "Frequency of the label", base: "Average candidate",
};
const STRONGEST = 6;

export async function openReasons(panel, { text, row, k, mode, signal }) {
  if (!panel.firstChild) panel.append(hint("Explaining\u2026"));
  panel.ariaBusy = true;
  const body = { text, k, labels: [row.id], mode }; // labels that occur with it are searched among the k best
  try {
    const { labels: [reason] } = await call("POST", "v1/explain", { body, signal });
    panel.replaceChildren(...drawn(reason, text));
  } catch (error) {
    if (isAborted(error)) return;
    panel.replaceChildren(problemBox(error, () => openReasons(panel, { text, row, k, mode, signal })));
  }
  panel.ariaBusy = false;
}

function drawn(reason, text) {
  return [
    partsOf(reason),
    wordsOf(reason, text),
    reason.texts.length > 0 && section("Nearest train texts with this label", el("ul", { class: "texts" },
      reason.texts.map((near) => el("li", {}, el("span", {}, near.text), number(fixed(near.similarity), { title: "similarity" }))))),
    reason.together.length > 0 && section("Predicted labels that occur with it", el("ul", { class: "together" },
      reason.together.map((other) => el("li", {}, other.text, " ", number(percent(other.share)))))),
  ].filter(Boolean);
}

const section = (title, ...content) => el("section", {}, el("h4", {}, title), ...content);

// Negative parts are left of the line, positive ones right of it; widths are shares of the sum of absolute values.
function partsOf({ parts, score }) {
  const entries = Object.entries(parts);
  const all = entries.reduce((sum, [, value]) => sum + Math.abs(value), 0) || 1;
  const against = entries.filter(([, value]) => value < 0);
  const piece = ([name, value]) => el("span", { class: "part", vars: { "--share": Math.abs(value) / all, "--tone": `var(--${name}, var(--part))` } });
  const bar = el("div", { class: "stack", "aria-hidden": "true" }, against.map(piece), against.length > 0 && el("span", { class: "zero" }),
    entries.filter(([, value]) => value >= 0).map(piece));
  const legend = el("ul", { class: "legend" }, entries.map(([name, value]) => el("li", {},
    el("i", { class: "part", vars: { "--tone": `var(--${name}, var(--part))` } }), el("span", { title: meaning(name) }, PARTS[name] ?? name), " ", number(signed(value), { "data-part": name }))),
  el("li", {}, "Score ", number(fixed(score), { "data-part": "score" })));
  return section("Parts of the score", bar, legend);
}

// Offsets count characters as Python does; JavaScript counts a character beyond 16 bits twice.
function wordsOf({ tokens, rest }, text) {
  const letters = Array.from(text);
  const weights = new Float64Array(letters.length + 1);
  for (const { start, end, score } of tokens) for (let place = start; place < end; place += 1) weights[place] += score;
  const strongest = weights.reduce((most, weight) => Math.max(most, Math.abs(weight)), 1e-9);
  const pieces = [];
  for (let start = 0; start < letters.length;) {
    let end = start + 1;
    while (end < letters.length && weights[end] === weights[start]) end += 1;
    const piece = letters.slice(start, end).join("");
    const strength = Math.abs(weights[start]) / strongest;
    const spoken = strength >= 0.04 && piece.trim() !== "";
    pieces.push(!spoken ? piece : el("mark", { class: weights[start] < 0 && "against", title: signed(weights[start]), vars: { "--strength": strength.toFixed(3) } }, piece));
    start = end;
  }
  const words = [...tokens].sort((a, b) => Math.abs(b.score) - Math.abs(a.score)).slice(0, STRONGEST);
  if (words.length === 0) return section("Attribution to words", hint("The model knows no word of this text."));
  return section("Attribution to words", el("p", { class: "words" }, pieces),
    el("ul", { class: "strongest", "aria-label": "Strongest words" }, words.map((word) => el("li", {}, word.token, " ", number(signed(word.score)))),
      Math.abs(rest) >= 0.0005 && el("li", { title: "not attributed to a word" }, "rest ", number(signed(rest)))));
}
