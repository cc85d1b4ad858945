"""Heads removed from weights: what is left computes what it did beside heads that give nothing."""

import pytest
import torch

import seqattn
from seqattn.analysis import capture, intervene
from seqattn.attention.base import Attention
from seqattn.bundle.files import write_bundle
from seqattn.bundle.load import load_bundle
from seqattn.errors import UserError
from seqattn.extras.explain.pruning import Units, pruned
from seqattn.settings.choices import choices
from tests.builders import padded, randomised
from tests.bundle.conftest import configuration, untrained

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
SOURCES = padded([[4, 5, 6, 7, 8, 9, 5, 3], [9, 4, 3]])
TARGETS = padded([[2, 8, 9, 5, 7], [2, 6, 4]])
KEPT = {
    "encoder.layers.0.self_attention": [1, 3],
    "encoder.layers.1.self_attention": [0, 1, 3],
    "decoder.layers.0.self_attention": [2],
    "decoder.layers.1.cross_attention": [0, 3],
}
IN_ENCODER = ("xca", "linformer", "bigbird")


def nodes(position="sinusoidal", attention="mha", **options):
    """Two layers of four heads a slot; what fits an encoder alone is its encoder's."""
    config = configuration(position=position)
    config["model"] = {**config["model"], "dim": 24, "encoder_layers": 2, "decoder_layers": 2}
    config["position"] |= {key: value for key, value in options.items() if key != "num_kv_heads"}
    node = choices("attention")[attention] | {"num_heads": 4}
    node["num_kv_heads"] = options.get("num_kv_heads", 4)
    config["encoder_attention" if attention in IN_ENCODER else "attention"] = node
    return config


@pytest.fixture
def whole(tmp_path, tokenizer):
    """Makes a bundle with random weights, in which nothing that a head has is like another's."""

    def make(config):
        bundle = load_bundle(untrained(tmp_path / "whole", tokenizer, config))
        randomised(bundle.model, scale=0.3)
        return bundle

    return make


def reloaded(bundle, path):
    write_bundle(path, bundle.config, bundle.model, bundle.tokenizer, {})
    return seqattn.load(path)


def gates(model, kept):
    """1 for heads that stay."""
    found = {}
    for name, heads in kept.items():
        found[name] = torch.zeros(model.get_submodule(name).num_heads)
        found[name][heads] = 1.0
    return found


@torch.no_grad()
def stepwise(model):
    state = model.start(model.encode(SOURCES))
    return torch.cat([model.decode(one, state) for one in TARGETS.split([2, 1, 2], dim=1)], dim=1)


@torch.no_grad()
def check(bundle, kept, path):
    """Pruned, written and read again, it computes what the gated one does."""
    with intervene(bundle.model, gates=gates(bundle.model, kept)):
        expected, texts = bundle.model(SOURCES, TARGETS), bundle.generate(["a dog sees the cat"])
    new = reloaded(pruned(bundle, kept), path)
    torch.testing.assert_close(new.model(SOURCES, TARGETS), expected, **CLOSE)
    torch.testing.assert_close(stepwise(new.model)[0], expected[0], **CLOSE)
    assert new.generate(["a dog sees the cat"]) == texts
    assert not torch.allclose(expected, bundle.model(SOURCES, TARGETS), atol=1e-2)
    return new


def some(names, shown):
    """All of them, those that are not shown in the exhaustive run alone."""
    marks = {name: () if name in shown else pytest.mark.exhaustive for name in names}
    return [pytest.param(name, marks=marks[name]) for name in names]


BY_HEAD = ("alibi", "t5", "disentangled", "deberta")


@pytest.mark.parametrize("position", some([*choices("position"), "shaw with values"], BY_HEAD))
def test_a_pruned_model_is_the_gated_one_with_every_position(whole, tmp_path, position):
    options = {"values": True} if " " in position else {}
    check(whole(nodes(position.partition(" ")[0], **options)), KEPT, tmp_path / "new")


@pytest.mark.parametrize(
    "attention",
    some(
        [
            *("entmax", "hopfield", "additive", "sigmoid", "softcap"),
            *("sliding_window", "linear", "performer", "ring", *IN_ENCODER),
        ],
        ("entmax", "hopfield", "additive", "xca"),
    ),
)
def test_a_pruned_model_is_the_gated_one_with_every_kernel_whose_heads_are_alike(
    whole, tmp_path, attention
):
    kept = {n: of for n, of in KEPT.items() if attention not in IN_ENCODER or n[0] == "e"}
    new = check(whole(nodes(attention=attention)), kept, tmp_path / "new")
    assert new.model.encoder.layers[0].self_attention.kernel.num_heads == 2


@pytest.mark.parametrize(
    ("num_kv_heads", "heads", "left"), [(2, [2, 3], 1), (1, [1, 2], 1), (2, [0, 3], 2)]
)
def test_a_key_head_stays_while_a_query_head_needs_it(whole, tmp_path, num_kv_heads, heads, left):
    kept = dict.fromkeys(KEPT, heads)
    new = check(whole(nodes("shaw", num_kv_heads=num_kv_heads)), kept, tmp_path / "new")
    attention = new.model.get_submodule("decoder.layers.0.self_attention")
    assert (attention.num_heads, attention.num_kv_heads) == (2, left)
    assert attention.key.weight.shape == (left * 6, 24)


