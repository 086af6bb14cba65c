// How well other policies would have done: a row for each, with dot and whisker.

import { SteadyScale } from "./axis.js";
import { el, keyed, nameOf, setText, show } from "./elements.js";
import { between, count, decimalsFor, number } from "./format.js";
import { drawAxis, drawWhisker, makeAxis, makeWhisker } from "./whisker.js";
import { say } from "./words.js";

const table = document.getElementById("evaluation");
const body = table.tBodies[0];
const axis = makeAxis();
const steady = new SteadyScale();
const words = document.getElementById("evaluation-words");
document.getElementById("evaluation-axis").append(axis);

function makeRow(policy) {
  const cell = (label, ...children) => el("td", { "data-label": label }, ...children);
  const parts = {
    what: el("span", { class: "faint block" }),
    whisker: makeWhisker({}),
    estimate: el("span", { class: "strong" }),
    interval: el("span", { class: "faint block" }),
    decisions: el("span", { class: "strong" }),
    effective: el("span"),
  };
  const row = el(
    "tr",
    {},
    el("th", { scope: "row" }, nameOf(policy.name), parts.what),
    el("td", { class: "chart" }, parts.whisker),
    cell("estimate, 95 % interval", parts.estimate, " ", parts.interval),
    cell("patients", parts.decisions),
    cell("tell as much as", parts.effective),
  );
  row.parts = parts;
  return row;
}

function drawRow({ parts }, policy, { scale, decimals }) {
  setText(parts.what, [policy.words, policy.remark].filter((it) => it !== "").join(". "));
  drawWhisker(parts.whisker, scale, policy.estimate, policy.interval, {});
  setText(parts.estimate, number(policy.estimate, decimals));
  setText(parts.interval, between(policy.interval, decimals));
  setText(parts.decisions, count(policy.decisions));
  setText(parts.effective, count(Math.round(policy.effective)));
}

/** Draw the table, if the terms evaluate other policies. */
export function drawEvaluation({ state }) {
  const { evaluation, federation } = state;
  show(table.closest("section"), evaluation !== null);
  if (evaluation === null) return;
  const { low, high } = federation;
  const { policies, epsilon, batch } = evaluation;
  const reach = policies.flatMap((it) => [it.estimate, it.interval?.low ?? null, it.interval?.high ?? null]);
  const scale = steady.for(reach, low, high);
  drawAxis(axis, scale);
  const drawn = { scale, decimals: decimalsFor(high - low) };
  keyed(body, policies, (it) => it.name, makeRow, (row, it) => drawRow(row, it, drawn));
  setText(
    words,
    `${say("The mean {reward} that patients of all sites would have had, by which {arm} they got and how likely that was")}. ` +
      `Sites tell noisy sums of ${count(batch)} decisions each, which cost each patient epsilon ${epsilon} of privacy.`,
  );
}
