"""Answers to the exercises of the course, and what stands for the models that checks need.

An answer is a body of its exercise: right in another way than ours, or wrong.
"""

BEFORE = {
    "01": (
        "cell-01",
        """
attending, ADJECTIVES, NOUNS = ["bahdanau"], {"red": "rouge"}, {"cat": "chat"}
corpus = {"test": [("red cat", "chat rouge")]}

def look(name, text):
    return torch.eye(2).flip(0), ["chat", "rouge"], ["red", "cat"]
""",
    ),
    "02": ("cell-01", "cell-03", "cell-05", "cell-09", "cell-17"),
    "03": ("cell-01",),
    "04": (
        'import matplotlib\nmatplotlib.use("Agg")',
        *("code-01", "code-05", "code-19", "code-27", "code-29"),
        """
import seqattn
from tests.exercises import untrained
losses = {}

def train_with(attention):
    untrained(home / attention / "model", home / "conf" / "attention" / f"{attention}.yaml")
    return 5.0
""",
    ),
    "05": (
        "code-01",
        """
from tests.exercises import untrained
model = bank_model = untrained(Path("model"))
network, BANKS = model.model, ["he swam at the bank today .", "he paid at the bank today ."]
""",
        *("code-05", "code-18", "code-29"),
        """
explained = {"attention": explain(network, source, target, "attention").source[0]}
val_source, val_read, val_target = val_source[:4], val_read[:4], val_target[:4]
target_ids, read = target_ids[:4], read[:, :4]
""",
    ),
    "06": (
        *("code-01", "code-13", "code-20"),
        """
from types import SimpleNamespace
from tests.cli.small import checked_training
sentences = ["a", "b"]
reports = [{"document": "A dog runs.", "summary": "Dog runs"}]
summaries = SimpleNamespace(generate=lambda texts, search: ["A dog"])
model = SimpleNamespace(generate=lambda texts: [text.upper() for text in texts])

def post(path, body):
    texts = body["inputs"]
    some = [[text.upper(), text] for text in ([texts] if isinstance(texts, str) else texts)]
    return {"results": [{"outputs": [{"text": text} for text in one]} for one in some]}

def trained(name, *settings):
    return checked_training(f"run_dir={home}", *settings).architecture.check()

seqattn = SimpleNamespace(load=lambda model: SimpleNamespace(model=model))
""",
    ),
    "07": ("code-01",),
}
"""What the checks of a notebook need: ids of cells that train nothing, and code for the others."""


def untrained(path, attention=None):
    """Writes a small bundle, with the attention of a YAML file if one is given; loads it."""
    from omegaconf import OmegaConf

    import seqattn
    from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
    from seqattn.settings.choices import choices
    from seqattn.settings.nodes import build
    from tests.bundle import conftest

    english, german = zip(*build(choices("data")["demo_translation"], "data").stream("val"))
    english = [*english, *["he swam at the bank today ."] * 300]
    size = TokenizerConfig(kind="bpe", vocab_size=400)
    tokenizer = train_tokenizer(english, german, size, path.parent / "vocabulary")
    config = conftest.configuration()
    config["model"] |= {"encoder_layers": 2, "decoder_layers": 2}
    if attention is not None:
        config["attention"] = OmegaConf.to_container(OmegaConf.load(attention), resolve=True)
    conftest.untrained(path, tokenizer, config)
    return seqattn.load(path, trust=["sigmoid_kernel"])


