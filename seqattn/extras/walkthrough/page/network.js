// The two pictures of the whole model: encoder, and decoder with cross-attention in the middle.
const ROW = 30; // pixels, as in the style
const middle = (row) => row * ROW + ROW / 2;

function lines(rows, color, paths) {
  const box = { class: "walk-lines", viewBox: `0 0 100 ${rows * ROW}`, preserveAspectRatio: "none", "aria-hidden": true };
  const svg = drawn("svg", { ...box, style: `height:${rows * ROW}px;--color:var(--${color})` });
  for (const { from, to, weight, chosen, arc } of paths) {
    if (weight < 0.01) continue;
    const [a, b] = [middle(from), middle(to)];
    const d = arc ? `M0,${b} C${arc},${b} ${arc},${a} 0,${a}` : `M0,${a} C45,${a} 55,${b} 100,${b}`;
    const look = { "stroke-width": 0.6 + 5 * weight, "stroke-opacity": chosen ? 0.25 + 0.75 * weight : 0.14 * weight };
    svg.append(drawn("path", { d, ...look, "data-weight": weight.toFixed(4), "data-key": from, "data-query": to }));
  }
  return svg;
}

function tokenButton(token, { key, pressed, place, faded, share, pick }) {
  const attributes = { type: "button", class: `walk-token${faded ? " walk-faded" : ""}`, "data-focus": key, onclick: pick };
  const name = shown(token.name);
  const label = place === undefined ? name : `${name}, position ${place}`;
  const style = share ? `--share:${(100 * share).toFixed(1)}%` : null;
  const mark = token.id === UNK ? " walk-unknown" : MARKS.includes(token.name) ? " walk-mark" : "";
  return h("button", { ...attributes, "aria-pressed": String(Boolean(pressed)), "aria-label": label, style, title: share ? percent(share) : null },
    place === undefined ? null : h("span", { class: "walk-place" }, String(place)), h("span", { class: `walk-name${mark}` }, name));
}

// Tokens on the left, then for each layer the lines of its chosen head and a dot for each token.
function encoderPicture(run, state, change) {
  const { source, attentions } = run;
  const names = source.map((token, place) => tokenButton(token, {
    key: `source ${place}`, place, pressed: place === state.place,
    pick: () => change({ place, look: { ...state.look, slot: "encoder" } }),
  }));
  const columns = [h("div", { class: "walk-column" }, names)];
  attentions.encoder.forEach((attention, layer) => {
    const head = state.heads.encoder[layer];
    const paths = attention.isSilent(head) ? [] : attention.rows.flatMap((heads, to) =>
      heads[head].weights.map((weight, from) => ({ from, to, weight, chosen: to === state.place })));
    const dots = source.map((_, place) => h("span", { class: `walk-dot${place === state.place ? " walk-here" : ""}` }));
    columns.push(h("div", { class: "walk-between" }, lines(source.length, "encoder", paths)), h("div", { class: "walk-column" }, dots));
  });
  const titles = [h("span", {}, "token")];
  attentions.encoder.forEach((_, layer) => titles.push(
    h("span", { class: "walk-of-encoder" }, `layer ${layer + 1}, head ${state.heads.encoder[layer] + 1}`), h("span", {})));
  titles.at(-1).textContent = "out";
  const template = `grid-template-columns: max-content repeat(${attentions.encoder.length}, minmax(40px, 1fr) max-content)`;
  return h("div", { class: "walk-picture", style: template }, titles, columns);
}

