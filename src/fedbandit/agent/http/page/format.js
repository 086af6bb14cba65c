// Numbers and times in words.

const SPACE = "\u00a0";

/** A whole number with separators. */
export function count(value) {
  return value.toLocaleString("en");
}

/** `one` or `many`, with its number. */
export function counted(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** Decimals that suit rewards of this range: three for 0 to 1. */
export function decimalsFor(range) {
  return Math.min(6, Math.max(0, 3 - Math.floor(Math.log10(range > 0 ? range : 1))));
}

/** A number, or a dash where there is none. */
export function number(value, decimals) {
  if (value === null || value === undefined) return "–";
  return value
    .toFixed(decimals)
    .replace(/^-(?=[0.]*$)/, "")
    .replace("-", "−");
}

/** An interval behind its number: "0.61 to 0.74"; `unit` multiplies it. */
export function between(interval, decimals, unit = 1) {
  if (interval === null || interval === undefined) return "";
  return `${number(unit * interval.low, decimals)} to ${number(unit * interval.high, decimals)}`;
}

/** A number of any size, with two significant digits. */
export function rough(value) {
  return value === 0 ? "0" : String(Number(value.toPrecision(2))).replace("-", "−");
}

/** A probability, rounded down: nobody is told more than is known. Never 0 % or 100 %. As the agent says it. */
export function percent(value, more = "more than", less = "less than") {
  if (value === null || value === undefined) return "–";
  if (value > 0.99) return `${more}${SPACE}99${SPACE}%`;
  if (value < 0.01) return `${less}${SPACE}1${SPACE}%`;
  return `${Math.floor(100 * value)}${SPACE}%`;
}

/** The same where there is little room. */
export function shortPercent(value) {
  return percent(value, ">", "<");
}

/** A share in per cent; 0 and 1 are possible. */
export function share(value) {
  if (value === null || value === undefined) return "–";
  const whole = 100 * value;
  if (whole > 0 && whole < 0.001) return `<${SPACE}0.001${SPACE}%`;
  return `${whole > 0 && whole < 1 ? Number(whole.toPrecision(1)) : Math.round(whole)}${SPACE}%`;
}

/** A rate or a sum of any size: whole, unless it is small. */
export function whole(value) {
  if (value === null || value === undefined) return "–";
  return value >= 9.95 || value === 0 ? count(Math.round(value)) : number(value, 1);
}

/** A length of time: the two largest units at most. */
export function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s}${SPACE}s`;
  if (s < 3600) return `${Math.floor(s / 60)}${SPACE}min`;
  if (s < 86400)
    return `${Math.floor(s / 3600)}${SPACE}h${s % 3600 >= 60 ? ` ${Math.floor((s % 3600) / 60)}${SPACE}min` : ""}`;
  const days = Math.floor(s / 86400);
  return `${days}${SPACE}${days === 1 ? "day" : "days"}`;
}

/** How long ago. */
export function ago(seconds) {
  return seconds < 1.5 ? "just now" : `${duration(seconds)} ago`;
}

/** The time of day; of another day the date and no seconds. */
export function time(at, now = Date.now() / 1000, hasSeconds = true) {
  const then = new Date(1000 * at);
  const clock = then.toLocaleTimeString("en-GB");
  const isToday = Math.abs(now - at) < 43200 || then.toDateString() === new Date(1000 * now).toDateString();
  if (isToday) return hasSeconds ? clock : clock.slice(0, 5);
  return `${then.toLocaleDateString("sv-SE")} ${clock.slice(0, 5)}`; // Swedish dates are those of ISO 8601
}

/** At most `most` characters, the end replaced by an ellipsis. */
export function shortened(text, most) {
  const letters = Array.from(text);
  return letters.length <= most ? text : `${letters.slice(0, most - 1).join("")}…`;
}
