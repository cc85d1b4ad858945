// What a person does, and what is shown.
const SHOWN = 6; // candidates for the next token
const PACE = 1100; // milliseconds a step
const model = new Model(globalThis.walkthroughModel);
const known = new Set(model.spec.words);
const shape = (slot, value) => model.spec.attentions[slot].map(() => value);
const untouched = () => ({ silenced: new Set(), temperature: 0, seed: 1, forced: new Map() });
let state = {
  text: model.spec.examples[0], step: 0, place: 0, open: null, ...untouched(),
  heads: Object.fromEntries(Object.keys(SLOTS).map((slot) => [slot, shape(slot, 0)])),
  layer: Object.fromEntries(Object.keys(SLOTS).map((slot) => [slot, shape(slot, 0).length - 1])),
  look: { slot: "cross", layer: 0, head: 0 },
};
let run;
let tooLong = false;
let timer;

const cleaned = (text) => text.trim().replace(/\s+/g, " ");
const isWhole = (text) => /^\p{Lu}.*[.!?]$/u.test(text);
const examplesWhole = model.spec.examples.every(isWhole);
const isRead = () => cleaned(state.text) && !tooLong;
const counted = (count, name) => `${count} ${name}${count === 1 ? "" : "s"}`;
const isChanged = () => state.silenced.size || state.temperature || state.forced.size;

function change(changes) {
  stop();
  state = { ...state, ...changes };
  if (["text", "silenced", "temperature", "seed", "forced"].some((key) => key in changes)) translate();
  render();
}

function translate() {
  tooLong = model.source.segment(cleaned(state.text)).length >= model.spec.most;
  if (!isRead()) return; // what was shown last stays, faded
  run = model.translate(cleaned(state.text), state);
  const last = run.steps.length - 1;
  state.step = Math.min(state.step, last);
  state.place = Math.min(state.place, run.source.length - 1);
  state.open = null;
}

// Show at first the head of each layer, and the layer of each slot, whose weights on words are most decided; and the
// last step that looks elsewhere than straight ahead.
function chooseSharpest() {
  for (const slot of Object.keys(SLOTS)) {
    const sharpness = run.attentions[slot].map((attention) => Array.from({ length: attention.heads }, (_, head) =>
      attention.rows.slice(0, -1).reduce((sum, heads) => sum + Math.max(...heads[head].weights.slice(0, -1)), 0)));
    state.heads[slot] = sharpness.map((heads) => heads.indexOf(Math.max(...heads)));
    const best = sharpness.map((heads) => Math.max(...heads));
    state.layer[slot] = best.indexOf(Math.max(...best));
  }
  state.look = { slot: "cross", layer: state.layer.cross, head: state.heads.cross[state.layer.cross] };
  const rows = run.attentions.cross[state.look.layer].rows.map((heads) => heads[state.look.head].weights);
  const places = rows.map((weights) => weights.indexOf(Math.max(...weights)));
  const jumps = places.findLastIndex((place, step) => Math.abs(place - step) > 1 && step < places.length - 2);
  state.step = Math.max(jumps, 0);
  state.place = places[state.step];
}

function render() {
  const focus = document.activeElement?.dataset.focus;
  at("output").textContent = (isRead() && run.output) || "…";
  at("changes").replaceChildren(...changesShown());
  at("known").replaceChildren(...wordsShown());
  at("steps").replaceChildren(...stepButtons());
  at("encoder").replaceChildren(encoderPicture(run, state, change));
  at("encoder-heads").replaceChildren(headMaps(run, state, change, "encoder"));
  at("decoder").replaceChildren(decoderPicture(run, state, change));
  at("decoder-heads").replaceChildren(headMaps(run, state, change, "cross"), headMaps(run, state, change, "decoder"));
  at("caption").replaceChildren(...caption(run, state));
  at("head").replaceChildren(...headView(run, state, change).filter(Boolean));
  at("next").replaceChildren(...candidates());
  at("degrees").textContent = number(state.temperature, 1);
  at("temperature").value = state.temperature;
  at("draw").disabled = !state.temperature;
  at("reset").disabled = !isChanged();
  if (focus) document.querySelector(`[data-focus="${focus}"]`)?.focus({ preventScroll: true });
  document.getElementById("walk").dataset.shown = cleaned(state.text);
  document.getElementById("walk").classList.toggle("walk-empty", !isRead());
}

function changesShown() {
  if (!isChanged() || !isRead()) return [];
  const before = model.translate(cleaned(state.text)).output;
  return [before === run.output ? "the same as before your changes" : h("span", {}, "before your changes: ", h("i", {}, before))];
}

