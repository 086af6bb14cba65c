// Decisions and rewards of this site, and what was refused.

import { el, keyed, setText, show } from "./elements.js";
import { count, duration, share, whole } from "./format.js";

const FACTS = document.getElementById("facts");
const PLAN = document.getElementById("plan");
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
  drawPlan(federation, decisions.handed_out);
  drawFacts(FACTS, [
    ["patients at all sites", count(federation.patients)],
    ["patients here", count(decisions.handed_out)],
    ["patients here per minute, lately", whole(rates.decisions_per_minute)],
    ["patients here whose outcome counts", count(arms.reduce((sum, arm) => sum + arm.rewards, 0))],
    [neighbours.length === 1 ? "neighbour linked" : "neighbours linked", `${neighbours.filter((it) => it.reachable).length} of ${neighbours.length}`],
    [federation.num_agents === 1 ? "site that counts" : "sites that count", count(federation.num_agents)],
  ]);
}

/** What was planned, beside what is; nothing where nobody has planned anything. */
function drawPlan({ patients, plan }, here) {
  const of = (now, planned) => `${count(now)} of ${count(planned)} (${share(now / planned)})`;
  const facts = [
    ["question", plan.question],
    ["start, as planned", plan.starts],
    ["patients at all sites, of those planned", plan.patients === null ? "" : of(patients, plan.patients)],
    ["patients here, of those expected", plan.per_site === null ? "" : of(here, plan.per_site)],
    ["when to stop", plan.stops],
  ].filter(([, value]) => value !== "");
  show(PLAN.closest("section"), facts.length > 0);
  drawFacts(PLAN, facts);
}

/** Draw the book of decisions, and refusals. */
export function drawDecisions({ state }) {
  const { decisions: it, federation } = state;
  const hasWindow = federation.reward_window > 0;
  const forgotten = Object.values(it.forgotten).reduce((sum, value) => sum + value, 0);
  drawFacts(BOOK, [
    ["patients whose outcome is not reported yet", count(it.pending), "It may still come."],
    [
      "outcomes that count later",
      count(it.waiting),
      `They are reported. ${hasWindow ? "Their time is not over" : "One of an earlier patient is missing"}, or this site tells others nothing now.`,
    ],
    ...(hasWindow
      ? [["outcomes that came too late", count(it.late), `Their time was over: ${federation.default_reward} counted instead.`]]
      : []),
    ["patients forgotten without an outcome", count(forgotten), "Since this process started."],
    [
      "time limit for a report",
      hasWindow ? duration(federation.reward_window) : "none",
      hasWindow
        ? "From the decision. At the end it counts."
        : "It counts whenever it comes, as long as this site remembers the decision.",
    ],
    [
      "decisions that this site remembers",
      count(it.remembered),
      `What became of them can still be reported. It remembers ${count(it.keep)} at most.`,
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
