// For whom which arm is best: a group of rows for each stratum, a row for each arm, with dot and whisker.

import * as actions from "./actions.js";
import { SteadyScale } from "./axis.js";
import { el, keyed, nameOf, setAttribute, setText, show } from "./elements.js";
import { between, count, decimalsFor, number, share, shortPercent } from "./format.js";
import { More } from "./more.js";
import { drawAxis, drawWhisker, makeAxis, makeWhisker } from "./whisker.js";
import { say } from "./words.js";

const table = document.getElementById("strata");
const body = table.tBodies[0];
const axis = makeAxis();
const steady = new SteadyScale();
const more = new More(document.getElementById("more-strata"), "groups");
const words = document.getElementById("strata-words");
document.getElementById("strata-axis").append(axis);

function makeRow({ stratum, arm, isFirst }) {
  const cell = (label, ...children) => el("td", { "data-label": label }, ...children);
  const parts = {
    badge: el("span", { class: "badge", hidden: true }),
    whisker: makeWhisker({}),
    estimate: el("span", { class: "strong" }),
    interval: el("span", { class: "faint block" }),
    chance: el("span"),
    patients: el("span", { class: "strong" }),
    pulls: el("span", { class: "here" }),
    part: el("span", { class: "faint block" }),
    buttons: el("td", { class: "buttons" }),
  };
  const row = el(
    "tr",
    {},
    ...(isFirst ? [el("th", { scope: "rowgroup", class: "group" }, nameOf(stratum.label), parts.part)] : []),
    el("th", { scope: "row" }, el("span", { class: "arm-name" }, el("span", { class: "swatch" }), nameOf(arm.name)), " ", parts.badge),
    el("td", { class: "chart" }, parts.whisker),
    cell("estimate, 95 % interval", parts.estimate, " ", parts.interval),
    cell("chance to be best", parts.chance),
    cell("patients, of these here", parts.patients, " ", parts.pulls),
    parts.buttons,
  );
  row.parts = parts;
  return row;
}

/** What may be done for these patients alone: a stop that is for others, too, is not lifted here. */
function drawButtons(cell, { stratum, arm, status }, mayChange) {
  const stop = arm.suspended_for.find((it) => it.strata.includes(stratum.label));
  const change = arm.status !== "active" ? null : status === "active" ? "suspend" : stop?.context ? "resume" : null;
  const key = mayChange && change !== null ? `${change} ${stop?.whom}` : "";
  if (cell.key === key) return;
  cell.key = key;
  const [whom, levels] = change === "resume" ? [stop.whom, stop.context] : [stratum.label, stratum.context];
  const text = change === "resume" ? "Resume…" : "Suspend…";
  cell.replaceChildren(
    ...(key === ""
      ? []
      : [actions.button(text, `${arm.name}, ${whom}`, () => actions.changeArm(change, arm.name, whom, levels))]),
  );
}

function drawRow(row, it, { scale, decimals, counts, mayChange }) {
  const { stratum, arm, k, isFirst, rows, status } = it;
  const { parts } = row;
  const isBest = stratum.leader === arm.name;
  drawButtons(parts.buttons, it, mayChange);
  row.className = `status-${status} colour-${k % 8}${isBest ? " leader" : ""}${isFirst ? " first" : ""}`;
  if (isFirst) {
    setAttribute(row.querySelector(".group"), "rowspan", rows);
    setText(parts.part, `${share(stratum.frequency)} of all ${counts}`);
  }
  setText(parts.badge, status !== "active" ? status : isBest ? (stratum.settled ? "best, settled" : "best so far") : "");
  show(parts.badge, parts.badge.textContent !== "");
  drawWhisker(parts.whisker, scale, stratum.estimates[k], stratum.intervals[k], {});
  setText(parts.estimate, number(stratum.estimates[k], decimals));
  setText(parts.interval, between(stratum.intervals[k], decimals));
  setText(parts.chance, shortPercent(stratum.chances[k]));
  setText(parts.patients, count(stratum.patients[k]));
  setText(parts.pulls, `(${count(stratum.pulls[k])} here)`);
}

/** Draw the table, if the policy tells strata apart. */
export function drawStrata(known) {
  const { arms, answer, federation } = known.state;
  const mayChange = known.rights.includes("arms");
  const { strata } = answer;
  show(table.closest("section"), strata.length > 0);
  if (strata.length === 0) return;
  const { low, high } = federation;
  const within = (value) => Math.min(high, Math.max(low, value));
  const reach = strata.flatMap((it) => [
    ...it.estimates,
    ...it.intervals.flatMap((around) => (around === null ? [] : [within(around.low), within(around.high)])),
  ]);
  const scale = steady.for(reach, low, high);
  drawAxis(axis, scale);
  const shown = more.of(strata, () => drawStrata(known));
  keyed(
    body,
    shown.flatMap((stratum) =>
      arms.map((arm, k) => ({ stratum, arm, k, isFirst: k === 0, rows: arms.length, status: stratum.statuses[k] })),
    ),
    ({ stratum, arm }) => `${stratum.label}\u0000${arm.name}`,
    makeRow,
    (row, it) => drawRow(row, it, { scale, decimals: decimalsFor(high - low), counts: federation.counts, mayChange }),
  );
  table.classList.toggle("operated", mayChange);
  const factors = Object.keys(federation.context ?? {}).join(", ");
  setText(
    words,
    `${say("The mean {reward} of each {arm}, by what is known of a patient before one is chosen")} (${factors}). ` +
      "Estimates of one group lean on those of the others, as far as they are alike. Nothing of it is about one patient.",
  );
}
