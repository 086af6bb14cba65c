// Asks for a token when the agent wants one, and keeps it until the tab is closed.

import { setText, show } from "./elements.js";

const KEY = "fedbandit-token";

/** The token, or null. */
export function token() {
  return sessionStorage.getItem(KEY);
}

/** Wire the form and the button that forgets; `onToken()` is called when the token has changed. */
export function addToken(section, forget, onToken) {
  const [form, input, error] = ["form", "input", "[role=alert]"].map((it) => section.querySelector(it));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const given = input.value.trim();
    if (given === "") {
      setText(error, "Paste a token first.");
    } else if (!/^[A-Za-z0-9._~+/=-]+$/.test(given)) {
      setText(error, "A token has letters, digits and . _ ~ + / - only, without spaces.");
    } else {
      sessionStorage.setItem(KEY, given);
      input.value = "";
      setText(error, "");
      onToken();
    }
    if (error.textContent !== "") input.focus();
  });
  forget.addEventListener("click", () => {
    sessionStorage.removeItem(KEY);
    onToken();
  });

  /** Ask, with what the agent said; `wasRefused`: there was a token, and it is wrong. */
  const ask = (reason) => {
    const wasRefused = token() !== null;
    sessionStorage.removeItem(KEY);
    setText(error, wasRefused ? `The agent says: ${reason}.` : "");
    show(section, true);
    input.focus();
  };
  return { ask, draw: () => show(forget, token() !== null) };
}
