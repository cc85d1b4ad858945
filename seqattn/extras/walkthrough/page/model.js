// The Transformer itself (Vaswani et al. 2017), a row of numbers per token. Every attention keeps what it computed.
class Model {
  constructor(spec) {
    this.spec = spec;
    const text = atob(spec.weights);
    const bytes = new Uint8Array(text.length);
    for (let n = 0; n < text.length; n++) bytes[n] = text.charCodeAt(n);
    const numbers = new Float32Array(bytes.buffer);
    const at = ([start, ...shape]) => numbers.subarray(start, start + shape.reduce((a, b) => a * b));
    this.tensors = Object.fromEntries(Object.entries(spec.tensors).map(([name, place]) => [name, at(place)]));
    this.vocabularies = spec.vocabularies.map((one) => new Vocabulary(one));
    this.source = this.vocabularies[0];
    this.target = this.vocabularies.at(-1);
    const [source, target, output] = ["source_embedding.table", "target_embedding.table", "head.linear"].map(
      (name) => this.tensors[`${name}.weight`]); // tables that are shared have the first of their names
    this.tables = [source, target ?? source];
    this.matrix = output ?? target ?? source;
  }

  // y = W x + b
  linear(x, name) {
    const bias = this.tensors[`${name}.bias`];
    return this.product(x, this.tensors[`${name}.weight`]).map((sum, n) => sum + (bias?.[n] ?? 0));
  }

  product(x, matrix) {
    const [width, y] = [x.length, new Float32Array(matrix.length / x.length)];
    for (let row = 0; row < y.length; row++) {
      let [sum, start] = [0, row * width];
      for (let n = 0; n < width; n++) sum += matrix[start + n] * x[n];
      y[row] = sum;
    }
    return y;
  }

  norm(x, name) {
    const mean = x.reduce((a, b) => a + b) / x.length;
    const variance = x.reduce((sum, one) => sum + (one - mean) ** 2, 0) / x.length;
    const [weight, bias] = [this.tensors[`${name}.weight`], this.tensors[`${name}.bias`]];
    return x.map((one, n) => ((one - mean) / Math.sqrt(variance + 1e-5)) * weight[n] + (bias?.[n] ?? 0));
  }

  embed(id, place, side) {
    const [dim, added] = [this.spec.dims[side], this.tensors[`${["source", "target"][side]}_positions`]];
    const row = this.tables[side].subarray(id * dim, (id + 1) * dim);
    return row.map((one, n) => one * this.spec.scales[side] + (added?.[place * dim + n] ?? 0));
  }

  feed(x, layer) {
    const hidden = this.linear(this.norm(x, `${layer}.feed.norm`), `${layer}.feedforward.inner`);
    return add(x, this.linear(hidden.map((one) => Math.max(one, 0)), `${layer}.feedforward.outer`));
  }

  // ids -> what the encoder says of each token, and its attentions
  encode(ids, silenced) {
    let xs = ids.map((id, place) => this.embed(id, place, 0));
    const attentions = this.spec.attentions.encoder.map((_, layer) => {
      const [name, attention] = [`encoder.layers.${layer}`, new Attention(this, "encoder", layer, silenced)];
      const normed = xs.map((x) => this.norm(x, `${name}.attend.norm`));
      normed.forEach((x) => attention.read(x)); // first read all tokens: each sees all others
      xs = xs.map((x, place) => this.feed(add(x, attention.look(normed[place], place)), name));
      return attention;
    });
    return { memory: xs.map((x) => this.norm(x, "encoder.norm")), attentions };
  }

  // Begins an output: returns a function from one more token to the log-probabilities of the next.
  start(memory, silenced) {
    const make = (slot) => this.spec.attentions[slot].map((_, n) => new Attention(this, slot, n, silenced));
    const [own, cross] = [make("decoder"), make("cross")];
    cross.forEach((attention) => memory.forEach((x) => attention.read(x)));
    let place = 0;
    const step = (id) => {
      let x = this.embed(id, place, 1);
      own.forEach((attention, layer) => {
        const name = `decoder.layers.${layer}`;
        const normed = this.norm(x, `${name}.attend.norm`);
        attention.read(normed); // only tokens up to here: none sees a later one
        x = add(x, attention.look(normed, place));
        x = this.feed(add(x, cross[layer].look(this.norm(x, `${name}.cross.norm`), place)), name);
      });
      place += 1;
      const features = this.norm(x, "decoder.norm");
      const bias = this.tensors["head.linear.bias"];
      return logSoftmax(this.product(features, this.matrix).map((one, n) => one + (bias?.[n] ?? 0)));
    };
    return { step, own, cross };
  }

