// Every site beside the average, for one arm, or one arm against another: a forest plot.

import * as agent from "./agent.js";
import { SteadyScale } from "./axis.js";
import { el, keyed, nameOf, setAttribute, setText, setWords, show } from "./elements.js";
import { between, count, decimalsFor, number, share, shortened } from "./format.js";
import { drawAxis, drawWhisker, makeAxis, makeWhisker } from "./whisker.js";
import { say } from "./words.js";

const table = document.getElementById("forest");
const body = table.tBodies[0];
const [select, whom, words, spread] = ["forest-of", "forest-whom", "forest-words", "forest-spread"].map((id) =>
  document.getElementById(id),
);
const axis = makeAxis();
const EVERY = 5; // seconds between two questions: each reads the whole board
const ALL = "\u0000all"; // no name of a site
let askedAt = -Infinity;
let known = null;
let tell = null; // whom to tell of what was learnt
let steady = new SteadyScale();
document.getElementById("forest-axis").append(axis);
select.addEventListener("change", () => {
  steady = new SteadyScale();
  if (known !== null) drawForest(known);
});
whom.addEventListener("change", () => {
  steady = new SteadyScale();
  askedAt = -Infinity;
  if (tell !== null) void learnEvidence(tell);
});

/** Ask for it, now and then; a refusal leaves what was known. */
export async function learnEvidence(found) {
  const now = performance.now() / 1000;
  if (now - askedAt < EVERY) return;
  askedAt = now;
  tell = found;
  const asked = whom.value;
  try {
    const learnt = await agent.evidence(asked === "" ? null : asked);
    if (whom.value === asked) found(learnt); // else somebody has chosen others meanwhile
  } catch (failure) {
    if (!(failure instanceof agent.CallFailed)) throw failure;
  }
}

/** What can be shown: each arm, and each against the reference. */
function choices({ arms, differences }) {
  return [
    ...arms.map((it) => ({ key: `arm ${it.arm}`, text: shortened(it.arm, 60), it })),
    ...differences.map((it) => ({
      key: `less ${it.arm}`,
      text: `${shortened(it.arm, 40)} compared with ${shortened(it.reference, 40)}`,
      it,
    })),
  ];
}

function drawChoices(all, leader) {
  const keys = all.map((it) => it.key).join("\n");
  if (select.keys === keys) return;
  const before = select.value;
  select.keys = keys;
  select.replaceChildren(...all.map(({ key, text }) => el("option", { value: key }, text)));
  const wanted = all.some((it) => it.key === before) ? before : `arm ${leader ?? ""}`;
  select.value = all.some((it) => it.key === wanted) ? wanted : (all[0]?.key ?? "");
}

function drawWhom(strata) {
  const labels = strata.map((it) => it.label);
  show(whom.parentElement, labels.length > 0);
  if (whom.keys === labels.join("\n")) return;
  whom.keys = labels.join("\n");
  whom.replaceChildren(
    el("option", { value: "" }, "all patients"),
    ...labels.map((it) => el("option", { value: it }, shortened(it, 60))),
  );
}

function makeRow({ site, isAll }) {
  const cell = (label, ...children) => el("td", { "data-label": label }, ...children);
  const parts = {
    whisker: isAll ? makeWhisker({}) : makeWhisker({ one: "ring" }),
    mean: el("span", { class: "strong" }),
    interval: el("span", { class: "faint block" }),
    part: el("span", { class: "faint block" }),
    share: el("span"),
    patients: el("span"),
  };
  const row = el(
    "tr",
    { class: isAll ? "all" : null },
    el("th", { scope: "row" }, isAll ? "all sites" : nameOf(site)),
    el("td", { class: "chart" }, parts.whisker),
    cell("estimate, 95 % interval", parts.mean, " ", parts.interval, " ", parts.part),
    cell("share", parts.share),
    cell("patients", parts.patients),
  );
  row.parts = parts;
  return row;
}

function drawRow(row, { it, isAll }, { scale, decimals, colour }) {
  const { parts } = row;
  setAttribute(row, "class", `${isAll ? "all " : ""}${colour}`);
  drawWhisker(parts.whisker, scale, it.mean, it.interval, isAll ? {} : { one: it.mean });
  parts.whisker.parts.dot.style.display = isAll ? "" : "none"; // one site is a ring, all of them are a dot
  setText(parts.mean, it.mean === null ? "nothing yet" : number(it.mean, decimals));
  setText(parts.interval, between(it.interval, decimals));
  const isMixed = !isAll && it.mean !== null && it.part < 0.995;
  setText(parts.part, isMixed ? `${share(it.part)} from these patients` : "");
  setText(parts.share, isAll ? "" : share(it.share));
  setText(parts.patients, count(it.patients));
}

/** Draw it. */
export function drawForest(now) {
  known = now;
  const { state, evidence } = now;
  show(table.closest("section"), evidence !== null);
  if (evidence === null) return;
  drawWhom(state.answer.strata);
  const all = choices(evidence);
  drawChoices(all, state.answer.leader);
  const shown = all.find((it) => it.key === select.value)?.it;
  if (shown === undefined) return;
  const { low, high } = state.federation;
  const width = high - low;
  const [least, most] = shown.reference === null ? [low, high] : [-width, width];
  const average = { mean: shown.estimate, interval: shown.interval, patients: shown.patients };
  const within = (value) => Math.min(most + 0.1 * width, Math.max(least - 0.1 * width, value));
  const reach = [...shown.sites, average].flatMap(({ mean, interval }) =>
    mean === null ? [] : [mean, ...(interval === null ? [] : [within(interval.low), within(interval.high)])],
  );
  const scale = steady.for([...reach, ...(shown.reference === null ? [] : [0])], least, most);
  const decimals = decimalsFor(width);
  const colour = `colour-${Math.max(0, state.arms.findIndex((arm) => arm.name === shown.arm)) % 8}`;
  drawAxis(axis, scale);
  keyed(
    body,
    [...shown.sites.map((it) => ({ site: it.site, it, isAll: false })), { site: ALL, it: average, isAll: true }],
    (it) => it.site,
    makeRow,
    (row, it) => drawRow(row, it, { scale, decimals, colour }),
  );
  const names = [...state.arms, ...shown.sites.map((it) => ({ name: it.site }))].map((it) => it.name);
  setWords(words, inWords(shown, decimals, evidence.stratum), names);
  setText(spread, shown.spread_in_words);
}

function inWords(shown, decimals, stratum) {
  const { arm, reference, always } = shown;
  const what =
    reference === null
      ? `${say("The mean {reward} of")} ${arm} at each site, and over all.`
      : `${say("How much larger the mean {reward} of")} ${arm} is than that of ${reference}${shown.words === "" ? "" : `: ${shown.words}`}.`;
  const ever = always === null ? "" : ` However often one looks, the average lies from ${between(always, decimals)} (95\u00a0%).`;
  const mixed = shown.sites.some((it) => it.part < 0.995)
    ? " Where too few of these patients came, a site's mean has others in it."
    : "";
  return `${stratum === null ? "" : `Patients (${stratum}): `}${what}${mixed}${ever}`;
}