ANSWERS = {
    ("01", 0): (
        "def luong_dot(s, h):",
        [
            "return torch.softmax(torch.einsum('td,sd->ts', s, h), dim=1)",
            "return torch.stack([(h @ one).softmax(0) for one in s])",
            "return (e := (s @ h.mT).exp()) / e.sum(1, keepdim=True)",
        ],
        [
            "return s @ h.T",
            "return (s @ h.T).softmax(dim=0)",
            "return (s @ h.T / 8 ** 0.5).softmax(dim=-1)",
        ],
    ),
    ("01", 1): (
        "def masked_weights(scores, real):",
        [
            "return torch.where(real[:, None], scores, float('-inf')).softmax(-1)",
            "return (e := scores.exp() * real[:, None]) / e.sum(-1, keepdim=True)",
            "return (scores + real[:, None].float().log()).softmax(dim=2)",
        ],
        [
            "return scores.softmax(dim=-1) * real[:, None]",
            "return scores.masked_fill(~real[:, None], 0.0).softmax(dim=-1)",
            "return scores.masked_fill(real[:, None], -torch.inf).softmax(dim=-1)",
        ],
    ),
    ("01", 2): (
        "def dictionary(maps):",
        [
            """
    pairs = [(t, s[int(row.argmax())]) for w, ts, s in maps for t, row in zip(ts, w)]
    of = {t: [s for u, s in pairs if u == t] for t, _ in pairs}
    return {t: max(set(some), key=some.count) for t, some in of.items()}""",
            """
    from collections import defaultdict
    counts = defaultdict(lambda: defaultdict(int))
    for weights, written, read in maps:
        for n, word in enumerate(written):
            counts[word][read[weights[n].topk(1).indices.item()]] += 1
    return {word: max(some, key=some.get) for word, some in counts.items()}""",
            """
    from statistics import mode
    found = {}
    for weights, written, read in maps:
        for word, row in zip(written, weights.tolist()):
            found.setdefault(word, []).append(read[row.index(max(row))])
    return {word: mode(words) for word, words in found.items()}""",
        ],
        [
            "return {t: s[int(r.argmax())] for w, ts, s in maps for t, r in zip(ts, w)}",
            """
    sums = {}
    for weights, written, read in maps:
        for word, row in zip(written, weights.tolist()):
            for other, weight in zip(read, row):
                own = sums.setdefault(word, {})
                own[other] = own.get(other, 0) + weight
    return {word: max(some, key=some.get) for word, some in sums.items()}""",
            "return {t: s[n] for w, ts, s in maps[:2] for t, n in zip(ts, w.argmax(0).tolist())}",
        ],
    ),
    ("02", 0): (
        "def cache_bytes(tokens, layers, kv_heads, head_dim):",
        [
            "return 8 * tokens * layers * kv_heads * head_dim",
            "return sum(2 * 4 * kv_heads * head_dim for _ in range(tokens * layers))",
            "return torch.empty(2, layers, kv_heads, tokens, head_dim, device='meta').nbytes",
        ],
        [
            "return tokens * layers * kv_heads * head_dim * 4",
            "return tokens * 2 * kv_heads * head_dim * 4",
            "return tokens * layers * 2 * kv_heads * head_dim",
        ],
    ),
    ("02", 1): (
        "def key_head(query_head, num_heads, num_kv_heads):",
        [
            "return query_head * num_kv_heads // num_heads",
            "return int(query_head / (num_heads / num_kv_heads))",
            "return torch.arange(num_kv_heads).repeat_interleave(num_heads // num_kv_heads)"
            "[query_head].item()",
        ],
        [
            "return query_head % num_kv_heads",
            "return query_head // num_kv_heads",
            "return query_head // 3",
        ],
    ),
    ("02", 2): (
        "def band(length, width):",
        [
            "return torch.ones(length, length, dtype=torch.bool).tril().triu(1 - width)",
            "return torch.tensor([[0 <= i - j < width for j in range(length)]"
            " for i in range(length)])",
            "a = torch.ones(length, length).tril(); return (a - a.tril(-width)).bool()",
        ],
        [
            "return torch.ones(length, length, dtype=torch.bool).tril().triu(-width)",
            "return torch.ones(length, length).tril().triu(1 - width)",
            "return torch.ones(5, 5, dtype=torch.bool).tril().triu(1 - width)",
        ],
    ),
    ("02", 3): (
        "class QuietKernel(SoftmaxKernel):\n    def normalize(self, scores):",
        [
            "return torch.nn.functional.pad(scores, (1, 0)).softmax(-1)[..., 1:]",
            "return (s := scores).sub(s.logsumexp(-1, True).logaddexp(torch.zeros(1))).exp()",
            "m = scores.amax(-1, True).clamp(min=0); e = (scores - m).exp(); "
            "return e / ((-m).exp() + e.sum(-1, True))",
        ],
        [
            "return scores.exp() / (1 + scores.exp().sum())",
            "return scores.sigmoid()",
            "return scores.exp() / (1 + scores.exp().sum(dim=-1, keepdim=True))",
        ],
    ),
    ("03", 0): (
        "def alibi(heads, length):",
        [
            "return -torch.tensor([[[2 ** (-8 * h / heads) * abs(i - j) for j in range(length)]"
            " for i in range(length)] for h in range(1, heads + 1)])",
            "d = torch.cdist(p := torch.arange(length)[:, None].float(), p); "
            "return -torch.logspace(-8 / heads, -8, heads, 2)[:, None, None] * d",
            "p = torch.arange(length); d = torch.minimum(p - p[:, None], p[:, None] - p); "
            "return torch.stack([d / 2 ** (8 * (h + 1) / heads) for h in range(heads)])",
        ],
        [
            "p = torch.arange(length); d = (p - p[:, None]).abs(); "
            "return torch.stack([d * 2.0 ** (-8 * h / heads) for h in range(1, heads + 1)])",
            "p = torch.arange(length); d = (p - p[:, None]).abs(); "
            "return -torch.stack([d * 2.0 ** (-2 * h) for h in range(1, heads + 1)])",
            "p = torch.arange(length); d = p[:, None] - p; "
            "return -torch.stack([d * 2.0 ** (-8 * h / heads) for h in range(1, heads + 1)])",
        ],
    ),
    ("03", 1): (
        "def shaw(q, table):",
        [
            """
    n, limit = len(q), (len(table) - 1) // 2
    place = [[max(-limit, min(limit, i - j)) + limit for j in range(n)] for i in range(n)]
    return torch.einsum('td,tsd->ts', q, table[torch.tensor(place)]) / q.shape[1] ** 0.5""",
            """
    p, limit = torch.arange(len(q)), len(table) // 2
    d = (p[:, None] - p).clamp(-limit, limit) + limit
    return (q @ table.T / math.sqrt(q.shape[1])).gather(1, d)""",
            """
    n, limit = len(q), len(table) // 2
    rows = [[q[i] @ table[min(max(i - j, -limit), limit) + limit] for j in range(n)]
            for i in range(n)]
    return torch.tensor(rows) / q.shape[-1] ** 0.5""",
        ],
        [
            "p = torch.arange(len(q)); d = (p[:, None] - p).clamp(-3, 3) + 3; "
            "return (q @ table.T).gather(1, d)",
            "p = torch.arange(len(q)); d = (p - p[:, None]).clamp(-3, 3) + 3; "
            "return (q @ table.T / 4).gather(1, d)",
            "p = torch.arange(len(q)); d = (p[:, None] - p).abs().clamp(max=3) + 3; "
            "return (q @ table.T / 4).gather(1, d)",
        ],
    ),
    ("03", 2): (
        "def is_relative(position, q, k):",
        [
            """
    found = []
    for begin in (0, 100):
        p = torch.arange(begin, begin + q.shape[2])
        scores = position.rotate(q, p) @ position.rotate(k, p).mT / q.shape[-1] ** 0.5
        term = position.score_term(q, k, p, p)
        found.append((scores + (0 if term is None else term)).softmax(-1))
    return (found[0] - found[1]).abs().max() < 1e-4""",
            """
    def logs(p):
        scores = position.rotate(q, p) @ position.rotate(k, p).mT / math.sqrt(q.shape[-1])
        term = position.score_term(q, k, p, p)
        return (scores if term is None else scores + term).log_softmax(-1)
    p = torch.arange(9)
    return torch.allclose(logs(p), logs(100 + p), atol=1e-4)""",
            """
    def centered(p):
        scores = position.rotate(q, p) @ position.rotate(k, p).mT / 4
        term = position.score_term(q, k, p, p)
        scores = scores if term is None else scores + term
        return scores - scores.mean(-1, keepdim=True)
    p = torch.arange(q.shape[2])
    return bool(torch.isclose(centered(p), centered(p + 100), atol=1e-4).all())""",
        ],
        [
            "return True",
            """
    def scores(p):
        term = position.score_term(q, k, p, p)
        return position.rotate(q, p) @ position.rotate(k, p).mT / 4 + (0 if term is None else term)
    p = torch.arange(9)
    return torch.allclose(scores(p), scores(p + 100), atol=1e-4)""",
            "p = torch.arange(9); return position.rotate(q, p) == position.rotate(q, p + 100)",
        ],
    ),
    ("03", 3): (
        'class LogPosition(Position):\n    hooks = frozenset({"score_term"})\n\n'
        "    def score_term(self, q, k, q_positions, k_positions):",
        [
            "d = q_positions.unsqueeze(-1) - k_positions.unsqueeze(-2); "
            "return -d.abs().log1p().view(-1, 1, *d.shape[-2:])",
            "a, b = (p.view(-1, 1, p.shape[-1]).float() for p in (q_positions, k_positions)); "
            "return (1 / (1 + (a.mT - b).abs())).log()[:, None]",
            "a = torch.atleast_2d(q_positions); b = torch.atleast_2d(k_positions); "
            "return -(1 + (a[:, None, :, None] - b[:, None, None]).abs()).log()",
        ],
        [
            "return -(1 + (q_positions[..., :, None] - k_positions[..., None, :]).abs()).log()",
            "p, s = torch.atleast_2d(q_positions)[:1], torch.atleast_2d(k_positions)[:1]; "
            "return -(p[:, None, :, None] - s[:, None, None]).abs().log1p()",
            "p, s = torch.atleast_2d(q_positions), torch.atleast_2d(k_positions); "
            "return -(p[:, None, :, None] - s[:, None, None]).abs().float()",
        ],
    ),
    ("04", 0): (
        "def layers_needed(sees):",
        [
            "return next(n for n in range(1, 99) if (sees.double().matrix_power(n) > 0).all())",
            """
    heard, layers = torch.eye(len(sees), dtype=torch.bool), 0
    while not heard.all():
        heard, layers = (sees[:, :, None] & heard[None]).any(1), layers + 1
    return layers""",
            """
    far = [{n} for n in range(len(sees))]
    for layers in range(1, 99):
        far = [set().union(*(far[k] for k in row.nonzero()[:, 0].tolist())) for row in sees]
        if all(len(one) == len(sees) for one in far):
            return layers""",
        ],
        [
            "return int(len(sees) / sees.float().sum(1).max()) + 1",
            """
    layers, reach = 0, sees.float()
    while not (reach > 0).all():
        layers, reach = layers + 1, ((reach @ sees.float()) > 0).float()
    return layers""",
            """
    layers, reach = 1, sees.float()
    while not (reach > 0).all():
        layers, reach = layers + 1, ((reach @ reach) > 0).float()
    return layers""",
        ],
    ),
    ("04", 1): (
        "def flash(scores, values, block):",
        [
            """
    log, out = torch.full((len(scores), 1), -1e30), torch.zeros(len(scores), values.shape[1])
    for some, own in zip(scores.split(block, 1), values.split(block)):
        new = torch.logaddexp(log, some.logsumexp(1, True))
        out, log = out * (log - new).exp() + (some - new).exp() @ own, new
    return out""",
            """
    peak = scores.amax(1, keepdim=True)
    total = context = 0
    for n in range(0, scores.shape[1], block):
        powers = (scores[:, n : n + block] - peak).exp()
        total = total + powers.sum(1, keepdim=True)
        context = context + powers @ values[n : n + block]
    return context / total""",
            """
    peak, total, context = -1e30, 0.0, 0.0
    for n in range(scores.shape[1]):
        score = scores[:, n : n + 1]
        new = score.clamp(min=peak)
        old, power = (peak - new).exp(), (score - new).exp()
        total, context, peak = total * old + power, context * old + power * values[n], new
    return context / total""",
        ],
        [
            """
    total = context = 0
    for n in range(0, scores.shape[1], block):
        powers = scores[:, n : n + block].softmax(1)
        context = context + powers @ values[n : n + block]
    return context""",
            """
    peak, total, context = torch.full((len(scores), 1), -1e30), 0, 0
    for n in range(0, scores.shape[1], block):
        part = scores[:, n : n + block]
        peak = torch.maximum(peak, part.amax(1, keepdim=True))
        powers = (part - peak).exp()
        total = total + powers.sum(1, keepdim=True)
        context = context + powers @ values[n : n + block]
    return context / total""",
            "return (scores.exp() @ values / scores.exp().sum(1, keepdim=True))[:, :1]",
        ],
    ),
    ("04", 2): (
        """sigmoid_file = '''
import torch
from seqattn.attention.kernels.weighted import WeightedKernel


class SigmoidKernel(WeightedKernel):
    def normalize(self, scores):
        visible = (scores > -torch.inf).sum(-1, keepdim=True)
        return %s
''' % """,
        [
            "'torch.sigmoid(scores - scores.isfinite().sum(-1, keepdim=True).log())'",
            "'1 / (1 + visible * (-scores).exp())'",
            "'torch.where(scores == -torch.inf, 0.0, (scores - visible.log()).sigmoid())'",
        ],
        [
            "'(scores - torch.tensor(scores.shape[-1]).log()).sigmoid()'",
            "'scores.sigmoid()'",
            "'(w := (scores - visible.log()).sigmoid()) / w.sum(-1, keepdim=True)'",
        ],
    ),
    ("04", 3): (
        "path = home / 'sigmoid' / 'model'\ntranslation =",
        [
            "seqattn.load(path, trust=['sigmoid_kernel']).generate('She sees my dogs.', 'greedy')",
            "seqattn.load(str(path), trust=('sigmoid_kernel',)).generate(['She sees my dogs.'])[0]",
            "seqattn.load(path.parent, trust={'sigmoid_kernel'}).generate('She sees my dogs.')",
        ],
        ["'Sie sieht meine Hunde.'", "['She sees my dogs.']", "'She sees my dogs.'"],
    ),
    ("05", 0): (
        "def encoder_rollout(layers):",
        [
            "return torch.linalg.multi_dot([(w + torch.eye(len(w))) / 2 for w in layers[::-1]])",
            """
    shares = torch.eye(len(layers[0]))
    for w in layers:
        shares = (w @ shares + shares) / 2
    return shares""",
            """
    last, *rest = [w.lerp(torch.eye(len(w)), 0.5) for w in reversed(layers)]
    for one in rest:
        last = last @ one
    return last""",
        ],
        [
            "return layers[1] @ layers[0]",
            "return torch.linalg.multi_dot([(w + torch.eye(len(w))) / 2 for w in layers])",
            "return sum(layers) / 2",
        ],
    ),
    ("05", 1): (
        "def drop_without(name, head, heads=4):",
        [
            """
    with intervene(network, gates={name: [float(n != head) for n in range(heads)]}):
        without = mean_log_probability()
    return mean_log_probability() - without""",
            """
    gates = (1 - torch.eye(heads)[head]).tolist()
    with intervene(network, gates={name: gates}):
        return -(mean_log_probability() - before)
before = mean_log_probability()""",
            """
    found = []
    for own in (1, 0):
        with intervene(network, gates={name: [1] * head + [own] + [1] * (heads - head - 1)}):
            found.append(mean_log_probability())
    return found[0] - found[1]""",
        ],
        [
            """
    with intervene(network, gates={name: [float(n != head) for n in range(heads)]}):
        return mean_log_probability()""",
            """
    with intervene(network, gates={name: [float(n == head) for n in range(heads)]}):
        without = mean_log_probability()
    return mean_log_probability() - without""",
            """
    with intervene(network, gates={name: [float(n + 1 != head) for n in range(heads)]}):
        without = mean_log_probability()
    return mean_log_probability() - without""",
        ],
    ),
    ("05", 2): (
        "def drop_of(column, row):",
        [
            """
    ids = [*source_ids]
    ids.pop(column)
    return probability_of(source_ids, row) - probability_of(ids, row)""",
            "return -(probability_of([t for n, t in enumerate(source_ids) if n != column], row)"
            " - probability_of(source_ids, row))",
            """
    one = torch.ones(len(source_ids), dtype=torch.bool)
    one[column] = False
    some = [probability_of(ids.tolist(), row) for ids in (source[0], source[0, one])]
    return some[0] - some[1]""",
        ],
        [
            "return probability_of(source_ids[:column] + source_ids[column + 1 :], row)",
            "return probability_of(source_ids[:column] + source_ids[column + 1 :], row)"
            " - probability_of(source_ids, row)",
            "return probability_of(source_ids, row)"
            " - probability_of([t for t in source_ids if t != source_ids[row]], row)",
        ],
    ),
    ("05", 3): (
        "def state_of(text, word):",
        [
            """
    [ids] = bank_model.tokenizer.encode_source([text])
    [place, *_] = [n for n, p in enumerate(bank_model.tokenizer.source_pieces(ids)) if word in p]
    return bank_model.model.encode(torch.tensor([ids])).outputs[0, place]""",
            """
    ids = bank_model.encode([text])[0][0]
    has = [word in piece for piece in bank_model.tokenizer.source_pieces(ids)]
    with torch.inference_mode():
        return bank_model.model.encode(torch.tensor(ids)[None]).outputs[0][has.index(True)]""",
            """
    [ids] = bank_model.tokenizer.encode_source([text])
    outputs = bank_model.model.encode(torch.tensor([ids, ids])).outputs.detach()
    for piece, state in zip(bank_model.tokenizer.source_pieces(ids), outputs[1]):
        if word in piece:
            return state""",
        ],
        [
            """
    [ids] = bank_model.tokenizer.encode_source([text])
    return bank_model.model.encode(torch.tensor([ids])).outputs.mean(1)[0]""",
            """
    [ids] = bank_model.tokenizer.encode_source([text])
    return bank_model.model.encode(torch.tensor([ids])).outputs[0, -1]""",
            """
    [ids] = bank_model.tokenizer.encode_source([text])
    return bank_model.model.encode(torch.tensor([ids])).outputs""",
        ],
    ),
    ("06", 0): (
        "def copied(summary, report):",
        [
            "own = words(summary); return 1 - sum(w not in words(report) for w in own) / len(own)"
            " if own else 0.0",
            "some = [word in words(report) for word in words(summary)]; "
            "return len([one for one in some if one]) / (len(some) or 1)",
            """
    own, hits = words(summary), 0
    if not own:
        return 0
    for word in own:
        hits += 1 if word in words(report) else 0
    return hits / len(own)""",
        ],
        [
            "return len({*words(summary)} & {*words(report)}) / max(1, len({*words(summary)}))",
            "return sum(w in report.lower() for w in words(summary)) / max(1, len(words(summary)))",
            "return sum(w in report.split() for w in summary.split()) / max(1, len(summary))",
        ],
    ),
    ("06", 1): (
        "def f1(answer, reference):",
        [
            "a, b = Counter(words(answer)), Counter(words(reference)); "
            "return 2 * (a & b).total() / (a.total() + b.total())",
            "a, b = words(answer), words(reference); c = sum(min(a.count(w), b.count(w)) "
            "for w in set(a)); return 0.0 if not c else 2 / (len(a) / c + len(b) / c)",
            """
    own, rest, hits = words(answer), words(reference), 0
    size = len(own) + len(rest)
    for word in own:
        if word in rest:
            rest.remove(word)
            hits += 1
    return 2 * hits / size""",
        ],
        [
            "return float(answer == reference)",
            "a, b = set(words(answer)), set(words(reference)); "
            "return 2 * len(a & b) / (len(a) + len(b))",
            "a, b = words(answer), words(reference); return sum(w in b for w in a) / len(a)",
        ],
    ),
    ("06", 2): (
        "def translate(texts):",
        [
            "return [post('/v1/generate', {'inputs': t})['results'][0]['outputs'][0]['text']"
            " for t in texts]",
            "return list(map(lambda r: r['outputs'][0]['text'],"
            " post('/v1/generate', {'inputs': texts, 'n_best': 1})['results']))",
            """
    found = []
    for result in post('/v1/generate', dict(inputs=texts))['results']:
        best, *_ = result['outputs']
        found += [best['text']]
    return found""",
        ],
        [
            "return post('/v1/generate', {'inputs': texts})['results']",
            "return [r['outputs'][-1]['text']"
            " for r in post('/v1/generate', {'inputs': texts})['results']]",
            "return post('/v1/generate', {'inputs': texts[0]})['results'][0]['outputs'][0]['text']",
        ],
    ),
    ("06", 3): (
        "my_settings =",
        [
            "['experiment=demo', 'trainer.max_steps=20', 'position=alibi', 'attention=mqa']",
            "['experiment=demo', 'attention=mha', 'attention.num_kv_heads=1', 'position=alibi',"
            " 'trainer.max_steps=20']",
            "('experiment=demo', 'trainer.max_steps=20', 'attention=gqa', 'position=alibi',"
            " 'attention.num_kv_heads=1')",
        ],
        [
            "['experiment=demo', 'trainer.max_steps=20', 'position=alibi', 'attention=gqa']",
            "['experiment=demo', 'trainer.max_steps=20', 'position=rope', 'attention=mqa']",
            "['attention=mqa', 'position=alibi']",
        ],
    ),
    ("07", 0): (
        "def edits(output, right):",
        [
            "a, b = ' '.join(output), ' '.join(right); "
            "return int(WordScorer('symbols').score([a], [b])[2].value)",
            "return max(len(output), len(right)) if not (output and right) else min("
            "edits(output[1:], right[1:]) + (output[0] != right[0]), "
            "edits(output[1:], right) + 1, edits(output, right[1:]) + 1)",
            """
    row = [*range(len(right) + 1)]
    for i, a in enumerate(output):
        before, row = row, [i + 1]
        for j, b in enumerate(right):
            row.append(min(before[j] + (a != b), before[j + 1] + 1, row[j] + 1))
    return row[-1]""",
        ],
        [
            "return sum(map(str.__ne__, output, right)) + abs(len(output) - len(right))",
            "return abs(len(output) - len(right))",
            "return len(set(output) ^ set(right))",
        ],
    ),
    ("07", 1): (
        "def all_paths(move, say):",
        [
            "return (torch.linalg.multi_dot([m * s for m, s in zip(move, say)])[0]).sum()",
            """
    rest = torch.ones(say.shape[1])
    for m, s in zip(move.flip(0), say.flip(0)):
        rest = m @ (s * rest)
    return rest[0]""",
            """
    reached = (move[0, 0] * say[0]).log()
    for m, s in zip(move[1:], say[1:]):
        reached = (reached[:, None] + m.log()).logsumexp(0) + s.log()
    return reached.exp().sum()""",
        ],
        ["return say.sum(1)", "return say.prod()", "return say.sum(1).prod()"],
    ),
}
"""Of each exercise: how an answer begins, and right and wrong rests."""
