"""Models whose outputs are kept: every attention, position and family, with weights by formula."""

import hashlib
import re

import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from seqattn.settings.choices import choices
from seqattn.settings.nodes import TARGET, build
from tests.absent import has_extra
from tests.builders import (
    CONF,
    DIM,
    attention_variants,
    causal_mask,
    full_mask,
    load_choice,
    load_variant,
    make_attention,
    make_position,
    make_transformer,
    padded,
    position_choices,
)
from tests.models.families import COPYING, SHAPED
from tests.models.families import make as make_family
from tests.models.recurrents import MODELS, label

SOURCES = padded([[4, 5, 6, 7, 8, 9, 10, 4, 6, 3], [9, 4, 3], [6, 6, 7, 10, 5, 3]], left=True)
TARGETS = padded([[2, 5, 6, 9], [2, 4, 4, 9, 10, 8, 7, 5, 6], [2, 7, 8, 8, 4, 10]])
NAMES = {r"^output\.weight$": "head.linear.weight", r"^copying\.gate\.": "head.gate."}
"""What parameters were called when the outputs were written down, as patterns, and are called."""
SCALAR = r"\.energy\.(gain|offset)$"
"""Names of parameters that were scalars then, and now have the shape (1,)."""
LENGTH = 150  # several blocks of every blockwise kernel
LONG = {
    "sliding_window": {"window": 7, "global_tokens": 2},
    "streaming": {"sinks": 3, "window": 9},
    "strided": {"stride": 5, "split_heads": True},
    "fixed": {"stride": 6, "summary": 2},
    "fixed, shared": {"stride": 6, "summary": 2, "strided_heads": True},
    "bigbird": {"block_size": 8},
    "lsh": {"bucket_size": 16, "rounds": 3},
    "linear": {"chunk": 16},
    "performer": {"chunk": 16, "features": 40},
    "linformer": {"projected": 10},
    "entmax": {},
}
"""Attentions that are kept over long sequences too, with the sizes of their kernels."""


def cases():
    """What is kept, by name: how to make each model."""
    found = {}
    for name in attention_variants():
        takes = make_attention(load_variant(name)).abilities.hooks
        whole = name == "mha"
        for scheme in position_choices() if whole else ["rope" if "rotate" in takes else "none"]:
            found[f"{name} {scheme}"] = ("transformer", name, scheme)
    for scheme in ("alibi", "deberta", "shaw"):
        hooks = make_position(load_choice("position", scheme)).hooks
        for name in ("sliding_window, small", "streaming, small", "fixed, small", "bigbird, small"):
            assert hooks <= make_attention(load_variant(name)).abilities.hooks
            found[f"{name} {scheme}"] = ("transformer", name, scheme)
    for parameter in [("recurrent", *model) for model in MODELS] + COPYING:
        family, name, rest = parameter
        title = label((name, rest)) if family == "recurrent" else f"{name} {rest}"
        found[f"{family} {title}"] = parameter
    found["transformer gelu rmsnorm"] = {"activation": "gelu", "norm": "rmsnorm"}
    found["transformer swiglu post-norm"] = {"activation": "swiglu", "pre_norm": False}
    found["transformer apart"] = {"share_embeddings": "none", "encoder_dim": 16, "layers": (1, 3)}
    found["transformer qk norm"] = SHAPED["normalized queries and keys"]
    found["transformer output softcap"] = {"output_softcap": 0.5}
    if has_extra("answers"):
        found["span recurrent"] = ("span", None, {})
        found["span recurrent gru"] = ("span", None, {"cell": "gru", "word_match": False})
        for name in ("mha", "lsh, small", "sliding_window, small"):
            found[f"span transformer {name}"] = ("span", name, {})
    found |= {f"long {name}": ("long", name, sizes) for name, sizes in LONG.items()}
    mixers = {
        name: build({**node, "chunk": 3})
        for name, node in choices("attention").items()
        if node[TARGET].startswith("seqattn.extras.mixers.")
    }
    found |= {f"mixer {name}": {"attention": mixer} for name, mixer in mixers.items()}
    return found


