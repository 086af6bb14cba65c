// The scale that all estimates share: which part of the rewards is shown, and where its ticks are.

import { number } from "./format.js";

/** The smallest round number of steps 1, 2, 5 that is at least `value`. */
function roundStep(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 5, 10].find((it) => it * power >= value * 0.999999);
  return step * power;
}

/**
 * A scale from `values` (null ones are ignored) within the range of rewards and a tenth of it on either side: means
 * with noise may lie outside, and are drawn at the edge.
 */
export class Scale {
  constructor(values, low, high) {
    const range = high - low || 1;
    const known = values.filter((it) => it !== null && it !== undefined && Number.isFinite(it));
    const least = Math.max(low - 0.1 * range, known.length ? Math.min(...known) : low);
    const most = Math.min(high + 0.1 * range, known.length ? Math.max(...known) : high);
    const width = Math.max(most - least, 0.02 * range);
    const middle = Math.min(Math.max((least + most) / 2, low), high);
    this.step = roundStep(width / 6);
    const from = Math.floor((middle - width / 2 - 0.1 * this.step) / this.step) * this.step;
    const to = Math.ceil((middle + width / 2 + 0.1 * this.step) / this.step) * this.step;
    this.from = Math.max(from, least >= low ? low : low - 0.1 * range); // no empty room beyond the range of rewards
    this.to = Math.min(to, most <= high ? high : high + 0.1 * range);
    this.decimals = Math.max(0, -Math.floor(Math.log10(this.step) + 1e-9));
  }

  /** Whether a value lies on the scale. */
  holds(value) {
    return value >= this.from && value <= this.to;
  }

  /** Where a value lies, as a percentage of the width; at the edge if it lies outside. */
  at(value) {
    const part = (value - this.from) / (this.to - this.from);
    return `${(100 * Math.min(1, Math.max(0, part))).toFixed(2)}%`;
  }

  /** The ticks: values and their labels. */
  get ticks() {
    const found = [];
    for (let i = Math.ceil(this.from / this.step - 1e-9); i * this.step <= this.to + 1e-9 * this.step; i += 1) {
      const value = i * this.step;
      found.push({ value, label: number(value, this.decimals) });
    }
    return found;
  }
}

/** Keeps a scale for as long as it fits: one that changes with every reward would make all dots dance. */
export class SteadyScale {
  #scale = null;

  for(values, low, high) {
    const fresh = new Scale(values, low, high);
    const old = this.#scale;
    const fits = old !== null && old.from <= fresh.from && old.to >= fresh.to;
    if (!fits || old.to - old.from > 2 * (fresh.to - fresh.from)) this.#scale = fresh;
    return this.#scale;
  }
}
