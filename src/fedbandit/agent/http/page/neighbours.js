// The neighbours as a small graph, with a pulse for each bulletin.

import { keyed, setAttribute, setAttributes, setText, svg } from "./elements.js";
import { counted, shortened } from "./format.js";
import { pulse } from "./pulses.js";

const graph = document.getElementById("graph");
const [lines, pulses, nodes] = ["lines", "pulses", "nodes"].map((name) => graph.querySelector(`.${name}`));
const MIDDLE = { x: 250, y: 150 };
let places = new Map();

/** `live` or `unreachable`. */
export function kindOf(neighbour) {
  return neighbour.reachable ? "live" : "unreachable";
}

/** Around the middle, the first at the top; one or two beside it, where the drawing is flat. */
function placed(neighbours) {
  const found = new Map();
  const first = neighbours.length <= 2 ? 0 : -Math.PI / 2;
  neighbours.forEach(({ name }, i) => {
    const angle = first + (2 * Math.PI * i) / neighbours.length;
    found.set(name, { x: MIDDLE.x + 115 * Math.cos(angle), y: MIDDLE.y + 105 * Math.sin(angle), angle });
  });
  return found;
}

function makeNode() {
  return svg(
    "g",
    {},
    svg("circle", { class: "node", r: 9 }),
    svg("path", { class: "cross", d: "M-4-4 4 4M4-4-4 4" }),
    svg("text", { class: "label" }),
  );
}

function drawNode(node, neighbour, isCrowded) {
  const { x, y, angle } = places.get(neighbour.name);
  const kind = kindOf(neighbour);
  setAttributes(node, { class: `neighbour ${kind}`, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` });
  const [, , label] = node.children;
  setText(label, isCrowded && kind === "live" ? "" : shortened(neighbour.name, 14)); // the table names all
  const isSide = Math.abs(Math.cos(angle)) > 0.35;
  setAttributes(label, {
    x: isSide ? Math.sign(Math.cos(angle)) * 14 : 0,
    y: isSide ? 4 : Math.sin(angle) < 0 ? -15 : 24,
    "text-anchor": isSide ? (Math.cos(angle) > 0 ? "start" : "end") : "middle",
  });
}

const WORDS = { live: "linked", unreachable: "cannot be reached" };

/** Draw it. */
export function drawNeighbours({ state }) {
  const { neighbours } = state;
  places = placed(neighbours);
  const isCrowded = neighbours.length > 12;
  graph.classList.toggle("crowded", isCrowded);
  setAttribute(graph, "viewBox", neighbours.length <= 2 ? "0 90 500 120" : "0 0 500 300");
  keyed(
    lines,
    neighbours,
    (it) => it.name,
    () => svg("line", { x1: MIDDLE.x, y1: MIDDLE.y }),
    (line, it) => setAttributes(line, { class: kindOf(it), x2: places.get(it.name).x, y2: places.get(it.name).y }),
  );
  keyed(
    nodes,
    neighbours,
    (it) => it.name,
    makeNode,
    (node, it) => drawNode(node, it, isCrowded),
  );
  setText(graph.querySelector(".self text"), shortened(state.name, 16));
  const told = Object.entries(WORDS)
    .map(([kind, words]) => [neighbours.filter((it) => kindOf(it) === kind).map((it) => shortened(it.name, 40)), words])
    .filter(([names]) => names.length > 0)
    .map(([names, words]) => `${words}: ${names.join(", ")}`);
  setAttribute(
    graph,
    "aria-label",
    `${counted(neighbours.length, "neighbour")} of ${shortened(state.name, 40)}. ${told.join("; ")}`,
  );
}

/** Show a bulletin on its way. */
export function drawBulletin({ neighbour, sent }) {
  const there = places.get(neighbour);
  if (there === undefined) return;
  pulse(pulses, sent ? MIDDLE : there, sent ? there : MIDDLE);
}
