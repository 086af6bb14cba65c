// What needs a person: warnings of the agent, and neighbours that cannot be reached. Below it, what is good to know.

import { el, keyed, setText, setWords, show } from "./elements.js";
import { counted } from "./format.js";

const list = document.getElementById("warnings");
const notes = document.getElementById("notes");
const section = document.getElementById("attention");
const words = document.getElementById("attention-words");
const tally = document.getElementById("attention-count");

/** Neighbours that cannot be reached, in words. */
function unreachable(neighbours) {
  return neighbours
    .filter((it) => !it.left && !it.reachable)
    .map((it) => ({
      key: `link ${it.name}`,
      isUrgent: true,
      text: `${it.name} cannot be reached${it.last_error === null ? "" : `: ${it.last_error.replace(/\.$/, "")}`}. This site goes on with what it knows.`,
    }));
}

/** Warnings that need nobody, and the others. */
function apart(warnings, calmTexts) {
  const said = warnings.map((text, i) => ({ key: `${i} ${text}`, isUrgent: false, text }));
  const isCalm = (it) => calmTexts.includes(it.text);
  return [said.filter(isCalm), said.filter((it) => !isCalm(it))];
}

/** Draw it. */
export function drawAttention({ state, problem }) {
  const trouble =
    problem === null
      ? []
      : [{ key: "problem", isUrgent: true, text: `This agent cannot serve applications now: ${problem}.` }];
  const [calmOnes, pressing] = apart(state.warnings, [...(state.notes ?? []), ...(state.warnings_of_terms ?? [])]);
  const all = [...trouble, ...unreachable(state.neighbours), ...pressing];
  const names = [...state.arms, ...state.neighbours, state].map((it) => it.name);
  for (const [place, shown] of [
    [list, all],
    [notes, calmOnes],
  ]) {
    keyed(
      place,
      shown,
      (it) => it.key,
      (it) => el("li", { class: it.isUrgent ? "urgent" : null }),
      (node, it) => setWords(node, it.text, names),
    );
    show(place, shown.length > 0);
  }
  setText(words, all.length === 0 ? "Nothing needs a person" : "Needs a person");
  section.classList.toggle("quiet", all.length === 0);
  setText(tally, all.length === 0 ? "" : counted(all.length, "thing"));
}
