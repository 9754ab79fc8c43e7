// Predicted labels as rows: name, frequency, bar, number, explanation.

import { button, el, fixed, frequencyMark, labelName, percent, unseen } from "./dom.js";
import { openReasons } from "./reasons.js";

export const MODES = { both: "Both", dual: "Dual encoder", classifier: "Classifier" };

// A bar is a probability, or a score relative to the best score.
const share = (row, best) => Math.max(0, Math.min(1, row.probability ?? (best > 0 ? row.score / best : 0)));

// A list that keeps its rows while predictions change: bars move, and open panels stay open.
export class Rows {
  constructor(name, mode) {
    this.mode = mode;
    this.rows = new Map();
    this.element = el("ol", { class: "rows", "aria-label": name });
  }

  // k: number of requested labels; only: ids that no other list has.
  show({ text, k }, labels, only) {
    const best = Math.max(0, ...labels.map((row) => row.score));
    const kept = new Map();
    for (const [place, row] of labels.entries()) {
      const item = this.rows.get(row.id) ?? this.#item(row);
      kept.set(row.id, item);
      item.fill({ text, k, row }, share(row, best), only.has(row.id));
      const there = this.element.children[place];
      if (there !== item.element) this.element.insertBefore(item.element, there ?? null);
    }
    for (const [id, item] of this.rows) if (!kept.has(id)) item.element.remove();
    this.rows = kept;
  }

  #item(row) {
    const id = `why-${this.mode}-${row.id}`;
    const name = el("div", { class: "row-name" });
    const value = el("span", { class: "value" });
    const fill = el("div", { class: "fill" });
    const panel = el("div", { class: "reasons", id, hidden: true });
    const why = button("Why", () => open(panel.hidden), { class: "quiet why", "aria-expanded": "false", "aria-controls": id });
    const element = el("li", {}, el("div", { class: "row" }, name, value, why, el("div", { class: "meter" }, fill)), panel);
    let shown = null;
    let request = null;
    const open = (yes) => {
      why.ariaExpanded = yes;
      panel.hidden = !yes;
      request?.abort();
      if (!yes) return panel.replaceChildren();
      request = new AbortController();
      return openReasons(panel, { ...shown, mode: this.mode, signal: request.signal });
    };
    return {
      element,
      fill: (said, width, alone) => {
        const now = said.row;
        const calibrated = now.probability !== null;
        name.replaceChildren(labelName(now), frequencyMark(now.frequency), alone ? el("span", { class: "alone" }, "only here") : "");
        value.replaceChildren(unseen(calibrated ? "probability " : "score "), calibrated ? percent(now.probability) : fixed(now.score));
        value.title = `score ${fixed(now.score)}`;
        fill.style.setProperty("--share", width);
        why.ariaLabel = `Why ${now.text}`;
        const changed = shown && (shown.text !== said.text || shown.row.score !== now.score);
        shown = said;
        if (changed && !panel.hidden) open(true);
      },
    };
  }
}
