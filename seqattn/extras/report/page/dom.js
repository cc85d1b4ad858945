/** Elements with their attributes and children in one call. */

const inline = document.createElement("div");
inline.innerHTML = "<svg></svg>";
const SVG = inline.firstChild.namespaceURI;

/** Return the element of the page with an id. */
export function at(id) {
  return document.getElementById(id);
}

/** Create an HTML element; attributes that are functions are listeners, null ones are omitted. */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** Create an SVG element. */
export function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(key, value);
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null));
  return node;
}

/** Redraw the contents of `place`; its focused button, identified by `data-focus`, keeps the focus. */
export function keepingFocus(place, draw) {
  const own = place.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
  draw();
  if (own) place.querySelector(`[data-focus="${CSS.escape(own)}"]`)?.focus();
}

/** Format a number for readers. */
export function rounded(value, digits = 3) {
  if (value === null || value === undefined) return "none";
  if (Number.isInteger(value)) return String(value);
  const size = Math.abs(value);
  const tiny = 10 ** -digits / 2;
  return size >= 1e5 || size < tiny ? value.toExponential(1) : value.toFixed(size >= 100 ? 1 : digits);
}