function wordsShown() {
  const words = wordsOf(state.text);
  const strange = words.filter((word) => !known.has(word));
  const tokens = `${counted(run.source.length - 1, "token")}. `;
  const count = `It knows ${words.length - strange.length} of ${counted(words.length, "word")}, ${tokens}`;
  if (!words.length) return ["Type a sentence."];
  if (tooLong) return [`Too long: it reads at most ${counted(model.spec.most - 1, "token")}.`];
  const shape = examplesWhole && !isWhole(cleaned(state.text)) ? "Sentences that it learned begin with a capital and end with a mark. " : "";
  const several = model.spec.single && /[.!?]\s+\S/.test(state.text) ? "It learned single sentences: type one at a time. " : "";
  if (!strange.length) return [count, shape, several];
  return [count, shape, several, "Never seen in training: ", h("b", {}, strange.join(", ")), ". It can only guess at these."];
}

function stepButtons() {
  const last = run.steps.length - 1;
  const button = (name, label, step, disabled) => h("button", {
    type: "button", "aria-label": label, title: label, "data-focus": label, disabled, onclick: () => change({ step }),
  }, name);
  return [
    button("«", "first step", 0, state.step === 0), button("‹", "step back", state.step - 1, state.step === 0),
    h("span", { class: "walk-count" }, `step ${state.step + 1} of ${last + 1}`),
    button("›", "next step", state.step + 1, state.step === last),
    h("button", { type: "button", "data-focus": "play", onclick: () => (timer ? stop() : play()) }, timer ? "Pause" : "Play"),
  ];
}

function play() {
  if (state.step === run.steps.length - 1) state.step = -1;
  timer = setInterval(() => {
    state = { ...state, step: state.step + 1 };
    if (state.step === run.steps.length - 1) stop();
    render();
  }, PACE);
  state.step = Math.max(state.step, 0);
  render();
}

function stop() {
  clearInterval(timer);
  timer = undefined;
}

function candidates() {
  const { probabilities, id } = run.steps[state.step];
  const order = [...probabilities.keys()].sort((a, b) => probabilities[b] - probabilities[a]).slice(0, SHOWN);
  if (!order.includes(id)) order.splice(-1, 1, id);
  const before = model.target.text(run.steps.slice(0, state.step).map((step) => step.id));
  const force = (token) => {
    const earlier = [...state.forced].filter(([step]) => step < state.step);
    change({ forced: new Map([...earlier, [state.step, token]]) });
  };
  return [
    h("p", {}, "After ", h("b", {}, before ? `“${before}”` : "the start"), " the most probable tokens are these. ", h("em", {}, "Pick another to see how it goes on.")),
    ...order.map((token) => h("button", {
      type: "button", class: "walk-candidate", "aria-pressed": String(token === id), "data-focus": `candidate ${token}`,
      style: `--share:${(100 * probabilities[token]).toFixed(2)}%`, onclick: () => force(token),
    }, h("span", {}, token === EOS ? "end" : shown(model.target.pieces[token])), h("span", { class: "walk-figure" }, number(probabilities[token], 3)))),
  ];
}

// Arrow keys move between tokens, and steps.
function walkTokens(event) {
  const [, side, place] = /^(source|memory|said) (\d+)$/.exec(document.activeElement?.dataset.focus ?? "") ?? [];
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!side || !by) return;
  const next = document.querySelector(`[data-focus="${side} ${Number(place) + by}"]`);
  event.preventDefault();
  next?.focus();
  if (side !== "memory") next?.click();
}

function begin() {
  at("text").value = state.text;
  at("text").addEventListener("input", (event) => change({ text: event.target.value, forced: new Map() }));
  at("ask").addEventListener("submit", (event) => event.preventDefault());
  const show = (text) => {
    at("text").value = text;
    change({ text, step: 0, forced: new Map() });
  };
  at("examples").replaceChildren(h("span", { class: "walk-note" }, "or try"), ...model.spec.examples.map((text) =>
    h("button", { type: "button", onclick: () => show(text) }, text)));
  at("words-title").textContent = `The ${model.spec.words.length.toLocaleString("en")} words that it has seen`;
  at("words").textContent = model.spec.words.join(" · ");
  at("temperature").addEventListener("input", (event) => change({ temperature: Number(event.target.value), forced: new Map() }));
  at("draw").addEventListener("click", () => change({ seed: state.seed + 1, forced: new Map() }));
  at("reset").addEventListener("click", () => change(untouched()));
  document.getElementById("walk").addEventListener("keydown", walkTokens);
  new MutationObserver(render).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
  translate();
  chooseSharpest();
  render();
}

begin();
