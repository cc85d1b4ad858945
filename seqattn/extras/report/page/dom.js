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

/** Create a text with an explanation, on hover and focus and for screen readers. */
export function explained(text, about) {
  return element("span", { class: "explained", tabindex: 0, role: "note", title: about, "aria-label": `${text}: ${about}` }, text);
}

/** Create a box that scrolls sideways; while it does, a line above says so and its edges fade. */
export function scroller(attributes, ...children) {
  const box = element("div", { class: "scroll", ...attributes }, children);
  const settle = () => {
    const left = box.scrollWidth - box.clientWidth;
    box.classList.toggle("before", left > 1 && box.scrollLeft > 1);
    box.classList.toggle("after", left - box.scrollLeft > 1);
    hint.hidden = left <= 1;
  };
  const hint = element("p", { class: "note", hidden: "" }, "scroll sideways for more →");
  box.addEventListener("scroll", settle, { passive: true });
  const sizes = new ResizeObserver(settle);
  [box, ...box.children].forEach((node) => sizes.observe(node));
  return [hint, box];
}

/** Redraw the contents of `place`; its focused button, identified by `data-focus`, keeps the focus. */
export function keepingFocus(place, draw) {
  const own = place.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
  draw();
  const buttons = own ? [...place.querySelectorAll(`[data-focus="${CSS.escape(own)}"]`)] : [];
  buttons.find((button) => button.checkVisibility())?.focus();
}

/** Format a number for readers. */
export function rounded(value, digits = 3) {
  if (value === null || value === undefined) return "none";
  if (Number.isInteger(value)) return String(value);
  const size = Math.abs(value);
  const tiny = 10 ** -digits / 2;
  return size >= 1e5 || size < tiny ? value.toExponential(1) : value.toFixed(size >= 100 ? 1 : digits);
}
