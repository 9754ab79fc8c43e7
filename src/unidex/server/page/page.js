// The whole page: tabs, theme, keys, the model, and a service that does not answer.

import * as address from "./address.js";
import { byId, count, el, sayProblem, settled } from "./dom.js";
import * as labels from "./labels.js";
import * as many from "./many.js";
import * as one from "./one.js";
import { call, on } from "./service.js";

const TABS = ["one", "many", "labels"];
const BOX = { one: "text", many: "lines", labels: "search" };
let current = "one";

function showTab(name, { focus = false } = {}) {
  current = TABS.includes(name) ? name : "one";
  for (const tab of TABS) {
    const button = byId(`tab-${tab}`);
    button.ariaSelected = tab === current;
    button.tabIndex = tab === current ? 0 : -1;
    byId(tab).hidden = tab !== current;
  }
  if (focus) byId(`tab-${current}`).focus();
  if (current === "labels") labels.show();
  keepAddress();
}

const keepAddress = settled(() => address.write({ ...one.inAddress(), ...labels.inAddress(), tab: current === "one" ? null : current }), 250);

for (const [place, tab] of TABS.entries()) {
  const button = byId(`tab-${tab}`);
  button.onclick = () => showTab(tab);
  button.onkeydown = (event) => {
    const to = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: TABS.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    showTab(TABS[(to + TABS.length) % TABS.length], { focus: true });
  };
}

function tryIt(text) {
  showTab("one");
  return one.tryText(text);
}

// The theme: the browser stores a choice that differs from the theme of the system.
const dark = matchMedia("(prefers-color-scheme: dark)");
const chosen = document.documentElement.dataset;
const isDark = () => (chosen.theme ? chosen.theme === "dark" : dark.matches);
const drawTheme = () => (byId("theme").ariaPressed = isDark());
byId("theme").onclick = () => {
  const next = isDark() ? "light" : "dark";
  chosen.theme = next;
  if ((next === "dark") === dark.matches) delete chosen.theme;
  drawTheme();
  try {
    if (chosen.theme) localStorage.setItem("unidex-theme", next);
    else localStorage.removeItem("unidex-theme");
  } catch {
    // Without storage the choice lasts for this visit.
  }
};
dark.onchange = drawTheme;
drawTheme();

// Escape closes the panel around the focus, or the last open one; a slash moves the focus to the input.
document.onkeydown = (event) => {
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") {
    const open = "[aria-expanded=true]";
    const button = event.target.closest("li")?.querySelector(open) ?? [...byId(current).querySelectorAll(open)].at(-1);
    button?.click();
    button?.focus();
  } else if (event.key === "/" && !event.target.closest("input:not([type=radio], [type=range]), textarea, select")) {
    event.preventDefault();
    byId(BOX[current]).focus();
  }
};

document.querySelector(".skip").onclick = () => {
  byId(BOX[current]).focus();
  return false; // the fragment has the request
};

// On a small screen the settings are closed, so that the results are near the text.
const wide = matchMedia("(min-width: 52.01rem)");
const drawSettings = () => (byId("settings").open = wide.matches);
wide.onchange = drawSettings;
drawSettings();

async function readModel() {
  try {
    const info = await call("GET", "v1/model");
    byId("model").replaceChildren(el("strong", {}, info.name), " ", el("span", {}, count(info.num_labels, "label")), info.version && el("span", { class: "version" }, info.version));
    document.title = `${info.name} \u00b7 unidex`;
    one.setModel(info);
    many.setModel(info);
    labels.setModel(info, { tryIt, refresh });
    return true;
  } catch (error) {
    if (error.status !== 0) sayProblem(byId("problem"), error, start);
    return false;
  }
}

const refresh = () => readModel().then(() => one.again());

function readAddress() {
  const said = address.read();
  one.fromAddress(said);
  labels.fromAddress(said);
  return said;
}

let started = false;

async function start() {
  if (!(await readModel())) return;
  started = true;
  const said = readAddress();
  showTab(said.tab ?? "one");
  one.again();
}

on("gone", () => {
  byId("gone").textContent = "The service does not answer. Trying again; your text stays.";
  byId("gone").hidden = false;
});
on("back", async () => {
  byId("gone").hidden = true;
  if (!started) return start();
  await refresh();
  if (current === "labels") labels.show();
});
on("model", readModel);
addEventListener("hashchange", () => {
  showTab(readAddress().tab ?? "one");
  one.again();
});
one.changed.addEventListener("change", keepAddress);
byId("search").addEventListener("input", keepAddress);

start();
