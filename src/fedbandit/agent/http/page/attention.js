// What needs a person, as the agent says it. Below it, what is good to know.

import { el, keyed, setText, setWords, show } from "./elements.js";
import { counted } from "./format.js";

const list = document.getElementById("warnings");
const notes = document.getElementById("notes");
const section = document.getElementById("attention");
const words = document.getElementById("attention-words");
const tally = document.getElementById("attention-count");

/** Lines to draw; what is more than a warning, such as a neighbour that cannot be reached, is urgent. */
function lines(texts, warnings) {
  return texts.map((text, i) => ({ key: `${i} ${text}`, isUrgent: !warnings.includes(text), text }));
}

/** Draw it. */
export function drawAttention({ state, problem }) {
  const trouble =
    problem === null
      ? []
      : [{ key: "problem", isUrgent: true, text: `This agent cannot serve applications now: ${problem}.` }];
  const needed = lines(state.needs_person, state.warnings);
  const all = [...trouble, ...needed.filter((it) => it.isUrgent), ...needed.filter((it) => !it.isUrgent)];
  const calmTexts = [...state.notes, ...state.warnings_of_terms];
  const calmOnes = lines(state.warnings.filter((it) => calmTexts.includes(it)), state.warnings);
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
