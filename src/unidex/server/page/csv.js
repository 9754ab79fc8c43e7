// Results as CSV (RFC 4180), a row a label, safe to open in a spreadsheet.

const COLUMNS = ["line", "text", "rank", "uid", "label", "score", "probability", "frequency"];

// A spreadsheet runs a cell that begins with one of these as a formula; an apostrophe before it makes it text.
const FORMULA = /^[=+\-@\t\r]/;

// Numbers are ours and stay numbers, also those below 0; everything else is somebody's text.
export function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const safe = FORMULA.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(safe) || safe !== safe.trim() ? `"${safe.replaceAll('"', '""')}"` : safe;
}

// results: [{line, text, labels}]; a text without labels keeps one row, so that none is lost. The mark in front tells
// spreadsheets that this is UTF-8.
export function csv(results) {
  const rows = results.flatMap(({ line, text, labels }) => labels.length === 0 ? [[line, text]]
    : labels.map((row, rank) => [line, text, rank + 1, row.uid, row.text, row.score, row.probability, row.frequency]));
  const lines = [COLUMNS, ...rows].map((row) => COLUMNS.map((_, place) => cell(row[place])).join(","));
  return `\ufeff${lines.join("\r\n")}\r\n`;
}

export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
