// All sites of the federation: which count here, how old their bulletins are, and what is wrong with them.

import * as actions from "./actions.js";
import { el, keyed, nameOf, setText, show } from "./elements.js";
import { ago, count, counted, share, time } from "./format.js";
import { More } from "./more.js";

const table = document.getElementById("members");
const body = table.tBodies[0];
const more = new More(document.getElementById("more-members"), "members");
const STATES = {
  counts: "counts",
  excluded: "excluded",
  refused: "refused",
  conflict: "conflict",
  doubtful: "does not count",
};

/** One of the states above. */
function kindOf(member) {
  if (member.refused) return "refused";
  if (member.excluded) return "excluded";
  if (member.conflict !== null) return "conflict";
  return member.counts ? "counts" : "doubtful";
}

const URGENCY = { conflict: 0, doubtful: 1, counts: 2, excluded: 3, refused: 4 };

function makeRow(member) {
  const cell = (label, ...children) => el("td", { "data-label": label }, ...children);
  const parts = {
    self: el("span", { class: "faint block" }),
    state: el("span", { class: "state" }),
    since: el("span"),
    place: el("span", { class: "faint block" }),
    decisions: el("span"),
    releases: el("span"),
    fill: el("span", { class: "fill" }),
    share: el("span"),
    odd: el("ul", { class: "odd" }),
    button: el("td", { class: "buttons" }),
  };
  const row = el(
    "tr",
    {},
    el("th", { scope: "row" }, nameOf(member.name), parts.self),
    cell("state", parts.state),
    cell("its newest message", parts.since, parts.place),
    cell("patients", parts.decisions),
    cell("releases", parts.releases),
    cell("largest share", el("span", { class: "bar", "aria-hidden": "true" }, parts.fill), parts.share),
    cell("what is odd", parts.odd),
    parts.button,
  );
  row.parts = parts;
  return row;
}

/** What is odd: words, and of a conflict both signatures. */
function oddOf({ oddities, conflict }) {
  const found = oddities.map((text) => ({ key: text, text, signatures: [] }));
  if (conflict !== null) {
    const text = `two different messages with the number ${conflict.number}`;
    found.unshift({ key: conflict.signatures.join(), text, signatures: conflict.signatures });
  }
  return found;
}

function makeOdd({ text, signatures }) {
  if (signatures.length === 0) return el("li", {}, text);
  const shown = signatures.map((it) => el("code", { class: "block" }, it === "" ? "(no signature: insecure)" : it));
  return el("li", {}, el("details", {}, el("summary", {}, text), ...shown));
}

function drawRow(row, it, { state, rights, now }) {
  const { parts } = row;
  const kind = kindOf(it);
  row.className = kind;
  setText(parts.self, it.name === state.name ? "this site" : it.software === "" ? "" : `fedbandit ${it.software}`);
  setText(parts.state, STATES[kind]);
  parts.state.className = `state ${kind}`;
  setText(parts.since, ago(now - it.since));
  setText(parts.place, `number ${count(it.number)} since ${time(it.incarnation / 1000, now, false)}`);
  setText(parts.decisions, count(it.decisions));
  setText(parts.releases, count(it.arms.reduce((sum, arm) => sum + arm.releases, 0)));
  parts.fill.style.width = `${100 * (it.share ?? 0)}%`;
  setText(parts.share, share(it.share));
  keyed(parts.odd, oddOf(it), (odd) => odd.key, makeOdd, () => {});
  const can = !rights.includes("members") || it.name === state.name ? "" : it.excluded ? "include" : "exclude";
  if (parts.button.key !== can) {
    const hadFocus = parts.button.contains(document.activeElement);
    parts.button.key = can;
    const words = { exclude: "Exclude…", include: "Include…" };
    parts.button.replaceChildren(
      ...(can === "" ? [] : [actions.button(words[can], it.name, () => actions[can](it.name))]),
    );
    if (hadFocus) parts.button.querySelector("button")?.focus();
  }
}

/** Draw it: conflicts first. */
export function drawMembers(known) {
  const { members, federation } = known.state;
  const sorted = [...members].sort((a, b) => URGENCY[kindOf(a)] - URGENCY[kindOf(b)]);
  keyed(
    body,
    more.of(sorted, () => drawMembers(known)),
    (it) => it.name,
    makeRow,
    (row, it) => drawRow(row, it, known),
  );
  table.classList.toggle("operated", known.rights.includes("members"));
  show(table, members.length > 0);
  setText(document.getElementById("members-count"), `${count(federation.num_agents)} of ${count(members.length)} count`);
  const oldest = members.filter((it) => it.counts).reduce((old, it) => Math.min(old, it.since), known.now);
  const bound = federation.largest_share === null ? "" : ` No site has more than ${share(federation.largest_share)} of an average.`;
  setText(
    document.getElementById("members-words"),
    members.length === 0
      ? "Nothing has come from any site yet."
      : `Messages of ${counted(members.length, "site")} are here. The oldest that counts arrived ${ago(known.now - oldest)}.${bound}`,
  );
}
