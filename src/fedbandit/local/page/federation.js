// The page of a whole federation on this machine: a headline, the network, and a card per site.

import { drawConnection } from "/page/connection.js";
import { el, keyed, setText, setWords, show } from "/page/elements.js";
import { count, duration, whole } from "/page/format.js";
import { Store } from "/page/store.js";
import { Stream } from "/page/stream.js";
import { addToggle } from "/page/theme.js";
import { drawNetwork } from "./network.js";
import { drawSites } from "./sites.js";
import { headlineOf, isSilent } from "./verdict.js";

const SPEAK_EVERY = 20; // seconds
const store = new Store({
  state: null,
  connection: { kind: "connecting" },
  now: Date.now() / 1000,
  ahead: 0,
  heardAt: null,
});
let spokenAt = -Infinity;

function drawFacts({ sites, seconds }) {
  const sum = (of) => sites.reduce((total, site) => total + of(site), 0);
  const patients = sum((site) => site.patients);
  const facts = [
    ["running for", duration(seconds)],
    ["patients", count(patients)],
    ["patients per second", whole(seconds > 0 ? patients / seconds : 0)],
    ["regret of all sites", whole(sum((site) => site.regret))],
    [
      "bulletins received",
      count(sum((site) => (site.state?.neighbours ?? []).reduce((total, it) => total + it.received, 0))),
    ],
    ["agents that answer", `${sites.filter((site) => site.running && !isSilent(site)).length} of ${sites.length}`],
  ];
  keyed(
    document.getElementById("facts"),
    facts,
    ([label]) => label,
    ([label]) => el("div", {}, el("dt", {}, label), el("dd")),
    (node, [, value]) => setText(node.lastChild, value),
  );
}

function drawFrame(known) {
  drawConnection(known);
  const run = known.state;
  show(document.getElementById("content"), run !== null);
  show(document.getElementById("loading"), run === null);
  if (run === null) return;
  const { headline, words } = headlineOf(run);
  setText(document.getElementById("title"), run.title);
  setWords(document.getElementById("headline"), headline, run.arms);
  setWords(document.getElementById("words"), words, run.arms);
  if (document.title !== `${headline} · fedbandit up`) document.title = `${headline} · fedbandit up`;
  if (performance.now() / 1000 - spokenAt > SPEAK_EVERY) {
    spokenAt = performance.now() / 1000;
    setText(document.getElementById("said"), headline);
  }
  drawFacts(run);
  drawSites(run);
  if (run !== drawFrame.last) drawNetwork(run); // it compares with what came before
  drawFrame.last = run;
}

const stream = new Stream(
  "/v1/federation-events",
  (type, data) => type === "federation" && store.set({ state: data, heardAt: Date.now() / 1000 }),
  (connection) => store.set({ connection, now: Date.now() / 1000 }),
);
store.onChange(drawFrame);
addToggle(document.getElementById("theme"));
document.addEventListener("visibilitychange", () => document.hidden || stream.hurry());
setInterval(() => store.set({ now: Date.now() / 1000 }), 1000);
stream.start();
