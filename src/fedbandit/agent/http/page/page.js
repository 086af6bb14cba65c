// The page of one agent: opens its stream, and hands what is known to those who draw it.

import * as agent from "./agent.js";
import { drawAnswer, isByStratum } from "./answer.js";
import { drawArms } from "./arms.js";
import { drawAttention } from "./attention.js";
import { drawChanges, readChanges } from "./changes.js";
import { drawConnection } from "./connection.js";
import { drawDecisions, drawFactsOfSite } from "./decisions.js";
import { setAttribute, setText, show } from "./elements.js";
import { drawEvaluation } from "./evaluation.js";
import { duration, shortened, shortPercent } from "./format.js";
import { drawForest, learnEvidence } from "./forest.js";
import { drawHistory } from "./history.js";
import { drawLinks } from "./links.js";
import { drawMembers } from "./members.js";
import { drawBulletin, drawNeighbours } from "./neighbours.js";
import { drawPrivacy } from "./privacy.js";
import { addSession, ask, drawSession } from "./session.js";
import { Store } from "./store.js";
import { drawStrata } from "./strata.js";
import { Stream } from "./stream.js";
import { addToggle } from "./theme.js";
import { addTrail, drawTrail, readTrail } from "./trail.js";
import { lost, useWords } from "./words.js";

const TRAIL_EVERY = 10; // seconds
const MOST_POINTS = 1000; // the agent keeps about 500 and thins older ones: then its own are read again

const store = new Store({
  state: null,
  history: { points: [] },
  session: null, // who looks at the page
  rights: [],
  evidence: null, // every site beside the average
  waiting: [], // changes of arms that need consent
  trail: { entries: [], number: 0 }, // of the audit trail, the newest first
  changes: [], // of arms and members, the newest first
  connection: { kind: "connecting" },
  now: Date.now() / 1000, // by the agent's clock
  ahead: 0, // of ours
  heardAt: null,
  problem: null, // why the agent cannot serve, such as a full disk
});

const NOBODY = { session: null, rights: [] };
const UNREAD = { trail: { entries: [], number: 0 }, changes: [] };
const NOTHING = { state: null, history: { points: [] }, evidence: null, waiting: [], ...UNREAD };

const stream = new Stream("/v1/events", onEvent, onConnection, readNow);
addSession(() => {
  store.set({ ...NOBODY, ...NOTHING });
  stream.start();
});

/** Ask the agent for more, and store the answer; a refusal leaves what was known. */
async function learn(call, changes) {
  try {
    store.set(changes(await call()));
  } catch (failure) {
    if (!(failure instanceof agent.CallFailed)) throw failure;
  }
}

const learnHistory = () =>
  learn(agent.history, (history) => {
    const last = history.points.at(-1)?.at ?? -Infinity; // points may have come meanwhile, by the stream
    const later = store.known.history.points.filter((it) => it.at > last);
    return { history: { ...history, points: [...history.points, ...later] } };
  });
const learnSession = () =>
  learn(agent.session, (session) => ({ session, rights: session.rights })).then(() => learnTrail());
const learnArms = () => learn(agent.arms, ({ waiting }) => ({ waiting }));

/** Read what was done, where that is allowed and somebody looks. */
async function learnTrail() {
  const { rights, connection } = store.known;
  const isReached = connection.kind === "live" || connection.kind === "polling";
  if (!rights.includes("audit") || !isReached || document.hidden) return;
  await Promise.all([readTrail, readChanges].map((read) => learn(read, (found) => found)));
}

/** What the stream would tell, where there is no place for it. */
async function readNow() {
  onEvent("state", await agent.state());
  await learnHistory();
}

function onConnection(connection) {
  const wasPolling = store.known.connection.kind === "polling";
  const ahead = connection.ahead ?? store.known.ahead;
  store.set({ connection, ahead, now: Date.now() / 1000 + ahead });
  if (connection.kind === "live" || (connection.kind === "polling" && !wasPolling)) {
    void learnSession();
    void learnHistory();
    void learnArms();
  } else if (connection.kind === "refused" && connection.status === 401) {
    const wasKnown = store.known.session !== null;
    store.set({ ...NOBODY, ...NOTHING }); // on a shared machine somebody else may look now
    ask(wasKnown ? "You are no longer signed in." : "");
  } else if (connection.kind === "refused" && connection.status === 403) {
    void mayNotLook(connection.reason);
  }
}

