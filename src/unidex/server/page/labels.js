// The tab Labels: browse, search, similar labels; add, teach, rename and remove with a token.

import { ask, change } from "./dialogs.js";
import { button, byId, count, el, fixed, frequencyMark, hint, labelName, number, problemBox, sayProblem, settled, whole } from "./dom.js";
import { settings } from "./one.js";
import { call, isAborted } from "./service.js";

const PAGE = 50;
const NUM_SIMILAR = 10;
const [search, frequency, order, list, problem, done, before, after] =
  ["search", "frequency", "order", "labels-list", "labels-problem", "labels-done", "before", "after"].map(byId);
let offset = 0;
let request = null;
let writable = false;
let page = null; // {tryIt, refresh}

export const inAddress = () => ({ search: search.value });

export function setModel(info, wholePage) {
  writable = info.writable;
  page = wholePage;
  byId("add").hidden = !writable;
  byId("labels-note").hidden = writable;
}

export async function show() {
  request?.abort();
  const own = request = new AbortController();
  list.ariaBusy = true;
  const asked = new URLSearchParams({ search: search.value.trim(), order: order.value, offset, limit: PAGE });
  if (frequency.value) asked.set("frequency", frequency.value);
  if (settings().language) asked.set("language", settings().language);
  try {
    const found = await call("GET", `v1/labels?${asked}`, { signal: own.signal });
    if (own !== request) return;
    if (found.labels.length === 0 && offset > 0) return fromStart(); // the last page is empty now
    sayProblem(problem, null);
    draw(found);
  } catch (error) {
    if (isAborted(error) || own !== request) return;
    // Labels of another search would be wrong here. Without any answer the line at the top says so too.
    sayProblem(problem, error.status === 0 ? null : error, show);
    list.replaceChildren(error.status === 0 ? el("p", { class: "empty" }, "No labels: the service does not answer. They appear when it is back.") : "");
    byId("place").textContent = "";
    before.disabled = after.disabled = true;
  }
  list.ariaBusy = false;
}

function move(by) {
  offset = Math.max(0, offset + by);
  return show();
}

function draw({ total, labels }) {
  const last = offset + labels.length;
  byId("place").textContent = total === 0 ? "" : `${whole(offset + 1)}\u2013${whole(last)} of ${count(total, "label")}`;
  before.disabled = offset === 0;
  after.disabled = last >= total;
  list.replaceChildren(labels.length === 0 ? el("p", { class: "empty" }, "No label matches.")
    : el("ul", { class: "label-rows", "aria-label": "Labels" }, labels.map(item)));
}

function item(row) {
  const id = `near-${row.id}`;
  const panel = el("div", { class: "near", id, hidden: true });
  const near = button("Similar", () => open(panel.hidden), { class: "quiet", "aria-expanded": "false", "aria-controls": id, "aria-label": `Labels similar to ${row.text}` });
  const open = (yes) => {
    near.ariaExpanded = yes;
    panel.hidden = !yes;
    if (yes) showSimilar(panel, row);
  };
  return el("li", {}, el("div", { class: "label-row" }, labelName(row), frequencyMark(row.frequency), number(count(row.num_texts, "text")),
    el("span", {}, near,
      writable && button("Teach", () => teach(row), { class: "quiet", "aria-label": `Teach ${row.text}` }),
      writable && button("Rename", () => rename(row), { class: "quiet", "aria-label": `Rename ${row.text}` }),
      writable && button("Remove", () => remove(row), { class: "quiet", "aria-label": `Remove ${row.text}` }))), panel);
}

async function showSimilar(panel, row) {
  if (!panel.firstChild) panel.append(hint("Searching\u2026"));
  try {
    const { similar } = await call("GET", `v1/labels/${row.id}/similar?k=${NUM_SIMILAR}`);
    panel.replaceChildren(el("h3", {}, "Similar labels"), similar.length === 0 ? hint("none")
      : el("ol", {}, similar.map((other) => el("li", {}, button(other.text, () => find(other.text), { class: "link" }), frequencyMark(other.frequency), number(fixed(other.score))))));
  } catch (error) {
    panel.replaceChildren(problemBox(error, () => showSimilar(panel, row)));
  }
}

function find(text) {
  search.value = text;
  frequency.value = "";
  search.focus();
  return fromStart();
}

// Report a change, and refresh the labels here and in the other tabs.
function tell(words, row, canTry, more = []) {
  done.replaceChildren(words, " ", el("q", {}, row.text), " ", canTry ? button("Try it", () => page.tryIt(row.text), { class: "quiet" }) : "", ...more);
  page.refresh();
  return show();
}

async function add() {
  const fields = [
    { name: "text", label: "Text", value: search.value.trim(), required: true, hint: "The model finds the label by this text." },
    { name: "uid", label: "uid (optional)", hint: "Your own name for it; default: its text." },
  ];
  const made = await ask({ title: "Add a label", fields, verb: "Add" }, ({ text, uid }) => change("POST", "v1/labels", { text: text.trim(), uid: uid.trim() || undefined }));
  if (!made) return;
  const [row] = made.labels;
  await tell("Added:", row, true, [hint("The model finds it by its text alone so far: texts that say the same in other words will hardly get it. Examples change that."),
    button("Teach it with examples", () => teach(row))]);
}

async function teach(row) {
  const say = `Texts that should get \u201c${row.text}\u201d. The label learns from them in seconds; all other labels stay as they are.`;
  const fields = [{ name: "texts", label: "Examples, one per line", type: "lines", required: true, hint: "Five or more in different words work best." }];
  const made = await ask({ title: "Teach a label", say, fields, verb: "Teach" }, ({ texts }) =>
    change("POST", `v1/labels/${row.id}/teach`, { texts: texts.split(/\r?\n/).map((text) => text.trim()).filter(Boolean) }));
  if (made) await tell(`Learned from ${count(made.num_texts, "text")}:`, made.label);
}

async function rename(row) {
  const fields = [{ name: "text", label: "Text", value: row.text, required: true, hint: "Its id, its uid and its classifier stay." }];
  const made = await ask({ title: "Rename a label", fields, verb: "Rename" }, ({ text }) => change("PATCH", `v1/labels/${row.id}`, { text: text.trim() }));
  if (!made) return;
  await tell("Renamed to:", made.label, true);
  byId(`near-${row.id}`)?.parentElement.querySelector("button").focus();
}

async function remove(row) {
  const say = `\u201c${row.text}\u201d will never be predicted again. You cannot undo this here.`;
  const made = await ask({ title: "Remove this label?", say, verb: "Remove", danger: true }, () => change("DELETE", `v1/labels/${row.id}`));
  if (!made) return;
  search.focus();
  await tell("Removed:", made.removed);
}

const fromStart = () => {
  offset = 0;
  return show();
};
search.oninput = settled(fromStart, 150);
frequency.onchange = order.onchange = fromStart;
before.onclick = () => move(-PAGE);
after.onclick = () => move(PAGE);
byId("add").onclick = add;

export function fromAddress(said) {
  if (said.search !== null) search.value = said.search;
}
