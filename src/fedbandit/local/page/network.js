// The graph of all sites, with a pulse where bulletins have gone over a link.

import { keyed, setAttribute, setAttributes, setText, svg } from "/page/elements.js";
import { counted, shortened } from "/page/format.js";
import { pulse } from "/page/pulses.js";
import { isSilent, kindOf } from "./verdict.js";

const graph = document.getElementById("network");
const [lines, pulses, nodes] = ["lines", "pulses", "nodes"].map((name) => graph.querySelector(`.${name}`));
let bulletins = new Map(); // of each link, as last seen

const WORDS = {
  best: "lead with the best arm",
  other: "lead with another arm",
  unknown: "know no arm yet",
  silent: "do not answer",
  dead: "do not run",
};

function place(i, count) {
  const angle = (2 * Math.PI * (i + (count === 2 ? 0.5 : 0))) / count - Math.PI / 2;
  return { x: 250 + 140 * Math.cos(angle), y: 150 + 112 * Math.sin(angle), angle };
}

function makeNode() {
  return svg(
    "g",
    {},
    svg("circle", { r: 11 }),
    svg("path", { class: "cross", d: "M-4-4 4 4M4-4-4 4" }),
    svg("text"),
  );
}

function drawNode(node, site, at, kind, isCrowded) {
  const [circle, , label] = node.children;
  setAttributes(node, { class: kind, transform: `translate(${at.x.toFixed(1)} ${at.y.toFixed(1)})` });
  setAttribute(circle, "class", `node ${kind}`);
  setText(label, shortened(site.name, isCrowded ? 9 : 14));
  const isSide = Math.abs(Math.cos(at.angle)) > 0.35;
  setAttributes(label, {
    x: isSide ? Math.sign(Math.cos(at.angle)) * 17 : 0,
    y: isSide ? 4 : Math.sin(at.angle) < 0 ? -18 : 27,
    "text-anchor": isSide ? (Math.cos(at.angle) > 0 ? "start" : "end") : "middle",
  });
}

/** Whether an agent cannot be asked, or says that it cannot reach the other. */
function isBroken(site, other) {
  if (!site.running || isSilent(site)) return true;
  return site.state?.neighbours.find((it) => it.name === other.name)?.reachable === false;
}

/** Draw it. */
export function drawNetwork({ sites, arms, best_arm: best, graph: { edges } }) {
  const places = sites.map((_, i) => place(i, sites.length));
  const kinds = sites.map((site) => kindOf(site, arms, best));
  graph.classList.toggle("crowded", sites.length > 14);
  keyed(
    lines,
    edges,
    ([i, j]) => `${i} ${j}`,
    () => svg("line"),
    (line, [i, j]) => {
      setAttributes(line, {
        class: isBroken(sites[i], sites[j]) || isBroken(sites[j], sites[i]) ? "unreachable" : "live",
        x1: places[i].x,
        y1: places[i].y,
        x2: places[j].x,
        y2: places[j].y,
      });
    },
  );
  keyed(
    nodes,
    sites,
    (site) => site.name,
    makeNode,
    (node, site, i) => drawNode(node, site, places[i], kinds[i], sites.length > 14),
  );
  drawPulses(sites, places, edges);
  const told = Object.entries(WORDS)
    .map(([kind, words]) => [sites.filter((_, i) => kinds[i] === kind).map((site) => shortened(site.name, 40)), words])
    .filter(([names]) => names.length > 0);
  setAttribute(
    graph,
    "aria-label",
    `The network of ${counted(sites.length, "site")}. ${told.map(([names, words]) => `${names.join(", ")} ${words}`).join("; ")}`,
  );
}

function drawPulses(sites, places, edges) {
  const now = new Map();
  for (const [i, j] of edges) {
    const link = sites[i].state?.neighbours.find((it) => it.name === sites[j].name);
    if (link === undefined) continue;
    const key = `${i} ${j}`;
    const moved = link.received + link.sent;
    now.set(key, moved);
    if (bulletins.has(key) && moved > bulletins.get(key)) pulse(pulses, places[i], places[j]);
  }
  bulletins = now;
}
