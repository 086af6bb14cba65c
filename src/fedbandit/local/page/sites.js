// A card per site: what it believes of each arm against the truth, and how its patients fare.

import { SteadyScale } from "/page/axis.js";
import { el, keyed, nameOf, setAttribute, setText, setWords } from "/page/elements.js";
import { count, decimalsFor, number, share, shortPercent, whole } from "/page/format.js";
import { drawAxis, drawWhisker, makeAxis, makeWhisker } from "/page/whisker.js";
import { intervalOf } from "/page/words.js";
import { kindOf, verdictOf } from "./verdict.js";

const place = document.getElementById("sites");
const steady = new SteadyScale();

function makeCard(site) {
  const parts = {
    verdict: el("p", { class: "verdict" }),
    axis: makeAxis(),
    arms: el("ul", { class: "site-arms" }),
    book: el("dl", { class: "book" }),
  };
  const card = el(
    "article",
    { class: "card site" },
    el("h3", {}, el("a", { href: site.url }, nameOf(site.name))),
    parts.verdict,
    parts.axis,
    parts.arms,
    parts.book,
  );
  card.parts = parts;
  return card;
}

/** What a site knows of an arm: it may have numbered them otherwise. */
function armOf(site, name) {
  return site.state?.arms.find((arm) => arm.name === name) ?? null;
}

function makeArm(name) {
  const whisker = makeWhisker({ all: "line", here: "line" });
  const value = el("span");
  const item = el("li", {}, el("div", { class: "arm" }, nameOf(name), value), whisker);
  item.parts = { whisker, value };
  return item;
}

function drawArm(item, arm, { scale, decimals, truth, here, isBest, name }) {
  item.className = `${isBest ? "truly-best " : ""}${arm !== null && arm.status !== "active" ? "stopped" : ""}`;
  const estimate = arm?.estimate ?? null;
  drawWhisker(item.parts.whisker, scale, estimate, intervalOf(arm), { all: truth, here });
  setText(
    item.parts.value,
    estimate === null ? "unknown" : `estimate ${number(estimate, decimals)}${arm.status === "active" ? "" : ` (${arm.status})`}`,
  );
  setAttribute(
    item.parts.value,
    "title",
    `${name}: truly ${number(truth, decimals)} over all, ${number(here, decimals)} here`,
  );
}

function drawCard(card, site, run, scale, decimals) {
  const { arms, true_means: truth, best_arm: best } = run;
  const { parts } = card;
  card.className = `card site ${kindOf(site, arms, best)}`;
  setWords(parts.verdict, verdictOf(site, run), arms);
  drawAxis(parts.axis, scale);
  keyed(
    parts.arms,
    arms.map((name, k) => ({ name, k })),
    (it) => it.name,
    (it) => makeArm(it.name),
    (item, { name, k }) =>
      drawArm(item, armOf(site, name), {
        scale,
        decimals,
        truth: truth[k],
        here: site.means[k],
        isBest: k === best,
        name,
      }),
  );
  const answer = site.state?.answer;
  const facts = [
    ["patients", count(site.patients)],
    ["best arm lately", share(site.best_share)],
    ["regret", whole(site.regret)],
    ["sure of its leader", shortPercent(answer?.chance ?? null)],
  ];
  keyed(
    parts.book,
    facts,
    ([label]) => label,
    ([label]) => el("div", {}, el("dt", {}, label), el("dd")),
    (node, [, value]) => setText(node.lastChild, value),
  );
}

/** Draw all cards on one scale. */
export function drawSites(run) {
  const { sites, true_means: truth } = run;
  const known = sites.find((site) => site.state !== null)?.state.federation ?? { low: 0, high: 1 };
  const estimates = sites.flatMap((site) => (site.state?.arms ?? []).map((arm) => arm.estimate));
  const scale = steady.for([...truth, ...sites.flatMap((site) => site.means), ...estimates], known.low, known.high);
  const decimals = decimalsFor(known.high - known.low);
  keyed(
    place,
    sites,
    (site) => site.name,
    makeCard,
    (card, site) => drawCard(card, site, run, scale, decimals),
  );
}
