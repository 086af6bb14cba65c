// Light or dark: as the system says, until somebody chooses.

import { setAttribute, setText } from "./elements.js";

const KEY = "fedbandit-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");
const listeners = [];

function chosen() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // storage may be forbidden
  }
}

let choice = chosen();

/** Whether the page is dark now. */
export function isDark() {
  return choice === null ? dark.matches : choice === "dark";
}

/** Call `draw()` when the theme has changed. */
export function onTheme(draw) {
  listeners.push(draw);
}

/** The colour that a class has in this theme, for a canvas. */
export function colourOf(className) {
  const probe = document.createElement("span");
  probe.className = className;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** Make a button toggle the theme. */
export function addToggle(button) {
  const draw = () => {
    setAttribute(document.documentElement, "data-theme", choice);
    setText(button, isDark() ? "Light" : "Dark");
    button.setAttribute("aria-label", isDark() ? "Switch to the light theme" : "Switch to the dark theme");
    for (const listener of listeners) listener();
  };
  button.addEventListener("click", () => {
    choice = isDark() ? "light" : "dark";
    try {
      if ((choice === "dark") === dark.matches) localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, choice);
    } catch {
      // then it holds until the page is closed
    }
    draw();
  });
  dark.addEventListener("change", draw);
  draw();
}
