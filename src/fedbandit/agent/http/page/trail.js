// The audit trail, for whoever may read it: who did what at this site, when and why; and all of it as a file.

import * as agent from "./agent.js";
import { done, drawTime, KINDS, makeTime, way, who } from "./deeds.js";
import { el, keyed, setText, show } from "./elements.js";
import { count, counted, shortened } from "./format.js";
import { More } from "./more.js";
import { plain, say } from "./words.js";

const NEWEST = 100;
const NONE = { entries: [], number: 0 };
const [section, table, select, words, button, problem] = [
  "trail-section",
  "trail",
  "trail-of",
  "trail-words",
  "trail-download",
  "trail-problem",
].map((id) => document.getElementById(id));
const body = table.tBodies[0];
const more = new More(document.getElementById("more-trail"), "entries");
let site = "";

/** The newest entries, of the kind that is chosen. */
export async function readTrail() {
  const kind = select.value;
  const { entries, number } = await agent.auditLog({ last: NEWEST, ...(kind === "" ? {} : { kind }) });
  return kind === select.value ? { trail: { entries: entries.reverse(), number } } : {}; // else another was chosen
}

/** Wire the choice and the button; `onChange()` is called when another kind is chosen. */
export function addTrail(onChange) {
  select.append(el("option", { value: "" }, "Everything"));
  for (const kind of Object.keys(KINDS)) {
    select.append(el("option", { value: kind, "data-say": KINDS[kind] }, say(KINDS[kind])));
  }
  select.addEventListener("change", onChange);
  button.addEventListener("click", () => void download());
}

/** Every entry, oldest first, as lines of JSON: their hashes show whether one was changed. */
async function download() {
  setText(problem, "");
  button.disabled = true;
  try {
    const entries = await agent.wholeAuditLog();
    const lines = entries.map((it) => `${JSON.stringify(it)}\n`);
    const href = URL.createObjectURL(new Blob(lines, { type: "application/x-ndjson" }));
    const day = new Date().toISOString().slice(0, 10);
    el("a", { href, download: `audit-trail-${site.replace(/[^\p{L}\p{N}.-]/gu, "_")}-${day}.jsonl` }).click();
    setTimeout(() => URL.revokeObjectURL(href), 60_000);
  } catch (failure) {
    if (!(failure instanceof agent.CallFailed)) throw failure;
    setText(problem, `It could not be downloaded: ${plain(failure.message)}.`);
  } finally {
    button.disabled = false;
  }
}

function makeRow(entry) {
  const cell = (label, ...children) => el("td", { "data-label": label }, ...children);
  const at = makeTime();
  const row = el(
    "tr",
    {},
    el("th", { scope: "row" }, at),
    cell("who", who(entry)),
    cell("how that is known", way(entry)),
    cell("what", ...done(entry)),
    cell("why", entry.reason),
  );
  row.at = at;
  return row;
}

/** Draw it. */
export function drawTrail(known) {
  const { state, rights, trail, now } = known;
  const mayRead = rights.includes("audit");
  const { entries, number } = mayRead ? trail : NONE;
  site = shortened(state.name, 64);
  show(section, mayRead);
  keyed(
    body,
    more.of(entries, () => drawTrail(known)),
    (it) => it.hash,
    makeRow,
    (row, it) => drawTime(row.at, it, now),
  );
  show(table, entries.length > 0);
  setText(words, `${counted(entries.length, "entry", "entries")} of ${count(number)}, the newest first.`);
}
