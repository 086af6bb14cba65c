// How the estimates moved over time: a line per arm, and a band of the 95 % interval around the two best.

import uPlot from "./uPlot.esm.js";
import { el, keyed, nameOf, setAttribute, setText, show } from "./elements.js";
import { decimalsFor, number, shortened, time } from "./format.js";
import { colourOf, onTheme } from "./theme.js";
import { say } from "./words.js";

const place = document.getElementById("history");
const legend = document.getElementById("legend");
const nothing = document.getElementById("history-none");
const meaning = document.getElementById("history-words");
const always = document.getElementById("always");
const choices = [...document.querySelectorAll("[data-lines]")];
const MOST_LINES = 8; // of many arms, only so many are drawn until somebody asks for more
const MOST_DOTS = 12; // of few points each is a dot: one alone would not be seen
const HEIGHT = 300;
const SHORTEST = 20; // seconds of the axis

let known = null; // what was drawn last
let plot = null;
let drawn = ""; // what the chart was built for
let end = 0; // of the lines: the time until which the last values are known to hold
let lines = "estimates";
let isAlways = false; // whether the bands are those that hold however often one looks
const MEANING = {
  estimates: "The mean {reward} of each {arm} over all sites, as estimated then.",
  own_means: "The mean of this site's own noisy releases of each {arm}.",
};
const picked = new Map(); // arms that somebody has shown or hidden

always.addEventListener("click", () => {
  isAlways = !isAlways;
  setAttribute(always, "aria-pressed", String(isAlways));
  drawn = "";
  redraw();
});

for (const button of choices) {
  button.addEventListener("click", () => {
    lines = button.dataset.lines;
    for (const it of choices) setAttribute(it, "aria-pressed", String(it === button));
    redraw();
  });
}
new ResizeObserver(() => plot?.setSize(size())).observe(place);
onTheme(() => {
  drawn = "";
  redraw();
});

function redraw() {
  if (known !== null) drawHistory(known);
}

function size() {
  return { width: Math.max(200, place.clientWidth), height: HEIGHT };
}

/** The arms by their estimate, best first: numbers of active ones, then of all others. */
function ranking(arms) {
  const worth = (k) => (arms[k].status === "active" ? 0 : -1e9) + (arms[k].estimate ?? -1e6);
  return arms.map((_, k) => k).sort((a, b) => worth(b) - worth(a) || a - b);
}

const faded = (colour) => colour.replace(/^rgb\((.*)\)$/, "rgba($1, 0.16)");

function build({ arms, visible, banded, low, high }) {
  const range = high - low || 1;
  const decimals = decimalsFor(range);
  const text = colourOf("muted-text");
  const grid = colourOf("grid-line");
  const colours = arms.map((_, k) => colourOf(`colour-${k % 8} arm-colour`));
  const axis = {
    stroke: text,
    font: '12px system-ui, "Segoe UI", sans-serif',
    grid: { stroke: grid, width: 1 },
    ticks: { stroke: grid, width: 1 },
  };
  const paths = uPlot.paths.stepped({ align: 1 }); // a point is kept where something changed: until then nothing did
  const edge = { stroke: "transparent", width: 0, points: { show: false }, paths };
  const first = arms.length + 1;
  return {
    ...size(),
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 }, dataIdx: holding },
    scales: {
      x: { range: (_, from, to) => (from === null ? [0, 1] : [Math.min(from, to - SHORTEST), to]) },
      y: {
        range: (chart) =>
          inside(chart.data.slice(1, first), visible, low, high, 0.1 * range, 0.02 * range),
      },
    },
    axes: [
      {
        ...axis,
        size: 34,
        space: 90,
        values: (_, splits, __, ___, step) => splits.map((at) => time(at, undefined, step < 60)),
      },
      {
        ...axis,
        size: 56,
        values: (_, splits) => splits.map((it) => number(it, Math.max(decimals - 1, decimalsOf(splits)))),
      },
    ],
    series: [
      {},
      ...arms.map((arm, k) => ({
        stroke: colours[k],
        width: 2,
        dash: k >= 8 || arm.status !== "active" ? [6, 4] : [],
        spanGaps: true,
        paths,
        points: { show: (chart) => chart.data[0].length <= MOST_DOTS, filter: changes, size: 6, fill: colours[k] },
        show: visible.has(k),
      })),
      ...banded.flatMap(() => [edge, edge]),
    ],
    bands: banded.map((k, i) => ({ series: [first + 2 * i + 1, first + 2 * i], fill: faded(colours[k]) })),
    hooks: { setCursor: [drawValues] },
  };
}

/** The point whose values hold at a time: of the nearest one and the one before it, the last that is not later. */
const holding = (chart, _, nearest, at) => (nearest > 0 && at < chart.data[0][nearest] ? nearest - 1 : nearest);

/** The points that get a dot: all but the last, which only repeats the values before it. */
const changes = (chart, _, isShown) => (isShown ? chart.data[0].slice(1).map((__, i) => i) : null);

const decimalsOf = (splits) =>
  splits.length < 2 ? 0 : Math.min(6, Math.max(0, -Math.floor(Math.log10(splits[1] - splits[0]) + 1e-9)));

/**
 * A range that holds the visible lines but for their first tenth, which is wild, and is never a point. It goes beyond
 * the rewards where lines do, and by `most` there.
 */
