// Runs before anything is drawn, so that a page kept dark never flashes light. Without a choice the system decides.
"use strict";
try {
  const kept = localStorage.getItem("unidex-theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
} catch {
  // Storage may be forbidden; the system's choice holds.
}
