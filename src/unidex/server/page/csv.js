// Results as CSV (RFC 4180), one row per label, safe to open in a spreadsheet.

const COLUMNS = ["line", "text", "rank", "uid", "label", "score", "probability", "frequency"];

// A spreadsheet runs a cell that starts with one of these as a formula; an apostrophe makes it text.
const FORMULA = /^[=+\-@\t\r]/;

// Numbers stay numbers, also negative ones; everything else is text.
export function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const safe = FORMULA.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(safe) || safe !== safe.trim() ? `"${safe.replaceAll('"', '""')}"` : safe;
}

// results: [{line, text, labels}]; a text without labels has one row. The byte order mark tells spreadsheets that this is
// UTF-8.
export function csv(results) {
  const notations = results.some(({ labels }) => labels.some((row) => row.notation)) ? ["notation"] : [];
  const columns = [...COLUMNS, ...notations];
  const rows = results.flatMap(({ line, text, labels }) => labels.length === 0 ? [[line, text]]
    : labels.map((row, rank) => [line, text, rank + 1, row.uid, row.text, row.score, row.probability, row.frequency, row.notation]));
  const lines = [columns, ...rows].map((row) => columns.map((_, place) => cell(row[place])).join(","));
  return `\ufeff${lines.join("\r\n")}\r\n`;
}

export const download = (name, text) => downloadFile(name, new Blob([text], { type: "text/csv;charset=utf-8" }));

export function downloadFile(name, blob) {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