function inside(values, visible, low, high, most, narrowest) {
  const [floor, ceiling] = [low - most, high + most];
  const later = values.filter((_, k) => visible.has(k)).flatMap((it) => it.slice(it.length > 20 ? it.length / 10 : 0));
  const known = later.filter((it) => it !== null);
  if (known.length === 0) return [low, high];
  const from = Math.min(
    ceiling,
    Math.max(
      floor,
      known.reduce((a, b) => Math.min(a, b)),
    ),
  );
  const to = Math.max(
    floor,
    Math.min(
      ceiling,
      known.reduce((a, b) => Math.max(a, b)),
    ),
  );
  const pad = Math.max(0.15 * (to - from), (narrowest - (to - from)) / 2);
  return [Math.max(from - pad, from >= low ? low : floor), Math.min(to + pad, to <= high ? high : ceiling)];
}

/** Columns as the chart wants them: the last values hold until `end`; older points may know fewer arms. */
function columns(changed, arms, banded) {
  const points = [...changed, { ...changed.at(-1), at: end }];
  const of = (name, k) => points.map((point) => point[name]?.[k] ?? null);
  return [
    points.map(({ at }) => at),
    ...arms.map((_, k) => of(lines, k)),
    ...banded.flatMap((k) => (isAlways ? [of("always_lows", k), of("always_highs", k)] : [of("lows", k), of("highs", k)])),
  ];
}

/** Write values beside the names: at the cursor, or the last ones. */
function drawValues(chart) {
  const { history, state } = known;
  const last = history.points.length - 1;
  const at = (chart.cursor.idx ?? null) === null ? last : Math.min(chart.cursor.idxs[0], last);
  const decimals = decimalsFor(state.federation.high - state.federation.low);
  [...legend.children].forEach((item) => {
    setText(item.querySelector(".value"), number(history.points[at]?.[lines][item.arm] ?? null, decimals));
  });
}

function drawLegend(arms, order, visible) {
  const isFree = !legend.contains(document.activeElement) && !legend.matches(":hover");
  if (isFree || legend.childElementCount !== order.length) legend.order = order;
  keyed(
    legend,
    legend.order,
    (k) => `${k} ${arms[k].name}`,
    (k) => {
      const button = el(
        "button",
        { type: "button", class: `colour-${k % 8}` },
        el("span", { class: "swatch" }),
        nameOf(arms[k].name),
        " ",
        el("span", { class: "value" }),
      );
      button.addEventListener("click", () => {
        picked.set(arms[k].name, button.getAttribute("aria-pressed") !== "true");
        redraw();
      });
      const item = el("li", {}, button);
      item.arm = k;
      return item;
    },
    (item, k) => setAttribute(item.firstChild, "aria-pressed", String(visible.has(k))),
  );
}

/** The same in a sentence, for those who do not see the chart. */
function inWords(points, arms, order) {
  const told = order.slice(0, 5).map((k) => {
    const values = points.map((point) => point[lines][k] ?? null).filter((it) => it !== null);
    return values.length === 0
      ? null
      : `${shortened(arms[k].name, 40)} from ${number(values[0], 3)} to ${number(values.at(-1), 3)}`;
  });
  return `${lines === "estimates" ? "Estimates" : "Means of this site alone"} from ${time(points[0].at)} to ${time(end)}: ${told.filter((it) => it !== null).join("; ")}`;
}

const bandsInWords = () =>
  isAlways
    ? "The bands are 95\u00a0% intervals of the best two that hold however often one looks."
    : "The bands are 95\u00a0% intervals of the best two, for somebody who looks once.";

/** Why a line can move although nobody got that arm: the weights of the sites have changed. */
const whyLinesMove = (federation) =>
  federation.counts === "patients" && federation.num_agents > 1
    ? say(" A line can move while nobody gets that {arm}: each site counts by how many patients it has, and that changes.")
    : "";

/** Draw it. */
export function drawHistory(now) {
  known = now;
  const { arms, federation } = now.state;
  const { points } = now.history;
  const isEmpty = !points.some((point) => point[lines].some((it) => it !== null));
  for (const it of [place, legend, meaning]) show(it, !isEmpty);
  setText(meaning, lines === "estimates" ? `${say(MEANING.estimates)} ${bandsInWords()}${whyLinesMove(federation)}` : say(MEANING[lines]));
  show(always, lines === "estimates");
  show(nothing, isEmpty);
  if (isEmpty) return;
  const order = ranking(arms);
  const top = new Set(order.slice(0, MOST_LINES));
  const visible = new Set(order.filter((k) => picked.get(arms[k].name) ?? top.has(k)));
  const banded =
    lines === "estimates" ? order.slice(0, 2).filter((k) => visible.has(k) && arms[k].estimate !== null) : [];
  const key = JSON.stringify([arms.map((arm) => arm.status), [...visible].sort(), banded, lines]);
  const isFresh = ["live", "polling"].includes(now.connection.kind);
  const pixel = (end - points[0].at) / place.clientWidth;
  const until = Math.max(points.at(-1).at, isFresh ? now.now : end);
  const isOld = known.history !== plot?.history || until - end > pixel;
  if (key !== drawn || isOld) {
    end = until;
    const data = columns(points, arms, banded);
    if (key === drawn) plot.setData(data);
    else {
      plot?.destroy();
      plot = new uPlot(build({ arms, visible, banded, low: federation.low, high: federation.high }), data, place);
      drawn = key;
    }
    plot.history = known.history;
  }
  drawLegend(arms, order, visible);
  drawValues(plot);
  setAttribute(place, "aria-label", inWords(points, arms, order));
}
