// Elements of the page. Text enters the document only as text nodes and attributes, never as HTML: a label called
// "<img onerror=...>" is shown as it is.

export const byId = (id) => document.getElementById(id);

// el("p", {class: "hint", onclick: f, vars: {"--share": 0.4}}, "text", otherElement); null and false are left out.
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (name === "vars") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const unseen = (text) => el("span", { class: "unseen" }, text);
export const hint = (text) => el("p", { class: "hint" }, text);
export const number = (text, more = {}) => el("span", { class: "number", ...more }, text);
export const button = (name, run, more = {}) => el("button", { type: "button", onclick: run, ...more }, name);

const WHOLE = new Intl.NumberFormat("en");
const PERCENT = new Intl.NumberFormat("en", { style: "percent" });
const TENTHS = new Intl.NumberFormat("en", { style: "percent", minimumFractionDigits: 1, maximumFractionDigits: 1 });

export const count = (number, one, many = `${one}s`) => `${WHOLE.format(number)} ${number === 1 ? one : many}`;
export const whole = (number) => WHOLE.format(number);
// Rounding never gives 0% or 100% for other values.
export const percent = (share) =>
  share > 0 && share < 0.1 ? (share < 0.001 ? "<0.1%" : TENTHS.format(share))
    : share > 0.99 && share < 1 ? (share > 0.999 ? ">99.9%" : TENTHS.format(share))
      : PERCENT.format(share);
export const fixed = (score) => (Object.is(Math.round(score * 1000), -0) ? 0 : score).toFixed(3).replace("-", "\u2212");
export const signed = (score) => (Math.round(score * 1000) >= 0 ? "+" : "") + fixed(score);

// The explanation of a word, which stands at the end of the page.
export const meaning = (word) => byId(`word-${word}`)?.textContent;

// The frequency class of a label as a word and one to three strokes, never by colour alone.
export const frequencyMark = (frequency) =>
  el("span", { class: `mark ${frequency}`, title: meaning("frequency") }, el("i"), unseen("frequency: "), frequency);

export function labelName(row) {
  const uri = /^https?:\/\//.test(row.uid) && el("a", { href: row.uid, target: "_blank", rel: "noopener noreferrer" }, row.uid);
  return el("span", { class: "name" }, row.notation && el("span", { class: "notation" }, row.notation, " "), el("span", { class: "label-text" }, row.text),
    row.uid !== row.text && el("span", { class: "uid" }, unseen(", uid "), uri || row.uid));
}

// Return a function that runs when it was not called for some milliseconds.
export function settled(run, wait) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(run, wait);
  };
}

// Show a problem, or hide the place if there is none.
export function sayProblem(place, problem, again) {
  place.hidden = problem === null;
  place.replaceChildren();
  if (problem === null) return;
  place.append(problem.detail || problem.title);
  // Offer another try only for problems that may pass.
  const passes = [0, 408, 429].includes(problem.status) || problem.status >= 500;
  if (again && passes) place.append(" ", button("Try again", again, { class: "quiet" }));
}

export function problemBox(problem, again) {
  const place = el("div", { class: "problem", role: "alert" });
  sayProblem(place, problem, again);
  return place;
}
