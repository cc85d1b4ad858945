"""Small recurrent models of every kind, for tests."""

from functools import partial

import torch

from seqattn.attention.alignment import (
    Alignment,
    Bahdanau,
    Luong,
    NoAlignment,
)
from seqattn.attention.local_alignment import LuongLocal, LuongLocalPredictive
from seqattn.models.recurrent import RecurrentConfig
from seqattn.settings.choices import choices
from seqattn.settings.nodes import TARGET, build, import_path
from tests.builders import VOCABULARY, randomised
from tests.nodes import made

OF_EXTRAS = {
    name: import_path(node[TARGET])
    for name, node in choices("attention").items()
    if node[TARGET].startswith("seqattn.extras.")
}
OF_EXTRAS = {name: kind for name, kind in OF_EXTRAS.items() if issubclass(kind, Alignment)}
"""Those that join by their YAML."""
ALIGNMENTS = {
    "bahdanau": Bahdanau,
    "luong_dot": partial(Luong, score="dot"),
    "luong_general": partial(Luong, score="general"),
    "luong_concat": partial(Luong, score="concat"),
    "luong_scaled": partial(Luong, score="scaled"),
    "luong_local_m": partial(LuongLocal, score="general", window=2),
    "luong_local_p": partial(LuongLocalPredictive, score="general", window=2),
    "none": NoAlignment,
    **{name: build(choices("attention")[name]) for name in OF_EXTRAS},
}
BEFORE = {"bahdanau", *(name for name, kind in OF_EXTRAS.items() if kind.attends_first)}
"""Those whose query, as published, is the state before the step."""
SHAPES = {
    "gru": {"cell": "gru"},
    "deep": {"encoder_layers": 2, "decoder_layers": 3},
    "one way": {"bidirectional": False, "cell": "gru", "decoder_layers": 2},
    "other order": {"order": "other"},
    "fed": {"input_feeding": True, "decoder_layers": 2, "order": "after"},
}
MODELS = [
    *((name, {}) for name in ALIGNMENTS),
    *(("bahdanau", shape) for shape in SHAPES.values()),
    *(("luong_general", shape) for shape in SHAPES.values()),
    *((name, SHAPES["fed"]) for name in ("luong_local_m", "luong_local_p", "none")),
    ("none", SHAPES["other order"]),
    *((name, SHAPES[shape]) for name in OF_EXTRAS if name in BEFORE for shape in ("deep", "fed")),
]
"""Each attention in its own order, and two of them in every shape."""


def label(model):
    name, options = model
    return "-".join([name, *(f"{key}={value}" for key, value in options.items())])


def make_recurrent(name="bahdanau", joint=True, **options):
    """A randomised model in eval mode; `order="other"` is the one it was not published in."""
    torch.manual_seed(0)
    if options.get("order") == "other":
        options = {**options, "order": "after" if name in BEFORE else "before"}
    sizes = {"dim": 10, "encoder_dim": 12, "decoder_dim": 14, "dropout": 0.0}
    if name in ("luong_dot", "luong_scaled"):
        sizes["encoder_dim"] = 14
    config = made(RecurrentConfig, **{**sizes, **options})
    source_size = VOCABULARY if joint else VOCABULARY + 2
    model = config.build(source_size, VOCABULARY, joint, ALIGNMENTS[name])
    return randomised(model, scale=0.2).eval()


def queries_and_memory(steps, length, query_dim, memory_dim):
    """Random states of the decoder and annotations of two sentences, in float64."""
    draw = torch.Generator().manual_seed(0)
    options = {"generator": draw, "dtype": torch.float64, "requires_grad": True}
    shapes = (2, steps, query_dim), (2, length, memory_dim)
    return [torch.randn(*shape, **options) for shape in shapes]


def attended(alignment, query, memory, real):
    """Weights (B, T, S) and contexts (B, T, M) of T steps, and what is remembered after each."""
    source = alignment.project(memory, real)
    past, found = alignment.first_past(source, beams=1), []
    for t in range(query.shape[1]):
        steps = torch.full((len(query), 1), t)
        context, weights, past = alignment(query[:, t : t + 1], source, steps, past)
        found.append((weights, context, past))
    weights, contexts, pasts = zip(*found)
    return torch.cat(weights, dim=1), torch.cat(contexts, dim=1), pasts
