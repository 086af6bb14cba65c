// The arms: a row each, with dot and whisker, what this site alone would believe, and what would be lost with it.

import * as actions from "./actions.js";
import { isAlone, isAnyStoppedAhead } from "./answer.js";
import { SteadyScale } from "./axis.js";
import { el, keyed, nameOf, setAttribute, setText, show } from "./elements.js";
import { between, count, decimalsFor, number, shortPercent } from "./format.js";
import { More } from "./more.js";
import { drawAxis, drawWhisker, makeAxis, makeWhisker } from "./whisker.js";
import { intervalOf, lost, say } from "./words.js";

const table = document.getElementById("arms");
const body = table.tBodies[0];
const axis = makeAxis();
const more = new More(document.getElementById("more-arms"), "{arms}");
const steady = new SteadyScale();
const waitingList = document.getElementById("waiting");
const stopsList = document.getElementById("stops");
document.getElementById("axis").append(axis);
document.getElementById("add-arm").addEventListener("click", actions.addArm);

/** Best first, unknown ones after them, stopped ones last; ties as in the terms. */
function ordered(arms) {
  const rank = (arm) => (arm.status !== "active" ? 2 : arm.estimate === null ? 1 : 0);
  return arms
    .map((arm, k) => ({ ...arm, k }))
    .sort((a, b) => rank(a) - rank(b) || (b.estimate ?? 0) - (a.estimate ?? 0) || a.k - b.k);
}

let order = [];

/** The order of rows; it stays while somebody points or tabs at them, or has opened a question. */
function inOrder(arms) {
  const sorted = ordered(arms);
  const isHeld = body.matches(":hover") || body.contains(document.activeElement);
  const known = new Map(sorted.map((arm) => [arm.name, arm]));
  if (!isHeld || order.length !== sorted.length || !order.every((name) => known.has(name))) {
    order = sorted.map((arm) => arm.name);
  }
  return order.map((name) => known.get(name));
}

function makeRow(arm) {
  const cell = (label, ...children) => el("td", { "data-label": label }, ...children);
  const parts = {
    badge: el("span", { class: "badge", hidden: true }),
    whisker: makeWhisker({ own: "ring" }),
    estimate: el("span", { class: "strong" }),
    interval: el("span", { class: "faint block" }),
    own: el("span"),
    noisy: el("span", { class: "faint block", hidden: true }, "(noisy)"),
    chance: el("span"),
    behind: el("span"),
    behindInterval: el("span", { class: "faint block" }),
    bar: el("span", { class: "fill" }),
    pulls: el("span", { class: "here" }),
    patients: el("span", { class: "strong" }),
    buttons: el("td", { class: "buttons" }),
  };
  const row = el(
    "tr",
    {},
    el(
      "th",
      { scope: "row" },
      el("span", { class: "arm-name" }, el("span", { class: "swatch" }), nameOf(arm.name)),
      " ",
      parts.badge,
    ),
    el("td", { class: "chart" }, parts.whisker),
    cell("estimate, 95 % interval", parts.estimate, " ", parts.interval),
    cell("this site alone", parts.own, parts.noisy),
    cell("chance to be best", parts.chance),
    cell(`${lost()} per 100 patients`, parts.behind, " ", parts.behindInterval),
    cell(
      "patients, of these here",
      el("span", { class: "bar", "aria-hidden": "true" }, parts.bar),
      parts.patients,
      " ",
      parts.pulls,
    ),
    parts.buttons,
  );
  row.parts = parts;
  return row;
}

function drawRow(row, arm, { scale, decimals, leader, best, mostPatients, rights, isNoisy }) {
  const { parts } = row;
  row.className = `status-${arm.status} colour-${arm.k % 8}${arm.name === leader ? " leader" : ""}`;
  const badge = arm.status !== "active" ? arm.status : arm.name === leader ? best : "";
  setText(parts.badge, badge);
  show(parts.badge, badge !== "");
  drawWhisker(parts.whisker, scale, arm.estimate, intervalOf(arm), { own: arm.own_mean }, arm.own_mean);
  setText(parts.estimate, number(arm.estimate, decimals));
  setText(parts.interval, between(intervalOf(arm), decimals));
  setText(parts.own, number(arm.own_mean, decimals));
  show(parts.noisy, isNoisy(arm));
  setText(parts.chance, shortPercent(arm.chance_best));
  const isBehind = arm.behind !== null && arm.name !== leader;
  const off = Math.max(0, decimals - 2);
  setText(parts.behind, isBehind ? number(100 * arm.behind, off) : arm.name === leader ? "none" : "–");
  setText(parts.behindInterval, isBehind ? between(arm.behind_interval, off, 100) : "");
  parts.bar.style.width = `${mostPatients === 0 ? 0 : (100 * arm.patients) / mostPatients}%`;
  setText(parts.patients, count(arm.patients));
  setText(parts.pulls, `(${count(arm.pulls)} here)`);
  drawButtons(parts.buttons, arm, rights);
}

const POSSIBLE = { active: ["suspend", "retire"], suspended: ["resume", "retire"], retired: [] };
const WORDS = { suspend: "Suspend…", resume: "Resume…", retire: "Retire…" };

function drawButtons(cell, arm, rights) {
  const possible = rights.includes("arms") ? (POSSIBLE[arm.status] ?? []) : [];
  const key = possible.join();
  if (cell.key === key) return;
  const hadFocus = cell.contains(document.activeElement);
  cell.key = key;
  cell.replaceChildren(
    ...possible.map((it) => actions.button(WORDS[it], arm.name, () => actions.changeArm(it, arm.name))),
  );
  if (hadFocus) (cell.querySelector("button") ?? document.getElementById("add-arm")).focus();
}

