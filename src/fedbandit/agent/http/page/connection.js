// Says whether what is shown is live.

import { setText, show } from "./elements.js";
import { duration, time } from "./format.js";

const [pill, words, wait, stale] = ["connection", "connection-words", "connection-wait", "stale"].map((id) =>
  document.getElementById(id),
);

const WORDS = {
  connecting: "Connecting",
  live: "Live",
  polling: "Asks now and then",
  waiting: "Reconnecting",
  refused: "Not signed in",
};

/** Draw it. */
export function drawConnection({ connection, now, ahead, state, heardAt }) {
  const { kind, reason, until, status, every } = connection;
  const isUnknown = kind === "refused" && status === 401;
  pill.className = `pill ${kind}`;
  setText(words, kind === "refused" && !isUnknown ? "Refused" : WORDS[kind]);
  // The seconds are not in the live region: a screen reader would count along.
  setText(wait, kind === "waiting" ? `in ${duration(Math.max(0, until - (now - ahead)))}` : "");
  const isStale = kind !== "live" && kind !== "polling" && state !== null;
  document.body.classList.toggle("is-stale", isStale);
  show(stale, kind === "polling" || isStale || (kind !== "live" && kind !== "connecting" && !isUnknown));
  const since = state === null ? "" : ` What you see is as of ${time(heardAt)}.`;
  const told =
    kind === "connecting"
      ? "Connecting again."
      : kind === "polling"
        ? `Not live, but asked every ${duration(every)}: ${reason}.`
        : `Not live: ${reason}.`;
  setText(stale, `${told}${since}`);
  stale.classList.toggle("mild", kind === "polling");
}
