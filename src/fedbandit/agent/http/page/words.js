// The federation's own words: fills them into texts of the page, which name them in braces, such as {arms} or {Arms}.

import { setAttribute, setText } from "./elements.js";

let known = { arm: "arm", arms: "arms", reward: "reward", rewards: "rewards", failure: "", failures: "" };

const capital = (word) => word.charAt(0).toLocaleUpperCase("en") + word.slice(1);

/** A text with the federation's words; {Arm} begins with a capital letter. */
export function say(text) {
  return text.replace(/\{(\w)(\w*)\}/g, (_, first, rest) => {
    const word = known[first.toLowerCase() + rest] ?? "";
    return first === first.toLowerCase() ? word : capital(word);
  });
}

/** What is counted where rewards fall short, in the plural: "more failures", or "fewer rewards". */
export const lost = () => (known.failures === "" ? `fewer ${known.rewards}` : `more ${known.failures}`);

const OF_OPERATORS = {
  "arm accept": "the operator of this site consents",
  "arm list": "see below",
  confirm: "the operator of this site has to confirm that",
  include: "the operator of this site can include it again, which",
  restore: "the operator of this site has to restore it, which",
};

/** A text of the agent without the commands that an operator would type: what is to be done, in words. */
export function plain(text) {
  return text.replace(
    /(^|[.:] )?'fedbandit (arm \w+|\w+)(?: (?:'[^']*'|[^' ])+)*'/g,
    (_, before = "", command) => {
      const words = Object.hasOwn(OF_OPERATORS, command) ? OF_OPERATORS[command] : "the operator of this site knows how";
      return `${before}${before.startsWith(".") ? capital(words) : words}`;
    },
  );
}

/** Use these words everywhere: in elements whose text, or label, has braces. */
export function useWords(words) {
  known = words;
  for (const node of document.querySelectorAll("[data-say]")) setText(node, say(node.dataset.say));
  for (const node of document.querySelectorAll("[data-say-label]")) {
    setAttribute(node, "aria-label", say(node.dataset.sayLabel));
  }
}

/** An estimate's interval of 95 %; of a policy that has none its margin, which is none; null: unknown. */
export function intervalOf(arm) {
  if (arm === null || arm.estimate === null) return null;
  if (arm.interval !== null) return arm.interval;
  return arm.radius === null ? null : { low: arm.estimate - arm.radius, high: arm.estimate + arm.radius };
}
