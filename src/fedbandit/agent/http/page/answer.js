// The answer: which arm is best so far, and how sure that is.

import { setAttribute, setAttributes, setText, setWords, show, svg } from "./elements.js";
import { percent, shortPercent } from "./format.js";
import { say } from "./words.js";

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

/** Whether a stopped arm has a higher estimate than the leader, which then is the best of those given alone. */
export function isAnyStoppedAhead({ arms, answer }) {
  const best = arms.find((arm) => arm.name === answer.leader)?.estimate ?? null;
  return best !== null && arms.some((arm) => arm.status !== "active" && arm.estimate !== null && arm.estimate > best);
}

/** Whether different arms lead for different patients, and that is more likely than not. */
export function isByStratum({ answer }) {
  const leaders = new Set(answer.strata.map((it) => it.leader).filter((it) => it !== null));
  return leaders.size > 1 && answer.strata_matter > 0.5;
}

/** What stands where no arm leads. */
function withoutLeader(arms) {
  const active = arms.filter((arm) => arm.status === "active");
  if (active.length === 0) return say("No {arm} is given");
  return active.some((arm) => arm.estimate !== null) ? "No answer yet" : "Nothing known yet";
}

/** Draw it. */
export function drawAnswer({ state }) {
  const { answer, arms } = state;
  const isOnly = isAlone(state);
  const ofWhich = !isOnly && isAnyStoppedAhead(state) ? say(" of the {arms} given now") : "";
  const kicker = leader.parentElement.querySelector(".kicker");
  show(kicker, answer.leader !== null);
  const best = answer.settled ? `Best on average${ofWhich}, settled` : `Best so far${ofWhich}`;
  setText(kicker, isOnly ? say("Only {arm} given") : best);
  const depends = isByStratum(state);
  setText(leader, depends ? "Depends on the patient" : (answer.leader ?? withoutLeader(arms)));
  setWords(words, answer.words, arms.map((arm) => arm.name));
  ring.parentElement.classList.toggle("without-ring", isOnly || depends || !arms.some((arm) => arm.status === "active"));
  const sign = shortPercent(answer.chance);
  setText(chance, sign);
  chance.classList.toggle("long", sign.length > 4);
  setAttribute(arc, "stroke-dasharray", `${(answer.chance ?? 0) * ROUND} ${ROUND}`);
  ring.classList.toggle("settled", answer.settled);
  const sure = answer.chance === null ? "How sure is not known yet" : `${percent(answer.chance)} sure`;
  setAttribute(ring, "aria-label", `${sure}; may count as settled from ${percent(SURE)}`);
  if (depends) return speak({ ...answer, leader: null }, "", answer.words);
  speak(answer, isOnly ? say("Only {arm} given") : `Best${answer.settled ? "" : " so far"}${ofWhich}`, withoutLeader(arms));
}

/** Put the answer into the live region: when it has changed in a way that matters, and not too often. */
function speak({ leader: name, chance: sure, settled }, what, otherwise) {
  const coarse = sure === null || sure > 0.99 || sure < 0.05 ? sure : Math.floor(20 * sure + 1e-9) / 20;
  const text =
    name === null
      ? `${otherwise}${otherwise.endsWith(".") ? "" : "."}`
      : `${what}: ${name}${sure === null ? "" : `, ${coarse === sure ? "" : "at least "}${percent(coarse)} sure`}.`;
  const now = performance.now() / 1000;
  const key = `${name} ${settled} ${text}`;
  if (key === spoken || now - spokenAt < SPEAK_EVERY) return;
  spoken = key;
  spokenAt = now;
  setText(said, text);
}
