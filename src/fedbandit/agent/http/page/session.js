// Who looks at the page: a form to sign in with a token, the name of the person, and the way out.

import { setAttribute, setText, show } from "./elements.js";
import { CallFailed, changesWith, signIn, signOut } from "./agent.js";

const [section, person, out, proxyOut] = ["sign-in", "person", "sign-out", "proxy-sign-out"].map((id) =>
  document.getElementById(id),
);
const [form, input, error, go] = ["form", "input", "[role=alert]", "button"].map((it) => section.querySelector(it));

/** Wire the form and the button; `onChange()` is called when somebody has signed in or out. */
export function addSession(onChange) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const given = input.value.trim();
    setText(error, "");
    if (given === "") {
      setText(error, "Paste a token first.");
    } else if (!/^[A-Za-z0-9._~+/=-]+$/.test(given)) {
      setText(error, "A token has letters, digits and . _ ~ + / - only, without spaces.");
    } else if (await tried(() => signIn(given))) {
      input.value = "";
      show(section, false);
      onChange();
      return;
    }
    input.focus();
  });
  out.addEventListener("click", async () => {
    if (await tried(signOut)) onChange();
  });
}

/** Whether a call succeeded; what went wrong is said beside the form. */
async function tried(call) {
  go.disabled = out.disabled = true;
  try {
    await call();
    return true;
  } catch (failure) {
    if (!(failure instanceof CallFailed)) throw failure;
    setText(error, `The agent says: ${failure.message}.`);
    return false;
  } finally {
    go.disabled = out.disabled = false;
  }
}

/** Ask who is there; `words`: what became of somebody who was known, or empty. */
export function ask(words) {
  setText(error, words);
  show(section, true);
  input.focus();
}

/** Say who is there; `session` as the agent tells it, or null. */
export function drawSession({ session }) {
  changesWith(session?.csrf ?? null);
  const way = session?.way ?? "";
  setText(person.querySelector("bdi"), session?.name ?? "");
  show(person, (session?.name ?? "") !== "");
  show(out, way === "session");
  show(proxyOut, way === "proxy" && session.sign_out !== null);
  setAttribute(proxyOut, "href", way === "proxy" ? session.sign_out : null);
}
