// One head, and one token that looks: every number from its query to its sum.
function headView(run, state, change) {
  const { slot, layer, head } = state.look;
  const attention = run.attentions[slot][layer];
  const queries = slot === "encoder" ? run.source : inputsOf(run);
  const keys = slot === "decoder" ? inputsOf(run) : run.source;
  const place = slot === "encoder" ? state.place : state.step;
  const row = attention.rows[place][head];
  const [seen, group] = [attention.keys.map((key) => key[row.group]), attention.values.map((value) => value[row.group])];
  const most = (vectors) => Math.max(...vectors.map((one) => one.reduce((a, b) => Math.max(a, Math.abs(b)), 1e-9)));
  const [mostKey, mostValue] = [most([row.query, ...seen]), most(group)];
  const root = `√${attention.width}`;
  const cell = (name, ...children) => h("div", { class: `walk-cell walk-${name}` }, ...children);
  const rows = keys.map((token, n) => {
    if (n > place && slot === "decoder") {
      return h("div", { class: "walk-line walk-masked", "data-key": n }, cell("who", shown(token.name)), cell("key"),
        cell("product"), cell("score", "−∞"), cell("weight", "hidden: written later"), cell("value"));
    }
    const weight = h("span", { class: "walk-bar", style: `--share:${(100 * row.weights[n]).toFixed(2)}%` });
    const line = h("div", { class: "walk-line", "data-key": n }, cell("who", opener(shown(token.name), n, state, change)),
      cell("key", strip(seen[n], mostKey, `key of ${shown(token.name)}`)), cell("product", number(row.products[n])),
      cell("score", number(row.scores[n])), cell("weight", weight, h("span", { class: "walk-figure" }, number(row.weights[n], 3))),
      cell("value", strip(group[n], mostValue, `value of ${shown(token.name)}`)));
    return state.open === n ? [line, productsTable(row, seen[n], group[n], n)] : line;
  });
  const titles = [["who", "token"], ["key", "2 key"], ["product", "3 q·k"], ["score", `4 ÷ ${root}`], ["weight", "5 weight"], ["value", "6 value"]];
  const query = h("div", { class: "walk-line walk-query" }, cell("who", "1 query"),
    cell("key", strip(row.query, mostKey, "query")), h("div", { class: "walk-cell walk-rest" },
      `of “${shown(queries[place].name)}”`, slot === "encoder" ? "" : `, to write “${shown(run.steps[place].name)}”`));
  const sum = h("div", { class: "walk-line walk-sum" }, cell("who", opener("7 sum", "sum", state, change)),
    h("div", { class: "walk-cell walk-rest" }, attention.isSilent(head) ? "silenced: zeros in its place" : "of weight × value"),
    cell("weight", h("span", { class: "walk-figure" }, number(row.weights.reduce((a, b) => a + b), 3))),
    cell("value", strip(row.sum, mostValue, "sum of the weighted values")));
  return [
    controls(run, state, change, queries, place, attention),
    explained(attention, slot, shown(queries[place].name)),
    h("div", { class: `walk-math walk-slot-${slot}`, "data-name": attention.name, "data-head": head, "data-query": place },
      query, h("div", { class: "walk-line walk-titles" }, titles.map(([name, title]) => cell(name, title))),
      rows, sum, state.open === "sum" ? sumTable(row, keys, group) : null),
  ];
}

// The seven steps in words.
function explained(attention, slot, name) {
  const turned = attention.frequencies.length ? " Both are then turned by their positions, so that distance counts." : "";
  const whom = { encoder: "the sentence", cross: "the encoder's output", decoder: "what is written" }[slot];
  const mask = slot === "decoder" ? "−∞ hides the tokens that come later" : "here it hides nothing, as the whole sentence may be seen";
  const steps = [
    ["Query", `${attention.width} numbers made of “${name}” by a learned matrix: what it looks for in ${whom}.`],
    ["Key", `made of each token there by a second learned matrix: what it can be found by.${turned}`],
    ["Dot product q·k", "multiply them number by number and add up: large where they match."],
    ["Scale and mask", `divide by √${attention.width} to keep scores moderate. The mask: ${mask}.`],
    ["Softmax", "take exponentials and divide by their sum: weights above 0 that sum to 1."],
    ["Value", "what each token passes on, by a third learned matrix."],
    ["Sum", "add up weight × value. The heads' sums together update the token; a small feed-forward network follows."],
  ];
  return h("ol", { class: "walk-explained" }, steps.map(([title, text]) => h("li", {}, h("b", {}, title), ` ${text}`)));
}

