// The links in a table: their state, and what each carries.

import * as actions from "./actions.js";
import { el, keyed, nameOf, setText, show } from "./elements.js";
import { ago, count, rough, share } from "./format.js";
import { More } from "./more.js";
import { kindOf } from "./neighbours.js";

const body = document.getElementById("links").tBodies[0];
const more = new More(document.getElementById("more-links"), "neighbours");
const STATES = { live: "in reach", unreachable: "unreachable", left: "has left" };

function makeRow(neighbour) {
  const cell = (label, ...children) => el("td", { "data-label": label }, ...children);
  const parts = {
    address: el("span", { class: "faint block" }),
    state: el("span", { class: "state" }),
    last: el("span"),
    exchanges: el("span"),
    failed: el("span", { class: "faint block" }),
    fill: el("span", { class: "fill" }),
    most: el("span"),
    flows: el("tbody"),
    numbers: el("p", { class: "help" }),
    button: el("td", { class: "buttons" }),
  };
  const heads = ["arm", "value", "weight", "of its bound"].map((text) => el("th", { scope: "col" }, text));
  const inner = el("table", { class: "flows" }, el("thead", {}, el("tr", {}, ...heads)), parts.flows);
  const scroller = el(
    "div",
    { class: "scroller", tabindex: 0, role: "region", "aria-label": `What the link to ${neighbour.name} carries` },
    parts.numbers,
    inner,
  );
  parts.details = el("details", {}, el("summary", {}, parts.most), scroller);
  const row = el(
    "tr",
    {},
    el("th", { scope: "row" }, nameOf(neighbour.name), parts.address),
    cell("state", parts.state),
    cell("last exchange", parts.last),
    cell("exchanges", parts.exchanges, parts.failed),
    cell("what it told us", el("span", { class: "bar", "aria-hidden": "true" }, parts.fill), parts.details),
    parts.button,
  );
  row.parts = parts;
  parts.details.addEventListener("toggle", () => {
    parts.details.parentElement.classList.toggle("is-open", parts.details.open);
    row.drawFlows?.();
  });
  return row;
}

/** What a link carries, as the state has it. */
function drawFlows(table, flow) {
  keyed(
    table,
    flow,
    (it) => it.arm,
    (it) => el("tr", {}, el("th", { scope: "row" }, nameOf(it.arm)), el("td"), el("td"), el("td")),
    (row, it) => {
      setText(row.children[1], rough(it.value));
      setText(row.children[2], rough(it.weight));
      setText(row.children[3], share(it.share));
    },
  );
}

function problems({ failures, refusals, unheard }) {
  const said = [];
  if (failures > 0) said.push(`${count(failures)} failed`);
  if (refusals > 0) said.push(`${count(refusals)} refused`);
  if (unheard > 0) said.push(`${count(unheard)} unheard`);
  return said.join(", ");
}

function drawRow(row, it, { rights, now }) {
  const { parts } = row;
  const kind = kindOf(it);
  row.className = kind;
  setText(parts.address, it.address ?? "dials us");
  setText(parts.state, STATES[kind]);
  parts.state.className = `state ${kind}`;
  setText(parts.last, it.last_exchange === null ? "none yet" : ago(now - it.last_exchange));
  setText(parts.exchanges, count(it.exchanges));
  setText(parts.failed, problems(it));
  const most = Math.max(0, ...it.flow.map((flow) => flow.share));
  parts.fill.style.width = `${100 * Math.min(1, most)}%`;
  parts.fill.classList.toggle("full", most > TOO_MUCH);
  setText(parts.most, loadOf(most));
  parts.most.className = most > TOO_MUCH ? "error strong" : "";
  row.drawFlows = () => {
    if (!parts.details.open) return; // others cost nothing
    setText(
      parts.numbers,
      `The most of any arm is ${share(most)} of its bound; the last exchange moved ${share(it.moved)} of it.`,
    );
    drawFlows(parts.flows, it.flow);
  };
  row.drawFlows();
  const can = rights.includes("neighbours") ? (it.left ? "rejoin" : "leave") : "";
  if (parts.button.key !== can) {
    const hadFocus = parts.button.contains(document.activeElement);
    parts.button.key = can;
    const words = { leave: "Leave…", rejoin: "Rejoin…" };
    parts.button.replaceChildren(
      ...(can === "" ? [] : [actions.button(words[can], it.name, () => actions[can](it.name))]),
    );
    if (hadFocus) parts.button.querySelector("button")?.focus();
  }
}

const TOO_MUCH = 0.9; // of its bound: from there on an alert is raised, too

/** What a link carries, in a word or two. */
function loadOf(most) {
  if (most === 0) return "nothing yet";
  return most > TOO_MUCH ? "too much" : most > 0.5 ? "near its bound" : "normal";
}

const URGENCY = { unreachable: 0, live: 1, left: 2 };

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
  body.parentElement.classList.toggle("operated", known.rights.includes("neighbours"));
  show(body.parentElement, neighbours.length > 0);
  show(document.getElementById("alone"), neighbours.length === 0);
}