/** Somebody is known, and may not look: another person may, unless a proxy says who is there. */
async function mayNotLook(reason) {
  store.set(NOTHING);
  await learnSession();
  if (store.known.session?.way === "session") ask(`The agent says: ${reason}.`);
}

function onEvent(type, data) {
  if (type === "state") {
    const before = store.known.state;
    store.set({ state: data, heardAt: Date.now() / 1000 });
    void learnEvidence((evidence) => store.set({ evidence }));
    const changed =
      before !== null && (before.arms_version !== data.arms_version || before.arms_waiting !== data.arms_waiting);
    if (changed || (data.arms_waiting > 0 && numbers(before) !== numbers(data))) void learnArms();
    if (before !== null && madeBy(before) !== madeBy(data)) void learnTrail();
  } else if (type === "problem") {
    store.set({ problem: data.message }); // null: it is over
  } else if (type === "bulletin") {
    drawBulletin(data);
  } else if (type === "point") {
    const { history } = store.known;
    if (history.points.length >= MOST_POINTS) void learnHistory();
    else if ((history.points.at(-1)?.at ?? 0) < data.at)
      store.set({ history: { ...history, points: [...history.points, data] } });
  }
}

/** Which bulletins are known: they also say who has accepted what waits here. */
const numbers = (state) => JSON.stringify(state?.members.map((it) => [it.name, it.incarnation, it.number]));

/** What people have made of a site, as far as its state tells. */
const madeBy = ({ arms_version: version, arms_waiting: waiting, members }) =>
  JSON.stringify([version, waiting, members.map((it) => [it.name, it.excluded, it.refused])]);

function drawFrame(known) {
  drawConnection(known);
  drawSession(known);
  const { state, connection } = known;
  show(document.getElementById("content"), state !== null);
  show(document.getElementById("loading"), state === null && connection.kind !== "refused");
  if (state !== null) show(document.getElementById("sign-in"), false);
  if (state === null) return;
  useWords(state.federation.words);
  show(actionsButton, ["arms", "members"].some((it) => known.rights.includes(it)));
  for (const id of ["lost", "lost-again"]) setText(document.getElementById(id), `${lost()} per 100 patients`);
  setText(document.getElementById("site"), state.name);
  setText(document.getElementById("federation"), state.federation.name);
  const { leader, chance } = state.answer;
  const title = `${leader === null || isByStratum(state) ? "" : `${shortened(leader, 40)}${chance === null ? "" : ` ${shortPercent(chance)}`} · `}${shortened(state.name, 40)} · fedbandit`;
  if (document.title !== title) document.title = title; // axe and screen readers read it
  for (const draw of [
    drawAnswer,
    drawFactsOfSite,
    drawAttention,
    drawArms,
    drawNeighbours,
    drawLinks,
    drawMembers,
    drawDecisions,
    drawPrivacy,
    drawStrata,
    drawEvaluation,
    drawForest,
    drawHistory,
    drawChanges,
    drawTrail,
  ])
    draw(known);
  setText(document.getElementById("policy"), state.federation.policy);
  setText(
    document.getElementById("running"),
    `fedbandit ${state.version}, running for ${duration(known.now - state.started)}`,
  );
  setText(document.getElementById("digest"), `terms ${state.federation.digest.slice(0, 12)}`);
}

const actionsButton = document.getElementById("actions");
actionsButton.addEventListener("click", () => {
  const isOn = document.body.classList.toggle("with-actions");
  setAttribute(actionsButton, "aria-pressed", String(isOn));
});

store.onChange(drawFrame);
addToggle(document.getElementById("theme"));
addTrail(() => void learnTrail());
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  stream.hurry();
  void learnTrail();
});
addEventListener("online", () => stream.hurry());
setInterval(() => store.set({ now: Date.now() / 1000 + store.known.ahead }), 1000);
setInterval(() => void learnTrail(), 1000 * TRAIL_EVERY);
stream.start();
