// Draws one row of dot and whisker: an estimate with its interval, and marks beside it.

import { setAttributes, svg } from "./elements.js";

/** An empty row; `marks` are shapes beside the dot: `ring` or `line`, each with its class. */
export function makeWhisker(marks) {
  const grid = svg("g", { class: "grid" });
  const bias = svg("line", { class: "bias", y1: "50%", y2: "50%" });
  const whisker = svg("line", { class: "whisker", y1: "50%", y2: "50%" });
  const ends = [0, 1].map(() => svg("line", { class: "whisker", y1: "34%", y2: "66%" }));
  const dot = svg("circle", { class: "dot", r: 6, cy: "50%" });
  const shapes = Object.entries(marks).map(([kind, shape]) => {
    const path = shape === "ring" ? "M-6 0a6 6 0 1 0 12 0a6 6 0 1 0-12 0Z" : "M0-13V13";
    return [kind, svg("svg", { class: `mark ${kind}`, y: "50%", overflow: "visible" }, svg("path", { d: path }))];
  });
  const root = svg("svg", { class: "whiskers", "aria-hidden": "true", focusable: "false" });
  root.append(grid, bias, whisker, ...ends, ...shapes.map(([, shape]) => shape), dot); // no mark hides the dot
  root.parts = { grid, bias, whisker, ends, dot, shapes: Object.fromEntries(shapes) };
  return root;
}

/** Draw an estimate with its interval, and the marks by their values; null: unknown. */
export function drawWhisker(root, scale, estimate, interval, marks, biasTo = null) {
  const { grid, bias, whisker, ends, dot, shapes } = root.parts;
  if (root.scale !== scale) {
    root.scale = scale;
    grid.replaceChildren(
      ...scale.ticks.map(({ value }) => svg("line", { x1: scale.at(value), x2: scale.at(value), y1: 0, y2: "100%" })),
    );
  }
  const known = estimate !== null;
  setAttributes(dot, { cx: known ? scale.at(estimate) : 0, visibility: known ? null : "hidden" });
  const { low, high } = interval ?? { low: 0, high: 0 };
  const wide = known && interval !== null;
  setAttributes(whisker, { x1: scale.at(low), x2: scale.at(high), visibility: wide ? null : "hidden" });
  [low, high].forEach((value, i) => {
    const inside = wide && scale.holds(value); // an end without a bar goes on beyond the edge
    setAttributes(ends[i], { x1: scale.at(value), x2: scale.at(value), visibility: inside ? null : "hidden" });
  });
  for (const [kind, value] of Object.entries(marks)) {
    const seen = value !== null && value !== undefined;
    setAttributes(shapes[kind], { x: seen ? scale.at(value) : 0, visibility: seen ? null : "hidden" });
  }
  const differs = known && biasTo !== null && biasTo !== undefined;
  setAttributes(bias, {
    x1: differs ? scale.at(estimate) : 0,
    x2: differs ? scale.at(biasTo) : 0,
    visibility: differs ? null : "hidden",
  });
}

const LABEL = 46; // pixels from a label to the next

/** The labels above a column of rows; fewer where there is little room. */
export function makeAxis() {
  const root = svg("svg", { class: "axis", "aria-hidden": "true", focusable: "false" });
  root.room = Infinity;
  new ResizeObserver(([{ contentRect }]) => {
    root.room = contentRect.width;
    if (root.scale !== undefined) drawLabels(root, root.scale);
  }).observe(root);
  return root;
}

/** Draw the labels of a scale. */
export function drawAxis(root, scale) {
  if (root.scale === scale) return;
  root.scale = scale;
  drawLabels(root, scale);
}

function drawLabels(root, scale) {
  const every = Math.max(1, Math.ceil(((scale.ticks.length - 1) * LABEL) / Math.max(1, root.room)));
  const anchor = (value) => (scale.at(value) === "0.00%" ? "start" : scale.at(value) === "100.00%" ? "end" : "middle");
  root.replaceChildren(
    ...scale.ticks.filter((_, i) => i % every === 0).map(({ value, label }) =>
      svg("text", { x: scale.at(value), y: 14, "text-anchor": anchor(value) }, label),
    ),
  );
}