// What to look at: slot, layer, head and token.
function controls(run, state, change, queries, place, attention) {
  const { slot, layer, head } = state.look;
  const choice = (title, options) => h("div", { class: "walk-choice", role: "group", "aria-label": title }, h("span", { class: "walk-note" }, title), options);
  const option = (name, pressed, changes, focus, label) => h("button", {
    type: "button", "aria-pressed": String(pressed), "data-focus": focus, "aria-label": label, onclick: () => change(changes),
  }, name);
  const short = { encoder: "encoder", cross: "cross", decoder: "decoder self" };
  const numbered = (count, chosen, title, changes) => Array.from({ length: count }, (_, n) =>
    option(String(n + 1), n === chosen, changes(n), `${title} ${n}`, `${title} ${n + 1}`));
  const key = `${slot} ${layer} ${head}`;
  const silent = attention.isSilent(head);
  const pick = (event) => change(slot === "encoder" ? { place: Number(event.target.value) } : { step: Number(event.target.value) });
  return h("div", { class: "walk-controls" },
    choice("attention", Object.keys(short).map((name) => option(short[name], name === slot,
      chosenHead(state, name, state.layer[name], state.heads[name][state.layer[name]]), `slot ${name}`, SLOTS[name]))),
    choice("layer", numbered(run.attentions[slot].length, layer, "layer", (n) => chosenHead(state, slot, n, state.heads[slot][n]))),
    choice("head", numbered(attention.heads, head, "head", (n) => chosenHead(state, slot, layer, n))),
    h("label", { class: "walk-choice" }, h("span", { class: "walk-note" }, "query of"), h("select", { onchange: pick, "data-focus": "query" },
      queries.map((token, n) => h("option", { value: n, selected: n === place }, `${n} ${shown(token.name)}`)))),
    h("button", { type: "button", "aria-pressed": String(silent), "data-focus": "silence", class: "walk-silence", onclick: () => {
      const silenced = new Set(state.silenced);
      if (!silenced.delete(key)) silenced.add(key);
      change({ silenced });
    } }, silent ? "Give the head its voice back" : "Silence this head"));
}

const opener = (name, row, state, change) => h("button", {
  type: "button", class: "walk-open", "aria-expanded": String(state.open === row), "data-focus": `open ${row}`,
  onclick: () => change({ open: state.open === row ? null : row }),
}, name);

function numbers(label, ...lines) {
  const row = ([title, values, total]) => h("tr", {}, h("th", { scope: "row" }, title),
    Array.from(values, (one) => h("td", { class: one < 0 ? "walk-minus" : "" }, number(one))), h("td", { class: "walk-total" }, total ?? ""));
  return h("div", { class: "walk-products", tabindex: 0, role: "region", "aria-label": label }, h("table", { class: "walk-table" }, lines.map(row)));
}

// Each product of a query and a key, and each part of the sum.
function productsTable(row, key, value, n) {
  const products = Array.from(row.query, (one, at) => one * key[at]);
  return numbers("each product", ["query", row.query], ["× key", key], ["= product", products, `sum ${number(row.products[n])}`],
    ["value", value], [`× ${number(row.weights[n], 3)}`, value.map((one) => one * row.weights[n])]);
}

const sumTable = (row, keys, values) => numbers("the weighted sum", ...row.weights.map((weight, n) =>
  [`${number(weight, 3)} × ${shown(keys[n].name)}`, values[n].map((one) => one * weight)]), ["= sum", row.sum]);