def test_a_head_that_is_removed_copies_nothing_any_more_and_neither_does_a_gated_one(
    whole, tmp_path
):
    config = nodes()
    config["model"]["copy"] = True
    check(whole(config), KEPT, tmp_path / "new")


def test_a_pruned_model_still_normalizes_its_queries_and_keys(whole, tmp_path):
    config = nodes("rope", num_kv_heads=2)
    config["attention"]["qk_norm"] = True
    new = check(whole(config), {name: [2, 3] for name in KEPT}, tmp_path / "new")
    assert new.model.decoder.layers[0].cross_attention.query_norm is not None


def test_a_pruned_bundle_is_pruned_again(whole, tmp_path):
    bundle = whole(nodes("alibi"))
    name = "encoder.layers.1.self_attention"
    once = reloaded(pruned(bundle, {name: [0, 1, 3]}), tmp_path / "once")
    check(once, {name: [1, 2]}, tmp_path / "twice")
    node = seqattn.load(tmp_path / "twice").config["encoder_attention"]
    assert [layer.get("kept_heads") for layer in node] == [None, [1, 3]]


def test_a_pruned_model_is_smaller_shows_its_weights_and_learns(whole, tmp_path):
    bundle = whole(nodes("deberta"))
    new = check(bundle, KEPT, tmp_path / "new")
    files = (tmp_path / folder / "model.safetensors" for folder in ("whole", "new"))
    before, after = (file.stat().st_size for file in files)
    assert after < before - 4 * 24 * 6 * 4 * 8  # eight heads of four matrices at least
    with capture(new.model) as maps:
        new.model(SOURCES, TARGETS)
    assert maps["decoder.layers.0.self_attention"][0].shape == (2, 1, 5, 5)
    new.model.loss(SOURCES, TARGETS, TARGETS).smoothed.backward()
    assert all(part.grad is not None for part in new.model.parameters())


def importance(bundle):
    """All heads alike."""
    attentions = {n: m for n, m in bundle.model.named_modules() if isinstance(m, Attention)}
    return {name: torch.ones(attention.num_heads) for name, attention in attentions.items()}


def test_the_least_important_go_and_one_stays_in_each_attention(whole):
    bundle = whole(nodes())
    scores = importance(bundle)
    scores["encoder.layers.0.self_attention"] = torch.tensor([0.1, 0.2, 0.05, 0.3])
    scores["decoder.layers.1.cross_attention"] = torch.tensor([0.4, 1.0, 0.35, 1.0])
    kept = Units(bundle.model, scores, 5).least_important(scores)
    assert kept == {
        "encoder.layers.0.self_attention": [3],
        "decoder.layers.1.cross_attention": [1, 3],
    }
    every = Units(bundle.model, scores, 18).least_important(scores)
    assert sorted(map(len, every.values())) == [1] * 6
    with pytest.raises(UserError, match="prune must be at most 18, got 19; one key head"):
        Units(bundle.model, scores, 19)


def test_query_heads_of_a_key_head_go_together_but_those_of_one_key_head_alone(whole):
    grouped = whole(nodes(num_kv_heads=2))
    scores = importance(grouped)
    name = "decoder.layers.0.self_attention"
    scores[name] = torch.tensor([0.1, 0.9, 0.3, 0.4])
    assert Units(grouped.model, scores, 2).least_important(scores) == {name: [0, 1]}
    with pytest.raises(
        UserError, match=r"prune must cover complete groups of 2 query heads.*got 3"
    ):
        Units(grouped.model, scores, 3).least_important(scores)


def test_one_key_head_of_all_loses_query_heads_one_by_one(whole):
    single = whole(nodes(num_kv_heads=1))
    scores = importance(single)
    name = "decoder.layers.0.self_attention"
    scores[name] = torch.tensor([0.1, 0.9, 0.3, 0.4])
    assert Units(single.model, scores, 1).least_important(scores) == {name: [1, 2, 3]}


@pytest.mark.parametrize(
    ("attention", "reason"),
    [
        ("lsh", "rotations of all heads are drawn together"),
        ("talking_heads", "each head mixes the scores"),
        ("differential", "its heads work in pairs"),
        ("moa", r"\(MixtureOfAttention\); pruning"),
    ],
)
def test_heads_that_are_not_alike_cannot_go(tmp_path, tokenizer, attention, reason):
    config = configuration()
    config["encoder_attention"] = choices("attention")[attention]
    bundle = seqattn.load(untrained(tmp_path / "bundle", tokenizer, config))
    with pytest.raises(UserError, match=f"{reason}.*such as mha, gqa"):
        Units(bundle.model, importance(bundle), 1)


@pytest.mark.parametrize(
    ("kept", "groups", "reason"),
    [
        ([], 4, "must be ascending numbers from 0 to 3"),
        ([1, 0], 4, "must be ascending numbers from 0 to 3"),
        ([2, 4], 4, "must be ascending numbers from 0 to 3"),
        ([0, 1, 2], 2, "must keep the same number of query heads per key head"),
    ],
)
def test_kept_heads_that_make_no_attention_are_refused(kept, groups, reason):
    made = choices("attention")["mha"] | {"num_heads": 4, "num_kv_heads": groups}
    with pytest.raises(UserError, match=f"kept_heads {reason}"):
        seqattn.settings.nodes.build({**made, "kept_heads": kept})(query_dim=24, memory_dim=24)
