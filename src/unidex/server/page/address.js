// The request in the fragment of the address, which browsers never send: a link can be shared, and no server or proxy
// logs the text.

const LONGEST = 8000;

export function read() {
  const said = new URLSearchParams(location.hash.slice(1));
  return Object.fromEntries(["text", "k", "mode", "min", "language", "tab", "search"].map((name) => [name, said.get(name)]));
}

// A text that is too long is left out; the result tells whether the address is complete.
export function write(parts) {
  const said = new URLSearchParams();
  let all = true;
  for (const [name, value] of Object.entries(parts)) {
    if (value === null || value === "" || value === undefined) continue;
    if (String(value).length > LONGEST) all = false;
    else said.set(name, value);
  }
  const hash = said.toString();
  if (hash !== location.hash.slice(1)) history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
  return all;
}
