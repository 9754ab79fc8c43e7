// Modal dialogs. They are native, so that Escape closes them and the focus returns.

import { button, el, hint, sayProblem } from "./dom.js";
import { call, Problem, token } from "./service.js";

let number = 0;

// `act` gets the values of the fields and may throw a Problem, which the dialog shows. The result is the result of act,
// or null if the dialog was cancelled. fields: [{name, label, value, hint, type, required}]; type "lines" is a text box.
export function ask({ title, say = "", fields = [], verb, danger = false }, act) {
  number += 1;
  const id = `dialog-${number}`;
  const inputs = Object.fromEntries(fields.map((field) => [field.name, el(field.type === "lines" ? "textarea" : "input", {
    id: `${id}-${field.name}`, type: field.type !== "lines" && (field.type ?? "text"), autocomplete: "off", spellcheck: "false", required: field.required,
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

// Change labels with the token of this session, or ask for one. A wrong token is deleted.
export async function change(method, path, body) {
  const attempt = async (secret) => {
    if (!/^[!-~]+$/.test(secret)) throw new Problem(401, "", secret && "A token has only ASCII letters and signs, no spaces.");
    try {
      return { done: await call(method, path, { body, secret }) };
    } catch (problem) {
      if (problem.status === 401) throw new Problem(401, "", "The service does not know this token. Check it, or ask the person who runs the service for one.");
      return { problem }; // the token is right; the caller shows the problem
    }
  };
  let answer;
  try {
    answer = await attempt(token.read());
  } catch (error) {
    token.forget();
    const say = `To change labels you need a token of the service. This tab stores it until you close the tab. ${error.detail}`;
    const fields = [{ name: "token", label: "Token", type: "password", required: true }];
    answer = await ask({ title: "Token", say, fields, verb: "Continue" }, async (said) => {
      const got = await attempt(said.token.trim());
      token.keep(said.token.trim());
      return got;
    });
  }
  if (answer === null) throw new Problem(401, "", "No token given.");
  if (answer.problem) throw answer.problem;
  return answer.done;
}
