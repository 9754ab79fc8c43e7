// Questions that stop everything else: native dialogs, so that Escape closes them and focus comes back by itself.

import { button, el, hint, sayProblem } from "./dom.js";
import { call, Problem, token } from "./service.js";

let number = 0;

// Ask, do, and close: `act` gets what was written and may throw a Problem, which is shown in the dialog. The result is
// what act gave, or null when the dialog was left. fields: [{name, label, value, hint, type, required}].
export function ask({ title, say = "", fields = [], verb, danger = false }, act) {
  number += 1;
  const id = `dialog-${number}`;
  const inputs = Object.fromEntries(fields.map((field) => [field.name, el("input", {
    id: `${id}-${field.name}`, type: field.type ?? "text", autocomplete: "off", spellcheck: "false", required: field.required,
    "aria-describedby": field.hint && `${id}-${field.name}-hint` })]));
  for (const field of fields) inputs[field.name].value = field.value ?? "";
  const problem = el("div", { class: "problem", role: "alert", hidden: true });
  const leave = button("Cancel", () => dialog.close());
  const go = el("button", { class: danger ? "danger" : "main" }, verb);
  const form = el("form", { method: "dialog" }, el("h2", { id }, title), say && el("p", {}, say),
    fields.map((field) => el("div", { class: "field" }, el("label", { for: inputs[field.name].id }, field.label), inputs[field.name],
      field.hint && el("p", { class: "hint", id: `${id}-${field.name}-hint` }, field.hint))),
    problem, el("div", { class: "actions" }, leave, go));
  const dialog = el("dialog", { "aria-labelledby": id }, form);
  document.body.append(dialog);
  return new Promise((resolve) => {
    let result = null;
    dialog.onclose = () => {
      dialog.remove();
      resolve(result);
    };
    form.onsubmit = async (event) => {
      event.preventDefault();
      go.disabled = true;
      try {
        result = await act(Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value])));
        dialog.close();
      } catch (error) {
        if (!(error instanceof Problem)) throw error;
        sayProblem(problem, error);
        inputs[error.field]?.focus();
      } finally {
        go.disabled = false;
      }
    };
    dialog.showModal();
    if (danger) leave.focus();
    else Object.values(inputs)[0]?.select();
  });
}

// A change to the labels: with the token of this session, or one that is asked for. A wrong one is forgotten.
export async function change(method, path, body) {
  const attempt = async (secret) => {
    if (!/^[!-~]+$/.test(secret)) throw new Problem(401, "", secret && "A token is of ASCII letters and signs, without spaces.");
    try {
      return { done: await call(method, path, { body, secret }) };
    } catch (problem) {
      if (problem.status === 401) throw problem;
      return { problem }; // the token was right, what is wrong is said where it was asked for
    }
  };
  let answer;
  try {
    answer = await attempt(token.read());
  } catch (error) {
    token.forget();
    const say = `Labels are changed with a token of the service. It is kept until this tab is closed. ${error.detail}`;
    const fields = [{ name: "token", label: "Token", type: "password", required: true }];
    answer = await ask({ title: "Token", say, fields, verb: "Continue" }, async (said) => {
      const got = await attempt(said.token.trim());
      token.keep(said.token.trim());
      return got;
    });
  }
  if (answer === null) throw new Problem(401, "", "No token was given.");
  if (answer.problem) throw answer.problem;
  return answer.done;
}
