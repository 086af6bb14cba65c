// The links in a table.

import { el, keyed, nameOf, setText, show } from "./elements.js";
import { ago, count, duration } from "./format.js";
import { More } from "./more.js";
import { kindOf } from "./neighbours.js";

const body = document.getElementById("links").tBodies[0];
const more = new More(document.getElementById("more-links"), "neighbours");
const STATES = { live: "linked", unreachable: "unreachable" };

function makeRow(neighbour) {
  const cell = (label, ...children) => el("td", { "data-label": label }, ...children);
  const parts = {
    address: el("span", { class: "faint block" }),
    state: el("span", { class: "state" }),
    why: el("span", { class: "faint block" }),
    last: el("span"),
    received: el("span"),
    sent: el("span"),
    failed: el("span", { class: "faint block" }),
  };
  const row = el(
    "tr",
    {},
    el("th", { scope: "row" }, nameOf(neighbour.name), parts.address),
    cell("state", parts.state, parts.why),
    cell("last heard", parts.last),
    cell("messages in", parts.received, parts.failed),
    cell("out", parts.sent),
  );
  row.parts = parts;
  return row;
}

function problems({ failures, refusals }) {
  const said = [];
  if (failures > 0) said.push(`${count(failures)} failed`);
  if (refusals > 0) said.push(`${count(refusals)} refused`);
  return said.join(", ");
}

function drawRow(row, it, { now }) {
  const { parts } = row;
  const kind = kindOf(it);
  row.className = kind;
  const proxy = it.proxy === null || it.proxy === "none" ? "" : ` through ${it.proxy}`;
  setText(parts.address, it.address === null ? "calls us" : `${it.address}${proxy}`);
  setText(parts.state, STATES[kind]);
  parts.state.className = `state ${kind}`;
  setText(parts.why, it.linked_since === null ? "" : `for ${duration(now - it.linked_since)}`);
  setText(parts.last, it.last_heard === null ? "never" : ago(now - it.last_heard));
  setText(parts.received, count(it.received));
  setText(parts.sent, count(it.sent));
  setText(parts.failed, problems(it));
}

const URGENCY = { unreachable: 0, live: 1 };

/** Draw it: unreachable ones first. */
export function drawLinks(known) {
  const { neighbours } = known.state;
  const sorted = [...neighbours].sort((a, b) => URGENCY[kindOf(a)] - URGENCY[kindOf(b)]);
  const shown = more.of(sorted, () => drawLinks(known));
  keyed(
    body,
    shown,
    (it) => it.name,
    makeRow,
    (row, it) => drawRow(row, it, known),
  );
  show(body.parentElement, neighbours.length > 0);
  show(document.getElementById("alone"), neighbours.length === 0);
}