// The encoder's output on the left, lines of cross-attention, what is written, and arcs of self-attention.
function decoderPicture(run, state, change) {
  const { source, steps, attentions } = run;
  const [cross, own] = ["cross", "decoder"].map((slot) => attentions[slot][state.layer[slot]]);
  const [crossHead, ownHead] = ["cross", "decoder"].map((slot) => state.heads[slot][state.layer[slot]]);
  const rows = Math.max(source.length, steps.length + 1);
  const now = cross.isSilent(crossHead) ? [] : cross.rows[state.step][crossHead].weights;
  const read = source.map((token, place) => tokenButton(token, {
    key: `memory ${place}`, share: now[place],
    pick: () => change({ place, look: { ...state.look, slot: "encoder" } }),
  }));
  const start = h("span", { class: "walk-token walk-start" }, h("span", { class: "walk-name walk-mark" }, "start"));
  const said = steps.map((token, step) => tokenButton(token, {
    key: `said ${step}`, place: step + 1, pressed: step === state.step, faded: step > state.step,
    pick: () => change({ step, look: { ...state.look, slot: state.look.slot === "encoder" ? "cross" : state.look.slot } }),
  }));
  const between = cross.isSilent(crossHead) ? [] : cross.rows.slice(0, state.step + 1).flatMap((heads, step) =>
    heads[crossHead].weights.map((weight, from) => ({ from, to: step + 1, weight, chosen: step === state.step })));
  const arcs = own.isSilent(ownHead) ? [] : own.rows[state.step][ownHead].weights.map((weight, from) => (
    { from, to: state.step + 1, weight, chosen: true, arc: 40 + Math.min(100, 15 * (state.step + 1 - from)) }));
  const titles = [
    h("span", {}, "encoder's output"), h("span", { class: "walk-of-cross" }, `cross-attention, layer ${cross.layer + 1}, head ${crossHead + 1}`),
    h("span", {}, "written"), h("span", { class: "walk-of-decoder" }, `self, layer ${own.layer + 1}, head ${ownHead + 1}`),
  ];
  return h("div", { class: "walk-picture walk-three" }, titles,
    h("div", { class: "walk-column" }, read), h("div", { class: "walk-between" }, lines(rows, "cross", between)),
    h("div", { class: "walk-column" }, start, said), h("div", { class: "walk-between" }, lines(rows, "decoder", arcs)));
}

// One sentence on the current step.
function caption(run, state) {
  const { slot } = state.look;
  const step = run.steps[state.step];
  const from = shown(inputsOf(run)[state.step].name);
  const words = [`Step ${state.step + 1} of ${run.steps.length} stands on ${from} and writes `, h("b", {}, shown(step.name)), ` (${percent(step.probabilities[step.id])}). `];
  const shownSlot = slot === "decoder" ? "decoder" : "cross";
  const attention = run.attentions[shownSlot][state.layer[shownSlot]];
  const head = state.heads[shownSlot][attention.layer];
  const where = `Head ${head + 1} of layer ${attention.layer + 1} (${SLOTS[shownSlot]})`;
  if (attention.isSilent(head)) return [...words, `${where} is silenced.`];
  const { weights } = attention.rows[state.step][head];
  const keys = shownSlot === "cross" ? run.source : inputsOf(run);
  const most = weights.indexOf(Math.max(...weights));
  return [...words, `${where} looks mostly at `, h("b", {}, shown(keys[most].name)), ` (${percent(weights[most])}).`];
}

// The tokens that the decoder reads: the start, and what it has written.
const inputsOf = (run) => [{ id: BOS, name: "start" }, ...run.steps.slice(0, -1)];

// All layers and heads of a slot as small maps; the chosen one can be silenced.
function headMaps(run, state, change, slot) {
  const color = getComputedStyle(document.getElementById("walk")).color;
  const columns = slot === "decoder" ? run.steps.length : run.source.length;
  const maps = run.attentions[slot].map((attention, layer) => h("div", { class: "walk-layer" },
    h("span", { class: "walk-note" }, `layer ${layer + 1}`),
    Array.from({ length: attention.heads }, (_, head) => {
      const silent = attention.isSilent(head);
      const { look } = state;
      const shownHere = (slot === "encoder" || layer === state.layer[slot]) && head === state.heads[slot][layer];
      return h("button", {
        type: "button", class: `walk-map${silent ? " walk-silent" : ""}`, "data-focus": `${slot} ${layer} ${head}`,
        "aria-pressed": String(shownHere), "data-zoomed": look.slot === slot && look.layer === layer && look.head === head,
        "aria-label": `${SLOTS[slot]}, layer ${layer + 1}, head ${head + 1}${silent ? ", silenced" : ""}`,
        onclick: () => change(chosenHead(state, slot, layer, head)),
      }, map(attention.rows.map((heads) => heads[head].weights), columns, color), h("span", { "aria-hidden": true }, String(head + 1)));
    })));
  return h("div", { class: `walk-heads walk-slot-${slot}` }, h("h3", {}, `Heads of ${SLOTS[slot]}`), maps);
}

// The changes of state that show a head in the pictures and in detail.
function chosenHead(state, slot, layer, head) {
  const heads = { ...state.heads, [slot]: state.heads[slot].with(layer, head) };
  return { heads, layer: { ...state.layer, [slot]: layer }, look: { slot, layer, head } };
}