/** Draw the table, and what waits for consent. */
export function drawArms(known) {
  const { state, rights, waiting } = known;
  const { arms, answer, federation } = state;
  const { low, high } = federation;
  const decimals = decimalsFor(high - low);
  const within = (value) => Math.min(high, Math.max(low, value)); // an error may reach beyond what can be
  const reach = arms.flatMap((arm) => {
    const around = intervalOf(arm);
    return [arm.own_mean, arm.estimate, ...(around === null ? [] : [within(around.low), within(around.high)])];
  });
  const scale = steady.for(reach, low, high);
  const mostPatients = Math.max(0, ...arms.map((arm) => arm.patients));
  const isNoisy = ({ own_mean: own }) => own !== null && (own < low || own > high);
  const leader = isAlone(state) ? null : answer.leader;
  const best = `best${answer.settled ? "" : " so far"}${isAnyStoppedAhead(state) ? " of those given" : ""}`;
  const common = { scale, decimals, leader, best, mostPatients, rights, isNoisy };
  drawAxis(axis, scale);
  keyed(
    body,
    more.of(inOrder(arms), () => drawArms(known)),
    (arm) => arm.name,
    makeRow,
    (row, arm) => drawRow(row, arm, common),
  );
  const mayChange = rights.includes("arms");
  table.classList.toggle("operated", mayChange);
  show(document.getElementById("add-arm"), mayChange);
  drawWaiting(waiting, mayChange);
  drawStops(arms);
  const words = federation.counts === "patients" ? "patients" : "sites, which count alike";
  setText(
    document.getElementById("counts"),
    `${say("The estimate is the mean {reward} over all")} ${words}, ${say("where a {reward} counts from")} ${low} to ${high}.${
      arms.some(isNoisy)
        ? " A mean of this site alone that is marked (noisy) lies outside, because few patients and the noise that protects them are in it."
        : ""
    }`,
  );
}

/** Stops: who made them and why, and who has not said that it has them. */
function drawStops(arms) {
  const stopped = [
    ...arms.filter((arm) => arm.status !== "active" && arm.changed_by !== null),
    ...arms.flatMap(({ name, suspended_for: parts }) =>
      parts.map((it) => ({ ...it, name, status: `suspended for ${it.whom}`, changed_by: it.by })),
    ),
  ];
  show(stopsList, stopped.length > 0);
  keyed(
    stopsList,
    stopped,
    (arm) => `${arm.name} ${arm.status} ${arm.changed_by} ${arm.reason} ${arm.missing} ${arm.acknowledged_by} ${arm.resumed_by}`,
    (arm) =>
      el(
        "li",
        { class: arm.missing.length + arm.resumed_by.length > 0 ? "urgent" : null },
        nameOf(arm.name),
        ` is ${arm.status} by `,
        nameOf(arm.changed_by),
        arm.reason === "" ? ". " : `: ${arm.reason}. `,
        ...whoHas(arm),
      ),
    () => {},
  );
}

/** Which other sites have accepted a change. */
function consentOf({ accepted_by: having, not_accepted_by: missing }) {
  const others = having.length + missing.length;
  if (others === 0) return [];
  if (having.length === 0) return ["No other site has accepted it yet. "];
  if (missing.length === 0) return ["All other sites have accepted it: ", ...listed(having), ". "];
  return [`${having.length} of ${others} other sites have accepted it: `, ...listed(having), "; not ", ...listed(missing), ". "];
}

function whoHas({ acknowledged_by: having, missing, resumed_by: giving }) {
  const others = having.length + missing.length + giving.length;
  if (others === 0) {
    return ["No other site is known here."];
  }
  const has = (names) => (names.length === 1 ? " has" : " have");
  if (having.length === others) {
    return [...listed(having), `${has(having)} it.`];
  }
  return [
    `${having.length} of ${others} other sites have it`,
    ...(giving.length > 0
      ? ["; ", ...listed(giving), `${has(giving)} resumed it or accepted that, and ${giving.length === 1 ? "gives" : "give"} it`]
      : []),
    ...(missing.length > 0 ? ["; ", ...listed(missing), `${has(missing)} not said so, and may still give it`] : []),
    ".",
  ];
}

/** Names, the first ones if there are many. */
function listed(names) {
  const shown = names.slice(0, MOST_NAMED).flatMap((name, i) => [i === 0 ? "" : ", ", nameOf(name)]);
  return names.length > MOST_NAMED ? [...shown, ` and ${names.length - MOST_NAMED} more`] : shown;
}

const MOST_NAMED = 12;

const ASKS = { add: "add", resume: "resume", suspend: "suspend", retire: "retire for good" };

function drawWaiting(waiting, mayChange) {
  show(waitingList, waiting.length > 0);
  keyed(
    waitingList,
    waiting,
    (it) => `${it.id} ${mayChange} ${it.accepted_by} ${it.not_accepted_by}`,
    (it) =>
      el(
        "li",
        {},
        el(
          "span",
          {},
          nameOf(it.by),
          ` asks to ${ASKS[it.change] ?? it.change} `,
          nameOf(it.arm),
          it.whom === "" ? "" : ` for ${it.whom}`,
          it.reason === "" ? ". " : `: ${it.reason}. `,
          ...consentOf(it),
          "It waits for this site's consent.",
        ),
        ...(mayChange ? [actions.button("Accept…", `to ${it.change} ${it.arm}`, () => actions.accept(it))] : []),
      ),
    () => {},
  );
}
