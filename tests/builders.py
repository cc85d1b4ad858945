"""Small models, and the choices of conf/, for tests. Sizes are tiny and all different."""

from functools import cache, partial
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import get_class, instantiate
from omegaconf import OmegaConf

from seqattn.attention.base import Attention, Mixer
from seqattn.attention.heads import MultiHeadAttention
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.attention.masks import Mask, positions_of
from seqattn.config.compose import register_resolvers
from seqattn.models.transformer import Slots, Transformer, TransformerConfig
from seqattn.positions import LearnedPosition, Position, RotaryPosition, SinusoidalPosition, Stack
from seqattn.tokens import BOS, PAD
from tests.nodes import made

CONF = Path(__file__).parents[1] / "conf"
own_conf = None
"""A folder whose attentions are held to the laws in place of the shipped ones; None for none."""
DIM, HEADS, HEAD_DIM = 24, 4, 6
VOCABULARY = 11
SMALL_WITH = {"none", "rope", "alibi"}
"""Positions that small attentions are tried with."""
TRIED = {*SMALL_WITH, "shaw", "deberta"}
"""Positions that attentions are tried with: one for each way in which they act."""
POSITIONS = {
    "none": Position,
    "sinusoidal": SinusoidalPosition,
    "learned": partial(LearnedPosition, max_length=40),
    "rope": RotaryPosition,
}


def own_choices():
    """The names in the attention folder of `own_conf`."""
    return [] if own_conf is None else _names("attention", own_conf)


@cache
def attention_choices():
    """The names in conf/attention that fill a slot of a Transformer, none of recurrent models."""
    names = own_choices() or _names("attention")
    return [name for name in names if issubclass(_target(name), Attention)]


@cache
def mixer_choices():
    """The names in conf/attention that fill a slot of a Transformer without attending."""
    names = own_choices() or _names("attention")
    mixers = [name for name in names if issubclass(_target(name), Mixer)]
    return [name for name in mixers if name not in attention_choices()]


def position_choices():
    return _names("position")


@cache
def load_choice(group, name, small=False):
    """The factory that conf/GROUP/NAME.yaml stands for, with a kernel's sizes at 2 if `small`."""
    node = _node(group, name).copy()
    if small:
        node.kernel.update(dict.fromkeys(_sizes(node), 2))
    return instantiate(node, _convert_="all")


@cache
def attention_variants():
    """Every attention as shipped, and as "NAME, small" where its kernel has sizes in tokens."""
    found = []
    for name in attention_choices():
        sized = _sizes(_node("attention", name))
        found += [name, f"{name}, small"] if sized else [name]
    return found


def load_variant(name):
    """The factory of one of `attention_variants`, or of a mixer that scans few tokens at a time."""
    choice, _, small = name.partition(", ")
    if name in mixer_choices():
        factory = load_choice("attention", name)
        return partial(factory, **{key: 2 for key in ("chunk",) if key in factory.keywords})
    return load_choice("attention", choice, small=bool(small))


@cache
def abilities_of(name):
    """What one of `attention_variants` can do."""
    return make_attention(load_variant(name)).abilities


def fitting(slot):
    """The variants that fit a slot."""
    return [name for name in attention_variants() if abilities_of(name).fits(slot)]


def schemes(name):
    """The positions that a variant takes: those to try, one for each way of acting, and the rest.

    Multi-head attention is tried with all of them.
    """
    tried = {"mha": set(position_choices())}.get(name, SMALL_WITH if ", " in name else TRIED)
    taken = [x for x in position_choices() if _hooks(x) <= abilities_of(name).hooks | {"embed"}]
    return [x for x in taken if x in tried], [x for x in taken if x not in tried]


def one_scheme(name):
    """The position that a variant has in a whole model: rotary, and a score term where small."""
    first = ["deberta", "rope"] if ", " in name else ["rope"]
    return next((x for x in first if _hooks(x) <= abilities_of(name).hooks), "none")


WHOLE = {
    "gqa", "sliding_window, small", "streaming, small", "strided, small", "bigbird, small",
    "linear", "lsh, small", "linformer", "moa", "talking_heads",
}  # fmt: skip
"""Attentions that are tried in whole models: one for each kind of cache, pattern and layer."""


def pairs(slot=None):
    """Test parameters: every variant, or those that fit a slot, with every position it takes.

    As `test_conformance` proves the laws of a layer for all, those of `WHOLE` and of one's own have
    one position here, and multi-head attention has all; the others are exhaustive.
    """
    for name in attention_variants() if slot is None else fitting(slot):
        for scheme in sorted(x for part in schemes(name) for x in part):
            whole = name in WHOLE or name.partition(", ")[0] in own_choices()
            tried = name == "mha" or (whole and scheme == one_scheme(name))
            marks = () if tried else pytest.mark.exhaustive
            yield pytest.param(name, scheme, marks=marks, id=f"{name}-{scheme}")


