// Makes and updates elements. Text is always a text node: names of arms and sites may come from strangers.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) setAttribute(node, name, value);
  node.append(...children);
  return node;
}

/** An HTML element. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** Set an attribute, or remove it for null, undefined and false; true is the empty text. */
export function setAttribute(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else {
    const text = value === true ? "" : String(value);
    if (node.getAttribute(name) !== text) node.setAttribute(name, text);
  }
}

/** Set several attributes. */
export function setAttributes(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) setAttribute(node, name, value);
}

/** Set the text of an element; untouched if it is the same, so that a selection survives. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Show or hide an element. */
export function show(node, isShown) {
  if (node.hidden === isShown) node.hidden = !isShown;
}

/** A name of an arm or a site: isolated, so that its writing direction changes nothing around it. */
export function nameOf(text) {
  return el("bdi", { class: "name" }, text);
}

/** Set the text of an element, and isolate each of the names in it; untouched if it is the same. */
export function setWords(node, text, names) {
  if (node.textContent === text) return;
  const known = [...new Set(names)].filter((it) => it !== "").sort((a, b) => b.length - a.length);
  if (known.length === 0) return setText(node, text);
  const any = known.map((it) => it.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&")).join("|");
  const parts = text.split(new RegExp(`(?<![\\p{L}\\p{N}])(${any})(?![\\p{L}\\p{N}])`, "u"));
  node.replaceChildren(...parts.map((part, i) => (i % 2 === 1 ? el("bdi", {}, part) : part)));
}

/**
 * Make the children of `parent` the elements of `items`, in their order: one element per key, which stays the same
 * element for as long as its key is there.
 */
export function keyed(parent, items, keyOf, make, update) {
  const known = (parent.keyedElements ??= new Map());
  const wanted = new Set();
  items.forEach((item, position) => {
    const key = keyOf(item);
    wanted.add(key);
    let node = known.get(key);
    if (node === undefined) known.set(key, (node = make(item)));
    update(node, item, position);
    if (parent.children[position] !== node) parent.insertBefore(node, parent.children[position] ?? null);
  });
  for (const [key, node] of known) {
    if (!wanted.has(key)) {
      node.remove();
      known.delete(key);
    }
  }
}
