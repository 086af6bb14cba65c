// Decisions and rewards of this site, and what was refused.

import { el, keyed, setText, show } from "./elements.js";
import { count, duration, whole } from "./format.js";

const FACTS = document.getElementById("facts");
const BOOK = document.getElementById("book");
const REFUSED = document.getElementById("refused");

const REASONS = {
  "not a neighbour": "calls from sites that are not neighbours of this one",
  certificate: "certificates with a name that no site can have",
  connections: "more connections than one neighbour may have",
  "other terms": "calls from sites that agreed to other terms",
  message: "messages that were malformed or out of bounds",
  disk: "calls that came while the disk could not be written",
  "unfinished handshake": "connections that never finished their handshake",
};

function drawFacts(list, facts) {
  keyed(
    list,
    facts,
    ([label]) => label,
    ([label, , help]) =>
      el("div", {}, el("dt", {}, label, ...(help === undefined ? [] : [el("span", { class: "help" }, help)])), el("dd")),
    (node, [, value]) => setText(node.lastChild, value),
  );
}

/** Draw the numbers beside the answer. */
export function drawFactsOfSite({ state }) {
  const { rates, decisions, federation, neighbours, arms } = state;
  drawFacts(FACTS, [
    ["decisions per minute, lately", whole(rates.decisions_per_minute)],
    ["rewards per minute, lately", whole(rates.rewards_per_minute)],
    ["decisions so far", count(decisions.handed_out)],
    ["rewards that count", count(arms.reduce((sum, arm) => sum + arm.rewards, 0))],
    [neighbours.length === 1 ? "neighbour linked" : "neighbours linked", `${neighbours.filter((it) => it.reachable).length} of ${neighbours.length}`],
    [federation.num_agents === 1 ? "site that counts" : "sites that count", count(federation.num_agents)],
  ]);
}

/** Draw the book of decisions, and refusals. */
export function drawDecisions({ state }) {
  const { decisions: it, federation } = state;
  const hasWindow = federation.reward_window > 0;
  const forgotten = Object.values(it.forgotten).reduce((sum, value) => sum + value, 0);
  drawFacts(BOOK, [
    ["decisions without a reward so far", count(it.pending), "The application has not reported it, and it may still come."],
    [
      "rewards that count later",
      count(it.waiting),
      `They are reported. ${hasWindow ? "Their window is open" : "One of an earlier decision is missing"}, or this site releases nothing now.`,
    ],
    ...(hasWindow
      ? [["rewards that came too late", count(it.late), `Their window was over: ${federation.default_reward} counted instead.`]]
      : []),
    ["decisions forgotten without a reward", count(forgotten), "Since this process started."],
    [
      "time limit for a reward",
      hasWindow ? duration(federation.reward_window) : "none",
      hasWindow
        ? "From its decision. At the end it counts."
        : "It counts whenever it comes, as long as this agent remembers its decision.",
    ],
    [
      "decisions that it remembers",
      count(it.remembered),
      `Their reward can still be reported or repeated. It remembers ${count(it.keep)} at most.`,
    ],
    ...(it.per_day === null
      ? []
      : [["patients per day, by its own count", count(Math.round(it.per_day)), "So much this site counts in the mean over all patients."]]),
  ]);
  const reasons = Object.entries(state.refused).filter(([, times]) => times > 0);
  const byNeighbours = state.neighbours.filter((n) => n.refusals > 0);
  show(document.getElementById("none-refused"), reasons.length + byNeighbours.length === 0);
  drawFacts(REFUSED, [
    ...reasons.map(([reason, times]) => [Object.hasOwn(REASONS, reason) ? REASONS[reason] : reason, count(times)]),
    ...byNeighbours.map((n) => [
      `calls from ${n.name}${n.last_error === null ? "" : `: ${n.last_error}`}`,
      count(n.refusals),
    ]),
  ]);
}
