// Requests to the service, the token, and whether the service answers. Addresses are relative, for a proxy with a prefix.

// An error as an answer (problem+json).
export class Problem extends Error {
  constructor(status, title, detail, { field = null, retryAfter = 0 } = {}) {
    super(detail);
    Object.assign(this, { status, title, detail, field, retryAfter });
  }
}

const TOKEN = "unidex-token";
const RETRY_MS = 1500;
const events = new EventTarget();
let gone = false;
let model = "";

// Events: "gone" and "back" (the service), "model" (the model was replaced).
export const on = (name, run) => events.addEventListener(name, run);

// The browser stores the token until the tab is closed.
export const token = {
  read: () => sessionStorage.getItem(TOKEN) ?? "",
  keep: (value) => sessionStorage.setItem(TOKEN, value),
  forget: () => sessionStorage.removeItem(TOKEN),
};

const address = (path) => new URL(path, document.baseURI.split("#")[0]);

async function knock() {
  try {
    const answer = await fetch(address("ready"), { cache: "no-store" });
    if (answer.ok) {
      gone = false;
      events.dispatchEvent(new Event("back"));
      return;
    }
  } catch {
    // Still gone.
  }
  setTimeout(knock, RETRY_MS);
}

function lost() {
  if (gone) return;
  gone = true;
  events.dispatchEvent(new Event("gone"));
  setTimeout(knock, RETRY_MS);
}

async function problemOf(answer) {
  const retryAfter = Number(answer.headers.get("Retry-After")) || 0;
  try {
    const said = await answer.json();
    return new Problem(answer.status, said.title ?? answer.statusText, said.detail ?? "", { field: said.field, retryAfter });
  } catch {
    return new Problem(answer.status, answer.statusText || "Error", `The service answered ${answer.status} without a reason.`, { retryAfter });
  }
}

// Send a file; the answer is a file.
export async function upload(path, file, { signal } = {}) {
  const answer = await reach(path, { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: file, signal });
  return answer.blob();
}

async function reach(path, options) {
  let answer;
  try {
    answer = await fetch(address(path), { ...options, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    lost();
    throw new Problem(0, "No answer", "The service does not answer.");
  }
  if (!answer.ok) throw await problemOf(answer);
  return answer;
}

// Send one request. It throws AbortError if aborted, which callers ignore, and a Problem for every other failure.
export async function call(method, path, { body, signal, secret } = {}) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (secret) headers.Authorization = `Bearer ${secret}`;
  const answer = await reach(path, { method, headers, body: body && JSON.stringify(body), signal });
  if (!answer.headers.get("Content-Type")?.startsWith("application/json")) return answer.text();
  const said = await answer.json();
  if (said.model && said.model !== model) {
    const first = model === "";
    model = said.model;
    if (!first) events.dispatchEvent(new Event("model"));
  }
  return said;
}

export const isAborted = (error) => error.name === "AbortError";