  // Translates a text. silenced: heads that give nothing, "slot layer head"; temperature: 0 takes the likeliest
  // token, above it tokens are drawn; forced: tokens that a person chose, by step.
  translate(text, { silenced = new Set(), temperature = 0, seed = 0, forced = new Map() } = {}) {
    const { ratio, extra, minimum } = this.spec.limit;
    const source = [...this.source.segment(text), { id: EOS, name: "end" }];
    const encoder = this.encode(source.map(({ id }) => id), silenced);
    const decoder = this.start(encoder.memory, silenced);
    const most = Math.max(1, minimum, Math.floor(source.length * ratio) + extra);
    const random = generator(seed);
    const steps = [];
    let id = BOS;
    do {
      const logs = decoder.step(id);
      logs[PAD] = -Infinity;
      if (steps.length < minimum) logs[EOS] = -Infinity;
      const probabilities = softmax([...logs].map((log) => log / (temperature || 1)));
      const drawn = random();
      const likeliest = probabilities.indexOf(Math.max(...probabilities));
      id = forced.get(steps.length) ?? (temperature ? draw(probabilities, drawn) : likeliest);
      steps.push({ id, name: id === EOS ? "end" : this.target.pieces[id], probabilities });
    } while (id !== EOS && steps.length < most);
    const output = this.target.text(steps.map(({ id }) => id));
    return { source, steps, output, attentions: { encoder: encoder.attentions, decoder: decoder.own, cross: decoder.cross } };
  }
}

// One attention of one layer.
class Attention {
  constructor(model, slot, layer, silenced) {
    const shape = model.spec.attentions[slot][layer];
    const [stack, kind] = slot === "cross" ? ["decoder", "cross"] : [slot, "self"];
    Object.assign(this, { model, slot, layer, silenced, ...shape });
    this.name = `${stack}.layers.${layer}.${kind}_attention`;
    this.keys = []; // of each token, for each head
    this.values = [];
    this.rows = []; // of each query, for each head: its vector, products, scores, weights and sum
  }

  split(x, heads) {
    return Array.from({ length: heads }, (_, n) => x.subarray(n * this.width, (n + 1) * this.width));
  }

  // Rotary positions: each pair of numbers turns by an angle that grows with the position.
  turn(x, place) {
    if (!this.frequencies.length) return x;
    const half = this.width / 2;
    return x.map((one, n) => {
      const angle = place * this.frequencies[n % half];
      return one * Math.cos(angle) + (n < half ? -x[n + half] : x[n - half]) * Math.sin(angle);
    });
  }

  project(x, name, heads) {
    return this.split(this.model.linear(x, `${this.name}.${name}`), heads);
  }

  read(x) {
    this.keys.push(this.project(x, "key", this.groups).map((key) => this.turn(key, this.keys.length)));
    this.values.push(this.project(x, "value", this.groups));
  }

  look(x, place) {
    const heads = this.project(x, "query", this.heads).map((one, head) => {
      const group = Math.floor((head * this.groups) / this.heads);
      const query = this.turn(one, place);
      const products = this.keys.map((key) => dot(query, key[group]));
      const scores = products.map((product) => product * this.scale);
      const weights = softmax(scores);
      const sum = new Float32Array(this.width);
      weights.forEach((weight, at) => this.values[at][group].forEach((one, n) => (sum[n] += weight * one)));
      return { query, group, products, scores, weights, sum };
    });
    this.rows.push(heads);
    const merged = new Float32Array(this.heads * this.width); // a silenced head gives zeros
    heads.forEach(({ sum }, n) => this.isSilent(n) || merged.set(sum, n * this.width));
    return this.model.linear(merged, `${this.name}.output`);
  }

  isSilent(head) {
    return this.silenced.has(`${this.slot} ${this.layer} ${head}`);
  }
}

const add = (a, b) => a.map((one, n) => one + b[n]);
const dot = (a, b) => a.reduce((sum, one, n) => sum + one * b[n], 0);

function softmax(scores) {
  const most = Math.max(...scores);
  const powers = scores.map((score) => Math.exp(score - most));
  const total = powers.reduce((a, b) => a + b);
  return powers.map((power) => power / total);
}

function logSoftmax(logits) {
  const most = Math.max(...logits);
  const total = Math.log(logits.reduce((sum, one) => sum + Math.exp(one - most), 0)) + most;
  return logits.map((one) => one - total);
}

function draw(probabilities, random) {
  let sum = 0;
  const at = probabilities.findIndex((one) => (sum += one) > random);
  return at < 0 ? probabilities.length - 1 : at;
}

// Random numbers that a seed repeats (mulberry32).
function generator(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
