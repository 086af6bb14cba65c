// Moves a dot along a line of a graph with a bulletin; where motion is not wanted, the line lights up.

import { svg } from "./elements.js";

const still = matchMedia("(prefers-reduced-motion: reduce)");
const MOST = 40; // at once: beyond that nobody sees more

/** A pulse in `layer` from one point to another. */
export function pulse(layer, from, to) {
  if (layer.childElementCount >= MOST || document.hidden) return;
  if (still.matches) {
    const line = svg("line", { class: "pulse", x1: from.x, y1: from.y, x2: to.x, y2: to.y });
    layer.append(line);
    setTimeout(() => line.remove(), 400);
    return;
  }
  const dot = svg("circle", { class: "pulse", r: 4 });
  layer.append(dot);
  const at = (point) => ({ transform: `translate(${point.x}px, ${point.y}px)` });
  dot.animate([at(from), at(to)], { duration: 600, easing: "ease-in-out" }).finished.then(
    () => dot.remove(),
    () => dot.remove(),
  );
}
