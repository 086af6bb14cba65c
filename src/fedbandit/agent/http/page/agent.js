// Calls of the agent's HTTP API, other than the stream.

import { wordsOf } from "./stream.js";

/** A call that the agent refused, or that did not reach it; its message is for people. */
export class CallFailed extends Error {}

let csrf = null;

/** Repeat this with every change: it shows that this page asks, and no other. */
export function changesWith(word) {
  csrf = word;
}

async function call(method, path, body) {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers: {
        ...(method === "GET" || csrf === null ? {} : { "X-CSRF-Token": csrf }),
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      },
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
    });
  } catch {
    throw new CallFailed("the agent does not answer; nothing may have changed");
  }
  if (!answer.ok) throw new CallFailed(await wordsOf(answer));
  return answer.status === 204 ? null : answer.json();
}

const excluded = (name) => `/v1/excluded/${encodeURIComponent(name)}`;

export const state = () => call("GET", "/v1/state");
export const evidence = (stratum) =>
  call("GET", `/v1/evidence${stratum === null ? "" : `?stratum=${encodeURIComponent(stratum)}`}`);
export const history = () => call("GET", "/v1/history");
export const session = () => call("GET", "/v1/session");
export const signIn = (token) => call("POST", "/v1/session", { token });
export const signOut = () => call("DELETE", "/v1/session");
export const arms = () => call("GET", "/v1/arms");
export const exclude = (name, reason) => call("PUT", excluded(name), { reason });
export const include = (name, reason) => call("DELETE", excluded(name), { reason });
export const changeArm = (change, arm, reason = "", stratum = null) =>
  call("POST", "/v1/arms", { change, arm, reason, ...(stratum === null ? {} : { stratum }) });
export const acceptArm = (arm, retire, reason) => call("POST", "/v1/arms/accept", { arm, retire, reason });

/** Entries of the audit trail: `wanted` has the parameters of the query. */
export const auditLog = (wanted) => call("GET", `/v1/audit-log?${new URLSearchParams(wanted)}`);

/** All entries of the audit trail, oldest first, however many calls that takes. */
export async function wholeAuditLog() {
  const found = [];
  while (true) {
    const { entries, number } = await auditLog({ after: found.at(-1)?.number ?? 0 });
    found.push(...entries);
    if (entries.length === 0 || found.at(-1).number >= number) return found;
  }
}
