// Entries of the audit trail in words for people: what was done, by whom, and how that is known.

import { el, nameOf, setAttribute, setText } from "./elements.js";
import { time } from "./format.js";
import { say } from "./words.js";

/** What each kind of entry is about. */
export const KINDS = {
  arm: "{Arms}",
  member: "Members",
  rights: "Rights",
  login: "Signing in",
  release: "Releases",
  history: "Earlier patients",
  start: "Starts",
  stop: "Stops",
  restore: "Restored files",
  confirm: "Confirmed files",
  terms: "Terms",
};

/* By kind and deed; * is the name of what it was done to, # that of the site, ~ the details. */
const DEEDS = {
  "arm add": "added *",
  "arm suspend": "suspended *~",
  "arm resume": "resumed *~",
  "arm retire": "retired * for good",
  "arm accept": "accepted what # has done to *",
  "member exclude": "excluded *",
  "member include": "included *",
  "member link": "linked *",
  "member unlink": "ended the link to *",
  "member refuse": "refuses *",
  "member admit": "no longer refuses *",
  "rights grant": "gave rights to *: ~",
  "rights change": "changed the rights of * to: ~",
  "rights revoke": "took the rights of *",
  "rights grant arms.accept_from": "takes changes of {arms} without asking from: ~",
  "rights change arms.accept_from": "takes changes of {arms} without asking from: ~",
  "rights revoke arms.accept_from": "takes no changes of {arms} without asking",
  "login sign in": "signed in",
  "login sign out": "signed out",
  "login refuse": "could not sign in: ~",
  "release release": "told the others a mean of *, number ~",
  "release evaluate": "told the others sums for *: ~",
  "history enter": "entered earlier patients of *: ~",
  "start start": "started: ~",
  "stop stop": "stopped",
  "restore restore": "restored this site's file: ~",
  "confirm confirm": "confirmed that this site's file is the latest",
  "terms begin": "began ~, with the terms *",
};

const RIGHTS = {
  decide: "to ask what to give",
  report: "to report",
  view: "to look",
  members: "to exclude members",
  restore: "to restore",
  arms: "to change {arms}",
  log: "to read each patient's {reward}",
  audit: "to read what was done",
};

const WAYS = {
  token: "with a token",
  session: "signed in at the page",
  proxy: "signed in at the proxy",
  "no token": "nobody has to sign in",
};

function detailOf({ kind, what, subject, detail }) {
  if (kind === "rights" && subject !== "arms.accept_from") {
    const inWords = (it) => (Object.hasOwn(RIGHTS, it) ? say(RIGHTS[it]) : it);
    return detail.split("; ").map((part) => part.split(", ").map(inWords).join(", ")).join("; ");
  }
  if (kind === "arm" && Object.hasOwn(DEEDS, `arm ${what}`)) return detail.includes(" ") ? detail.slice(detail.indexOf(" ")) : ""; // for whose patients
  if (kind === "history") return detail.replace(/ rewards$/, "");
  return kind === "terms" ? detail.split(", ")[0] : detail;
}

/** What was done, in parts: texts and names. */
export function done(entry) {
  const { kind, what, subject, site } = entry;
  const key = [`${kind} ${what} ${subject}`, `${kind} ${what}`].find((it) => Object.hasOwn(DEEDS, it));
  const sentence = key === undefined ? `${what} * ~` : DEEDS[key];
  const name = kind === "terms" ? subject.slice(0, 12) : subject;
  const filled = { "*": () => nameOf(name), "#": () => nameOf(site), "~": () => detailOf(entry) };
  return sentence.split(/([*#~])/).map((part) => (Object.hasOwn(filled, part) ? filled[part]() : say(part)));
}

/** How it is known who did it. */
export function way({ how }) {
  return Object.hasOwn(WAYS, how) ? WAYS[how] : how;
}

/** Who did it: a person, or the site whose change it is, or nothing. */
export function who(entry) {
  if (entry.who !== "") return nameOf(entry.who);
  return entry.site !== "" && entry.how === "" ? nameOf(entry.site) : "–";
}

/** An element for a time. */
export const makeTime = () => el("time");

/** Show when it was. */
export function drawTime(node, { at }, now) {
  setText(node, time(at / 1000, now));
  setAttribute(node, "datetime", new Date(at).toISOString());
}
