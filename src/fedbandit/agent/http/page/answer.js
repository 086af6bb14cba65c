// The answer: which arm is best so far, and how sure that is.

import { setAttribute, setAttributes, setText, setWords, show, svg } from "./elements.js";
import { percent, shortPercent } from "./format.js";

const ROUND = 2 * Math.PI * 52;
const SURE = 0.99; // the agent calls nothing settled below this chance
const SPEAK_EVERY = 20; // seconds: a screen reader should not speak with every reward
const [leader, words, chance, ring, said, mark] = ["leader", "answer-words", "chance", "ring", "said", "ring-mark"].map(
  (id) => document.getElementById(id),
);
let spoken = null;
let spokenAt = -Infinity;

const arc = ring.querySelector(".arc");
setAttributes(arc, { "stroke-dasharray": `0 ${ROUND}` });
mark.append(svg("line", { x1: 60, x2: 60, y1: 3, y2: 14, transform: `rotate(${SURE * 360} 60 60)` }));

/** Whether only one arm is given: then nothing is compared, and it is not the best of anything. */
export function isAlone({ arms, answer }) {
  return answer.chance === null && arms.filter((arm) => arm.status === "active").length === 1;
}

/** Draw it. */
export function drawAnswer({ state }) {
  const { answer, arms } = state;
  const isOnly = isAlone(state);
  const kicker = leader.parentElement.querySelector(".kicker");
  show(kicker, answer.leader !== null);
  setText(kicker, isOnly ? "Only arm given" : answer.settled ? "Best on average, settled" : "Best so far");
  setText(leader, answer.leader ?? "Nothing known yet");
  setWords(words, answer.words, arms.map((arm) => arm.name));
  ring.parentElement.classList.toggle("without-ring", isOnly);
  const sign = shortPercent(answer.chance);
  setText(chance, sign);
  chance.classList.toggle("long", sign.length > 4);
  setAttribute(arc, "stroke-dasharray", `${(answer.chance ?? 0) * ROUND} ${ROUND}`);
  ring.classList.toggle("settled", answer.settled);
  const sure = answer.chance === null ? "How sure is not known yet" : `${percent(answer.chance)} sure`;
  setAttribute(ring, "aria-label", `${sure}; may count as settled from ${percent(SURE)}`);
  speak(answer, isOnly);
}

/** Put the answer into the live region: when it has changed in a way that matters, and not too often. */
function speak({ leader: name, chance: sure, settled }, isOnly) {
  const coarse = sure === null || sure > 0.99 || sure < 0.05 ? sure : Math.floor(20 * sure + 1e-9) / 20;
  const text =
    name === null
      ? "Nothing is known yet."
      : isOnly
        ? `Only arm given: ${name}.`
        : `${settled ? "Best" : "Best so far"}: ${name}${sure === null ? "" : `, ${coarse === sure ? "" : "at least "}${percent(coarse)} sure`}.`;
  const now = performance.now() / 1000;
  const key = `${name} ${settled} ${text}`;
  if (key === spoken || now - spokenAt < SPEAK_EVERY) return;
  spoken = key;
  spokenAt = now;
  setText(said, text);
}
