// Elements, numbers and colours.
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  fill(element, attributes);
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

function drawn(tag, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(element, attributes);
  return element;
}

function fill(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value === true ? "" : value);
  }
}

const at = (id) => document.getElementById(`walk-${id}`);
const SLOTS = { encoder: "encoder self-attention", decoder: "decoder self-attention", cross: "cross-attention" };
const number = (value, digits = 2) => value.toFixed(digits).replace("-", "−");
const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;

// A piece as people read it: a dash for one that continues a word.
function shown(name) {
  if (name.startsWith(SPACE)) return name.slice(1) || "␣";
  return /\p{L}/u.test(name) && !MARKS.includes(name) ? `-${name}` : name;
}
const MARKS = ["start", "end"];

// A strip of coloured cells: blue is positive, orange negative, deeper is larger.
function strip(values, most, label) {
  const share = 100 / values.length;
  const cells = Array.from(values, (value, n) => {
    const strength = Math.round(Math.min(1, Math.abs(value) / most) * 100);
    const color = `color-mix(in srgb, var(--${value < 0 ? "minus" : "plus"}) ${strength}%, var(--zero))`;
    return `${color} ${n * share}% ${(n + 1) * share}%`;
  });
  const told = (event) => {
    const { left, width } = event.currentTarget.getBoundingClientRect();
    const n = Math.min(values.length - 1, Math.max(0, Math.floor(((event.clientX - left) / width) * values.length)));
    event.currentTarget.title = `number ${n + 1} of ${values.length}: ${number(values[n], 3)}`;
  };
  const style = `background: linear-gradient(to right, ${cells.join(", ")})`;
  return h("div", { class: "walk-strip", role: "img", "aria-label": label, style, onmousemove: told });
}

// A map of weights, a row for each query.
function map(rows, columns, color) {
  const canvas = h("canvas", { width: columns, height: rows.length });
  const paint = canvas.getContext("2d");
  paint.fillStyle = color;
  rows.forEach((weights, y) => weights.forEach((weight, x) => {
    paint.globalAlpha = weight;
    paint.fillRect(x, y, 1, 1);
  }));
  return canvas;
}