def make(case):
    """The model of a case, in eval mode, each parameter a formula of its name and shape."""
    if isinstance(case, dict):
        model = make_transformer(**case)
    elif case[0] == "long":
        model = Long(*case[1:])
    elif case[0] == "span":
        from tests.extras.answers import span_models as spans

        _, name, config = case
        model = (
            spans.make_recurrent(**config)
            if name is None
            else spans.make_transformer_reader(load_variant(name), **config)
        )
    else:
        model = make_family(case)
    for name, parameter in parameters(model).items():
        fill(name, parameter)
    return model


class Long(torch.nn.Module):
    """An attention alone, over long rows with padding."""

    def __init__(self, name, sizes):
        super().__init__()
        node = OmegaConf.load(CONF / "attention" / f"{name.split(',')[0]}.yaml")
        node.kernel.update(sizes)
        self.attention = make_attention(instantiate(node, _convert_="all"))
        scheme = "rope" if "rotate" in self.attention.abilities.hooks else "none"
        self.position = make_position(load_choice("position", scheme))

    def forward(self):
        x = torch.empty(2, LENGTH, DIM)
        fill("long rows", x)
        x = x.to(next(self.parameters()).dtype)
        real = torch.ones(2, LENGTH, dtype=torch.bool)
        real[1, :11] = real[1, -8:] = False
        abilities = self.attention.abilities
        makes = [full_mask] * abilities.bidirectional + [causal_mask] * abilities.causal
        return torch.cat([self.attend(x, make(real))[real] for make in makes])

    def attend(self, x, mask):
        out = self.attention(x, self.attention.project(x), mask, self.position)
        return getattr(out, "output", out)


def parameters(model):
    """Each parameter under the first in the alphabet of the names that it goes by."""
    names = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        for old, new in NAMES.items():
            name = re.sub(old, new, name)
        names.setdefault(parameter, []).append(name)
    return {min(found): parameter for parameter, found in sorted(names.items(), key=_first)}


def _first(item):
    return min(item[1])


def fill(name, parameter):
    """The same numbers for a name and shape, whatever else the model holds."""
    shape = () if re.search(SCALAR, name) else tuple(parameter.shape)
    digest = hashlib.sha256(f"{name} {shape}".encode()).digest()
    source = torch.Generator().manual_seed(int.from_bytes(digest[:6], "big"))
    numbers = torch.randn(parameter.shape, generator=source)
    fans = parameter.shape[-1] if 1 < parameter.dim() < 3 else 4
    with torch.no_grad():
        gain = 1.0 if parameter.dim() == 1 and "norm" in name and "weight" in name else 0.0
        parameter.copy_(gain + numbers * fans**-0.5)


def outputs(model, dtype):
    """What is kept of a model: some of its log-probabilities, their sum, and its gradient's size.

    Log-probabilities, so that a model may give logits or them.
    """
    model = model.to(dtype)
    model.zero_grad()
    if isinstance(model, Long):
        found = model().mean(dim=1)
    elif hasattr(model, "encode"):
        found = model(SOURCES, TARGETS).log_softmax(dim=-1)
        gold = TARGETS.roll(-1, dims=1)[..., None]
        real = (TARGETS != 0)[..., None]
        found = found.gather(2, gold)[real]
    else:
        from tests.extras.answers import span_models as spans

        start, end, _ = model(spans.inputs(question_left=True))
        found = torch.cat((start, end), dim=1)
        found = found[found.isfinite()]
    found.square().sum().backward()
    squares = [p.grad.double().square().sum() for p in model.parameters() if p.grad is not None]
    picked = found.detach().double()[[0, 2, 5, 11, -1]]
    return [*picked.tolist(), found.sum().item(), torch.stack(squares).sum().sqrt().item()]