@cache
def _hooks(scheme):
    return make_position(load_choice("position", scheme)).hooks


@cache
def _node(group, name):
    if group == "attention" and name in own_choices():
        return _own_node(name)
    return OmegaConf.load(CONF / group / f"{name}.yaml")


def _own_node(name):
    """A choice of `own_conf` as a training composes it, with as many heads as tests have."""
    register_resolvers()
    with initialize_config_dir(str(CONF), version_base=None):
        paths = f"hydra.searchpath=[file://{own_conf.resolve()}]"
        node = compose("train", [f"attention={name}", paths]).attention
    node.update(
        {key: value for key, value in (("num_heads", HEADS), ("dropout", 0.0)) if key in node}
    )
    if HEADS % node.get("num_kv_heads", 1):
        node.num_kv_heads = HEADS
    return OmegaConf.create(OmegaConf.to_container(node, resolve=True))


def _sizes(node):
    kernel = node.get("kernel", {})
    whole = {key for key, value in kernel.items() if type(value) is int and value > 2}
    return whole - {"seed", "max_length"}


def _names(group, conf=CONF):
    return sorted(path.stem for path in (conf / group).glob("*.yaml"))


def _target(name):
    return get_class(_node("attention", name)["_target_"])


def heads(num_heads=HEADS, num_kv_heads=HEADS, **options):
    """A factory of multi-head attention over the softmax kernel."""
    return partial(
        MultiHeadAttention,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        kernel=SoftmaxKernel,
        **options,
    )


def randomised(module, scale=0.2, seed=0):
    """The module with noise on every parameter, so that no bias is 0 and no gain is 1."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=source, dtype=parameter.dtype)
            parameter.add_(noise, alpha=scale)
    return module


def make_attention(factory=None, dim=DIM, memory_dim=None, seed=0):
    torch.manual_seed(seed)
    attention = (factory or heads())(query_dim=dim, memory_dim=memory_dim or dim)
    return randomised(attention, seed=seed).eval()


def make_position(factory, dim=DIM, num_heads=HEADS, bidirectional=True):
    """The part of a scheme that the second of two layers uses."""
    return randomised(factory(Stack(dim, num_heads, 2, bidirectional))).eval().at_layer(1)


def full_mask(real):
    """Every real token sees every real token."""
    return Mask.full(real)


def causal_mask(real):
    """Every real token sees the real tokens up to itself."""
    positions = positions_of(real)
    return Mask(positions, positions, real, causal=True)


def make_transformer(
    attention=None, position=Position, layers=(2, 2), joint=True, cross=None, **config
):
    """A randomised Transformer in eval mode, its attention in each slot that it fits.

    Slots that it does not fit get multi-head attention, and so does cross-attention by default.
    """
    torch.manual_seed(0)
    attention = attention or heads()
    abilities = make_attention(attention).abilities
    encoder = attention if abilities.fits("encoder") else heads()
    decoder = attention if abilities.fits("decoder") else heads()
    crosses = [cross or heads()] * layers[1]
    slots = Slots([encoder] * layers[0], [decoder] * layers[1], crosses, position)
    shape = made(TransformerConfig, **{"dim": DIM, "ffn_dim": 20, "dropout": 0.0, **config})
    source_size = VOCABULARY if joint else VOCABULARY + 2
    model = shape.build(source_size, VOCABULARY, joint, slots)
    assert isinstance(model, Transformer)
    return randomised(model, scale=0.1).eval()


def padded(rows, left=False):
    """Rows of ids as one tensor, padded on the right or on the left."""
    longest = max(len(row) for row in rows)
    blank = [[PAD] * (longest - len(row)) for row in rows]
    pairs = zip(blank, rows) if left else zip(rows, blank)
    return torch.tensor([[*first, *second] for first, second in pairs])


def random_ids(*shape, seed=0):
    """Ordinary tokens, from 4 up."""
    source = torch.Generator().manual_seed(seed)
    return torch.randint(4, VOCABULARY, shape, generator=source)


def targets(rows, length, seed=1):
    """(rows, length) ids that begin with BOS."""
    ids = random_ids(rows, length, seed=seed)
    ids[:, 0] = BOS
    return ids


def copy_attention(theirs, ours):
    """Our weights into a torch.nn.MultiheadAttention."""
    parts = (ours.query, ours.key, ours.value)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def copy_rest(theirs, ours, residuals):
    """Our feed-forward and norms into a layer of PyTorch's Transformer."""
    theirs.linear1.load_state_dict(ours.feedforward.inner.state_dict())
    theirs.linear2.load_state_dict(ours.feedforward.outer.state_dict())
    for number, residual in enumerate(residuals, start=1):
        getattr(theirs, f"norm{number}").load_state_dict(residual.norm.state_dict())
