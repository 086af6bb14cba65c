// The privacy of one reward, in words.

import { setText, show } from "./elements.js";
import { counted } from "./format.js";

const [line, promise, how] = ["privacy-line", "promise", "mechanism"].map((id) => document.getElementById(id));

/** The first sentence of the promise, which says what it means for a patient; and the rest of it. */
function apart({ epsilon_per_reward: epsilon, promise: text }) {
  if (epsilon === null) return ["Rewards are not protected.", text];
  const end = text.indexOf(". ") + 1;
  const first = text.slice(0, end).replaceAll(" %", "\u00a0%");
  return [first, text.slice(end).trim()];
}

/** Draw it. */
export function drawPrivacy({ state }) {
  const { privacy } = state;
  const [first, rest] = apart(privacy);
  setText(line, first);
  setText(promise, rest);
  setText(
    how,
    `${privacy.mechanism[0].toUpperCase()}${privacy.mechanism.slice(1)}. ${counted(privacy.releases, "release")} so far.`,
  );
  document.getElementById("privacy").classList.toggle("urgent", privacy.epsilon_per_reward === null);
  show(document.getElementById("insecure"), state.insecure);
}
