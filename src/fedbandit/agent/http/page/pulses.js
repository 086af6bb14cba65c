// Moves a dot along a line of a graph at an exchange; where motion is not wanted, the line lights up.

import { svg } from "./elements.js";

const still = matchMedia("(prefers-reduced-motion: reduce)");
const MOST = 40; // at once: beyond that nobody sees more

/** A pulse in `layer` from one point to another, there and back. */
export function pulse(layer, from, to, isCompleted = true) {
  if (layer.childElementCount >= MOST || document.hidden) return;
  const kind = isCompleted ? "pulse" : "pulse failed";
  if (still.matches) {
    const line = svg("line", { class: kind, x1: from.x, y1: from.y, x2: to.x, y2: to.y });
    layer.append(line);
    setTimeout(() => line.remove(), 400);
    return;
  }
  const dot = svg("circle", { class: kind, r: 4 });
  layer.append(dot);
  const at = (point) => ({ transform: `translate(${point.x}px, ${point.y}px)` });
  const middle = { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 };
  const steps = isCompleted
    ? [at(from), at(to), at(from)]
    : [at(from), { ...at(middle), opacity: 1 }, { ...at(middle), opacity: 0 }];
  dot.animate(steps, { duration: 900, easing: "ease-in-out" }).finished.then(
    () => dot.remove(),
    () => dot.remove(),
  );
}
