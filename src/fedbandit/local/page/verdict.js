// What a site believes, beside the truth that only a simulation knows.

import { counted, duration, number } from "/page/format.js";

/** The arm that a site leads with: its number among the arms of the run, or null. */
export function leaderOf(site, arms) {
  const name = site.state?.answer.leader ?? null;
  return name === null ? null : arms.indexOf(name);
}

const OLD = 8; // seconds: the agents are asked every second

/** Whether an agent runs and does not answer: what is known of it is old. */
export const isSilent = (site) => site.running && site.age !== null && site.age > OLD;

/** `best`, `other`, `unknown`, `silent` or `dead`. */
export function kindOf(site, arms, best) {
  if (!site.running) return "dead";
  if (isSilent(site)) return "silent";
  const leader = leaderOf(site, arms);
  return leader === null ? "unknown" : leader === best ? "best" : "other";
}

/** The arm with the highest true mean at a site. */
export const bestHere = (means) => means.indexOf(Math.max(...means));

/** One sentence on a site. */
export function verdictOf(site, { arms, best_arm: best }) {
  const kind = kindOf(site, arms, best);
  const here = bestHere(site.means);
  if (kind === "dead") return "This agent does not run.";
  if (kind === "silent") return `✕ No answer for ${duration(site.age)}. What you see is as old.`;
  if (kind === "unknown") return "Knows no arm yet.";
  const bias = here === best ? "" : ` Alone it would choose ${arms[here]}.`;
  if (kind === "best") return `✓ Leads with the best arm.${bias}`;
  const leader = leaderOf(site, arms);
  const lead = leader === here && here !== best ? ", which is the best here but not over all" : "";
  return `Leads with ${site.state.answer.leader} so far${lead}.`;
}

/** The headline, and a sentence below it. */
export function headlineOf({ sites, arms, best_arm: best, true_means: means, epsilon, seconds }) {
  const right = sites.filter((site) => kindOf(site, arms, best) === "best").length;
  const dead = sites.filter((site) => !site.running).length;
  const silent = sites.filter(isSilent).length;
  const lead = right === 1 ? "leads" : "lead";
  const who =
    right === sites.length
      ? `All ${sites.length} sites lead`
      : right === 0
        ? "No site leads yet"
        : `${right} of ${sites.length} sites ${lead}`;
  const sorted = [...means].sort((a, b) => b - a);
  const misled = sites.filter((site) => bestHere(site.means) !== best).length;
  const bias =
    misled === 0
      ? "At every site alone the same arm is the best."
      : `Alone, ${misled === sites.length ? "every site" : `${misled} of ${sites.length}`} would settle for another arm: local bias.`;
  return {
    headline: `${who} with the best arm, ${arms[best]}`,
    words:
      `${arms[best]} is the best over all sites, by ${number(sorted[0] - (sorted[1] ?? sorted[0]), 3)}. ${bias} ` +
      `After ${duration(seconds)}, with epsilon ${epsilon} for every reward.${dead === 0 ? "" : ` ${counted(dead, "agent does", "agents do")} not run.`}` +
      `${silent === 0 ? "" : ` ${counted(silent, "agent does", "agents do")} not answer.`}`,
  };
}
