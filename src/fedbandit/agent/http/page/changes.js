// What was changed of arms and members, for whoever may read the audit trail: who, when, why, and who accepted it here.

import * as agent from "./agent.js";
import { done, drawTime, makeTime, way } from "./deeds.js";
import { el, keyed, nameOf, show } from "./elements.js";
import { time } from "./format.js";
import { More } from "./more.js";

const MOST = 1000;
const section = document.getElementById("changes-section");
const table = document.getElementById("changes");
const none = document.getElementById("no-changes");
const body = table.tBodies[0];
const more = new More(document.getElementById("more-changes"), "changes");

/** What the trail has about arms and members, and the changes that wait. */
export async function readChanges() {
  const [arms, members] = await Promise.all(["arm", "member"].map((kind) => agent.auditLog({ kind, last: MOST })));
  return { changes: historyOf([...arms.entries, ...members.entries]) };
}

/** Each change with its acceptance at this site, if there was one; the newest first. */
export function historyOf(entries) {
  const changes = new Map();
  for (const it of [...entries].sort((a, b) => a.number - b.number)) {
    const id = idOf(it);
    if (it.kind === "arm" && it.what === "accept") {
      changes.set(id, { made: changes.get(id)?.made ?? it, accepted: it });
    } else {
      changes.set(it.kind === "arm" ? id : it.hash, { made: it, accepted: null });
    }
  }
  return [...changes.values()].sort((a, b) => b.made.number - a.made.number);
}

/** The id of a change of an arm; behind it stands for whose patients it is. */
const idOf = ({ detail }) => detail.split(" ")[0];

function makeRow({ made }, own) {
  const cell = (label, ...children) => el("td", { "data-label": label }, ...children);
  const parts = { at: makeTime(), consent: cell("accepted here by") };
  const row = el(
    "tr",
    {},
    el("th", { scope: "row" }, parts.at),
    cell("change", ...done(made)),
    cell("by", made.who === "" ? "–" : nameOf(made.who), el("span", { class: "faint block" }, way(made))),
    cell("at site", made.site === "" || made.site === own ? "this site" : nameOf(made.site)),
    cell("why", made.reason),
    parts.consent,
  );
  row.parts = parts;
  return row;
}

function drawRow({ parts }, { made, accepted }, { waiting, now }) {
  drawTime(parts.at, made, now);
  const waits = accepted === null && waiting.some((it) => it.id === idOf(made));
  const when = accepted === null ? "" : time(accepted.at / 1000, now);
  const by = accepted === null ? "" : accepted.who || way(accepted);
  const key = `${waits} ${by} ${when}`;
  if (parts.consent.key === key) return;
  parts.consent.key = key;
  const said = accepted === null ? [] : [nameOf(by), el("span", { class: "faint block" }, when)];
  parts.consent.replaceChildren(...(waits ? ["waits"] : said));
}

/** Draw it. */
export function drawChanges(known) {
  const mayRead = known.rights.includes("audit");
  const changes = mayRead ? known.changes : [];
  show(section, mayRead);
  keyed(
    body,
    more.of(changes, () => drawChanges(known)),
    ({ made }) => made.hash,
    (it) => makeRow(it, known.state.name),
    (row, it) => drawRow(row, it, known),
  );
  show(table, changes.length > 0);
  show(none, changes.length === 0);
}
