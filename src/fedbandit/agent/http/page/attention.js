// What somebody should do, as the agent says it, in words for everybody. Below it, what is good to know.

import { el, keyed, setText, setWords, show } from "./elements.js";
import { counted } from "./format.js";
import { plain } from "./words.js";

const list = document.getElementById("warnings");
const notes = document.getElementById("notes");
const section = document.getElementById("attention");
const words = document.getElementById("attention-words");
const tally = document.getElementById("attention-count");

/** Lines to draw; what is more than a warning, such as a neighbour that cannot be reached, is urgent. */
function lines(texts, warnings) {
  return texts.map((text, i) => ({ key: `${i} ${text}`, isUrgent: !warnings.includes(text), text }));
}

/** Whether the page says so elsewhere: what waits for consent has a line with its button, stops and missing certificates too. */
const isBelow = (text) =>
  text.includes("'fedbandit arm accept ") || text.startsWith("arms are stopped: ") || text.startsWith("INSECURE: ");

/** Draw it. */
export function drawAttention({ state, problem, waiting = [] }) {
  const trouble =
    problem === null
      ? []
      : [{ key: "problem", isUrgent: true, text: `No patient can be treated with this site's help now: ${problem}.` }];
  const needed = lines(state.needs_person.filter((it) => !isBelow(it)), state.warnings);
  const all = [...trouble, ...needed.filter((it) => it.isUrgent), ...needed.filter((it) => !it.isUrgent)];
  const calmTexts = [...state.notes, ...state.warnings_of_terms];
  const calmOnes = lines(state.warnings.filter((it) => calmTexts.includes(it) && !isBelow(it)), state.warnings);
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
      (node, it) => setWords(node, plain(it.text), names),
    );
    show(place, shown.length > 0);
  }
  const things = all.length + waiting.length;
  setText(words, things === 0 ? "No action needed" : "Action needed");
  section.classList.toggle("quiet", things === 0);
  setText(tally, things === 0 ? "" : counted(things, "thing"));
}
