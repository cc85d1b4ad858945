"""Families of encoder-decoders of Hugging Face: settings and names of weights in both forms."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import torch
from torch import Tensor

from seqattn.checking import shown
from seqattn.errors import UserError
from seqattn.positions import SinusoidalPosition, Stack
from seqattn.settings.choices import choices
from seqattn.settings.nodes import Node

Side = Literal["source", "target"]
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}
"""Our activation for each of theirs."""
_STACKS = "encoder", "decoder"
_ROUNDING = 1e-4
"""Largest difference of two sinusoids in float32, whose angles are up to 1,024."""
LAYERS = 1_000
"""Maximum number of layers of a stack."""
GATED = {"silu": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu_tanh"}
"""Our gated activation for each plain one."""


@dataclass(frozen=True)
class Weight:
    """A tensor of ours, and the tensors of Hugging Face that hold it.

    Args:
        name: name in our state dict.
        foreign_names: names in theirs, concatenated along the first axis.
        scale: factor from theirs to ours.
        shift: added to it.
        skipped: first rows of theirs, which ours lacks.
        side: vocabulary whose ids its rows are; None for none.
    """

    name: str
    foreign_names: tuple[str, ...]
    scale: float = 1.0
    shift: float = 0.0
    skipped: int = 0
    side: Side | None = None

    def from_hf(self, *tensors: Tensor) -> Tensor:
        """Return our tensor, in float32, with their vocabulary."""
        foreign = tensors[0] if len(tensors) == 1 else torch.cat(tensors)
        tensor = foreign[self.skipped :].float()
        return tensor if (self.scale, self.shift) == (1, 0) else tensor * self.scale + self.shift

    def to_hf(self, tensor: Tensor) -> dict[str, Tensor]:
        """Return their tensors by name, for ours with their vocabulary."""
        rows = tensor.new_zeros(self.skipped, *tensor.shape[1:])
        parts = torch.cat([rows, (tensor - self.shift) / self.scale]).chunk(len(self.foreign_names))
        return {name: part.clone() for name, part in zip(self.foreign_names, parts, strict=True)}


@dataclass(frozen=True)
class Family:
    """A model of Hugging Face in our terms.

    Args:
        nodes: the nodes `model`, `attention`, `position`, and those of slots that differ.
        weights: all weights except the output bias.
        output_bias: name of their output bias, a (1, V) tensor that may be missing.
        unused: further names that may be in the file: copies of tied tables, and sinusoids.
    """

    nodes: dict[str, Node]
    weights: list[Weight]
    output_bias: str | None = None
    unused: tuple[str, ...] = ()


class Folder(Protocol):
    """A model's folder, read or to be written; the methods are those of `HFFolder`."""

    @property
    def path(self) -> Path: ...
    @property
    def config(self) -> Mapping[str, Any]: ...
    def table(self, *names: str) -> str: ...
    def output_table(self, tied: str) -> str: ...
    def stored(self, name: str) -> Tensor | None: ...


class Settings:
    """Values of a config.json, checked for their kind.

    Args:
        values: the object that the file holds.
        file: path of the file, for messages.
    """

    def __init__(self, values: Mapping[str, Any], file: object) -> None:
        self.values, self.file = values, file

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value; raise UserError if it is missing and has no default."""
        value = self.values.get(key)
        if value is None and default is None:
            raise UserError(f"{self.file} lacks {key}")
        return default if value is None else value

    def check(self, key: str, *supported: Any) -> None:
        """Raise UserError if a key is set to a value that is not supported."""
        value = self.values.get(key)
        if value is not None and value not in supported:
            words = " or ".join(str(one).lower() for one in supported)
            raise UserError(f"{self.file} has {key}={shown(value)}; only {words} is supported")

    def count(
        self, key: str, default: int | None = None, least: int = 1, limit: int = 65_536
    ) -> int:
        """Return a whole number from `least` to `limit`."""
        value = self.get(key, default)
        if type(value) is not int or not least <= value <= limit:
            numbers = f"a number from {least} to {limit:,}"
            raise UserError(f"{self.file} has {key}={shown(value)}, which must be {numbers}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Return a truth value."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise UserError(f"{self.file} has {key}={shown(value)}, which must be true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text."""
        value = self.get(key, default)
        if not isinstance(value, str):
            raise UserError(f"{self.file} has {key}={shown(value)}, which must be a text")
        return value

    def number(self, key: str) -> float:
        """Return a positive number."""
        value = self.get(key)
        if type(value) not in (int, float) or not 0 < value <= 10**9:
            raise UserError(f"{self.file} has {key}={shown(value)}, which must be above 0")
        return float(value)

    def within(self, key: str) -> "Settings":
        """Return the values of an object."""
        value = self.get(key)
        if not isinstance(value, Mapping):
            raise UserError(f"{self.file} has {key}={shown(value)}, which must be an object")
        return Settings(value, f"{self.file}: {key}")

    def activation(self, key: str, value: str | None = None) -> str:
        """Return our name of an activation."""
        value = self.text(key) if value is None else value
        if value not in ACTIVATIONS:
            names = ", ".join(ACTIVATIONS)
            raise UserError(f"{self.file} has {key}={shown(value)}; only {names} are supported")
        return ACTIVATIONS[value]


def family(folder: Folder, supported: Collection[str] | None = None) -> Family:
    """Return the description of a folder's model.

    Args:
        folder: the folder.
        supported: families, keys of `FAMILIES`; None for all.

    Raises:
        UserError: if the family, or a setting, is not supported.
    """
    supported = FAMILIES if supported is None else supported
    file, kind = folder.path / "config.json", folder.config.get("model_type")
    if not isinstance(kind, str) or kind not in supported:
        raise UserError(
            f"{file} has model_type={shown(kind)}; supported are {', '.join(supported)}"
        )
    return FAMILIES[kind](Settings(folder.config, file), folder)


_BART_ATTENTION = [
    ("query", "q_proj"),
    ("key", "k_proj"),
    ("value", "v_proj"),
    ("output", "out_proj"),
]
_BIASES = "weight", "bias"
_BART_LAYER = {
    "feedforward.inner": "fc1",
    "feedforward.outer": "fc2",
    "feed.norm": "final_layer_norm",
}


def _bart(settings: Settings, folder: Folder) -> Family:
    """Marian, BART, mBART, Pegasus, M2M-100 and NLLB, which share the names of their weights."""
    kind = settings.get("model_type")
    pre_norm, embedding_norm = kind in ("mbart", "pegasus", "m2m_100"), kind in ("bart", "mbart")
    settings.check("normalize_before", pre_norm)
    settings.check("normalize_embedding", embedding_norm)
    settings.check("add_final_layer_norm", pre_norm)
    settings.check("static_position_embeddings", not embedding_norm)
    settings.check("add_bias_logits", False)
    width = settings.count("encoder_ffn_dim")
    settings.check("decoder_ffn_dim", width)
    settings.check("num_hidden_layers", settings.count("encoder_layers", limit=LAYERS))
    copies = ["model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"]
    joint = settings.flag("share_encoder_decoder_embeddings", True)
    sides = [folder.table("model.shared.weight", *copies)] * 2 if joint else copies
    output = folder.output_table(sides[1])
    tied = output == sides[1]
    model = _chosen(
        "model", "transformer",
        dim=settings.count("d_model"), ffn_dim=width,
        encoder_layers=settings.count("encoder_layers", limit=LAYERS),
        decoder_layers=settings.count("decoder_layers", limit=LAYERS),
        activation=settings.activation("activation_function"),
        pre_norm=pre_norm, dropout=settings.get("dropout", 0.1),
        share_embeddings=_sharing(joint, tied),
        embedding_scale=None if settings.flag("scale_embedding", False) else 1.0,
        embedding_norm=embedding_norm, output_bias=True,
    )  # fmt: skip
    heads = [settings.count(f"{side}_attention_heads") for side in ("encoder", "decoder")]
    slots = [("encoder_attention", heads[0]), ("decoder_attention", heads[1])]
    slots = [("attention", heads[0])] if heads[0] == heads[1] else slots
    slots += [("cross_attention", heads[1])] if len(slots) > 1 else []
    attention = {
        slot: _chosen(
            "attention", "mha", num_heads=count, num_kv_heads=count,
            dropout=settings.get("attention_dropout", 0.0),
        )
        for slot, count in slots
    }  # fmt: skip
    attention.setdefault("attention", attention[slots[0][0]])
    longest = settings.count("max_position_embeddings", 1024, least=8, limit=100_000)
    if embedding_norm:
        position = _chosen("position", "learned", max_length=longest)
    elif kind == "m2m_100":
        first = settings.count("pad_token_id", 1, least=0, limit=10**9) + 1
        position = _chosen("position", "sinusoidal", layout="halves", first=first, endpoint=True)
    else:
        position = _chosen("position", "sinusoidal", layout="halves")
    rounded = kind in ("marian", "pegasus") and _has_other_sinusoids(folder, model["dim"])
    if rounded:
        position = _chosen("position", "learned", max_length=longest)
    weights = [
        Weight("source_embedding.table.weight", (sides[0],), side="source"),
        Weight("target_embedding.table.weight", (sides[1],), side="target"),
        Weight("head.linear.weight", (output,), side="target"),
    ]
    for stack, side in (("encoder", "source"), ("decoder", "target")):
        foreign = f"model.{stack}"
        if embedding_norm:
            weights += _module_weights(f"{side}_embedding.norm", f"{foreign}.layernorm_embedding")
            table = f"{foreign}.embed_positions.weight"
            weights.append(Weight(f"{stack}.position.table.weight", (table,), skipped=2))
        if rounded:
            table = f"{foreign}.embed_positions.weight"
            weights.append(Weight(f"{stack}.position.table.weight", (table,)))
        if pre_norm:
            weights += _module_weights(f"{stack}.norm", f"{foreign}.layer_norm")
        for number in range(model[f"{stack}_layers"]):
            layer = f"{stack}.layers.{number}", f"{foreign}.layers.{number}"
            weights += _bart_layer(*layer, cross=stack == "decoder")
    nodes = {"model": model, "position": position, **attention}
    unused = ["lm_head.weight", "model.shared.weight", *copies]
    unused += [f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder")]
    bias = None if kind == "m2m_100" else "final_logits_bias"
    return Family(nodes, weights, bias, tuple(unused))


def _has_other_sinusoids(folder: Folder, dim: int) -> bool:
    """Return True if a file holds other sinusoids than ours, such as those rounded to float16.

    It was trained with them, and transformers uses them.
    """
    tables = [folder.stored(f"model.{side}.embed_positions.weight") for side in _STACKS]
    scheme = SinusoidalPosition(Stack(dim, num_heads=1), "halves")
    for table in tables:
        if table is None or table.dim() != 2 or table.shape[1] != dim:
            return False
        sinusoids = scheme.embed(torch.zeros(1, *table.shape), torch.arange(len(table)))[0]
        if not torch.allclose(table.float(), sinusoids, rtol=0, atol=_ROUNDING):
            return True
    return False


def _bart_layer(layer: str, foreign: str, cross: bool) -> Iterator[Weight]:
    attentions = [("self_attention", "self_attn", "attend")]
    attentions += [("cross_attention", "encoder_attn", "cross")] if cross else []
    for mine, their, residual in attentions:
        for part, name in _BART_ATTENTION:
            yield from _module_weights(f"{layer}.{mine}.{part}", f"{foreign}.{their}.{name}")
        yield from _module_weights(f"{layer}.{residual}.norm", f"{foreign}.{their}_layer_norm")
    for part, name in _BART_LAYER.items():
        yield from _module_weights(f"{layer}.{part}", f"{foreign}.{name}")


_T5_ATTENTION = {"query": "q", "key": "k", "value": "v", "output": "o"}


def _t5(settings: Settings, folder: Folder) -> Family:
    """T5 1.0 and 1.1, Flan-T5 and mT5."""
    settings.check("layer_norm_epsilon", 1e-6)
    kind, _, name = settings.text("feed_forward_proj", "relu").rpartition("-")
    # their gated GELU is the approximation by a tanh, whatever its name
    name = "gelu_new" if kind and name == "gelu" else name
    activation = settings.activation("feed_forward_proj", name)
    if kind not in ("", "gated") or (kind and activation not in GATED):
        proj = settings.get("feed_forward_proj")
        raise UserError(f"{settings.file} has feed_forward_proj={proj!r}, which is not supported")
    dim, head_dim = settings.count("d_model"), settings.count("d_kv")
    copies = ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"]
    inputs = folder.table("shared.weight", *copies)
    output = folder.output_table(inputs)
    tied = output == inputs
    scaled = settings.flag("scale_decoder_outputs", settings.flag("tie_word_embeddings", True))
    scaled = scaled and settings.get("model_type") == "t5"
    layers = settings.count("num_layers", limit=LAYERS)
    model = _chosen(
        "model", "transformer", dim=dim, ffn_dim=settings.count("d_ff"), encoder_layers=layers,
        decoder_layers=settings.count("num_decoder_layers", layers, limit=LAYERS),
        activation=GATED[activation] if kind else activation, norm="rmsnorm", bias=False,
        dropout=settings.get("dropout_rate", 0.1), share_embeddings=_sharing(True, tied),
        embedding_scale=None if tied and scaled else 1.0, output_bias=True,
    )  # fmt: skip
    heads = settings.count("num_heads")
    attention = _chosen(
        "attention", "mha", num_heads=heads, num_kv_heads=heads, head_dim=head_dim, bias=False
    )
    position = _chosen(
        "position", "t5", num_buckets=settings.get("relative_attention_num_buckets", 32),
        max_distance=settings.get("relative_attention_max_distance", 128),
    )  # fmt: skip
    # a scaled output: of a tied table D^-0.5 of theirs, which our scale of embeddings undoes
    root = dim**-0.5 if scaled else 1.0
    table = root if tied else 1.0
    weights = [
        Weight("source_embedding.table.weight", (inputs,), table, side="source"),
        Weight("target_embedding.table.weight", (inputs,), table, side="target"),
        Weight("head.linear.weight", (output,), root, side="target"),
    ]
    for stack in ("encoder", "decoder"):
        first = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        weights.append(Weight(f"{stack}.position.table.weight", (first,)))
        weights.append(Weight(f"{stack}.norm.weight", (f"{stack}.final_layer_norm.weight",)))
        for number in range(model[f"{stack}_layers"]):
            layer = f"{stack}.layers.{number}", f"{stack}.block.{number}.layer"
            cross_scale = head_dim**0.5 if stack == "decoder" else None
            weights += _t5_layer(*layer, cross_scale, gated=bool(kind))
    unread = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    unused = ("lm_head.weight", "shared.weight", *copies, unread)
    nodes = {"model": model, "attention": attention, "position": position}
    return Family(nodes, weights, unused=unused)


def _t5_layer(layer: str, foreign: str, cross_scale: float | None, gated: bool) -> Iterator[Weight]:
    """Yield a layer's weights; T5 does not scale the scores of cross-attention, and we do."""
    attentions = [("self_attention", "SelfAttention", "attend", 1.0)]
    if cross_scale is not None:
        attentions.append(("cross_attention", "EncDecAttention", "cross", cross_scale))
    for number, (mine, their, residual, scale) in enumerate(attentions):
        for part, name in _T5_ATTENTION.items():
            factor = scale if part == "query" else 1.0
            matrix = f"{foreign}.{number}.{their}.{name}.weight"
            yield Weight(f"{layer}.{mine}.{part}.weight", (matrix,), factor)
        yield Weight(f"{layer}.{residual}.norm.weight", (f"{foreign}.{number}.layer_norm.weight",))
    last = f"{foreign}.{len(attentions)}"
    inner = ("wi_0", "wi_1") if gated else ("wi",)
    names = tuple(f"{last}.DenseReluDense.{name}.weight" for name in inner)
    yield Weight(f"{layer}.feedforward.inner.weight", names)
    yield Weight(f"{layer}.feedforward.outer.weight", (f"{last}.DenseReluDense.wo.weight",))
    yield Weight(f"{layer}.feed.norm.weight", (f"{last}.layer_norm.weight",))


def _t5gemma(settings: Settings, folder: Folder) -> Family:
    """T5Gemma without caps on scores and without windows."""
    sides = []
    for side in ("encoder", "decoder"):
        own = settings.within(side)
        own.check("attn_logit_softcapping", "null")
        own.check("attention_bias", False)
        own.check("rms_norm_eps", 1e-6)
        own.check("query_pre_attn_scalar", own.count("head_dim"))
        own.check("layer_types", ["full_attention"] * own.count("num_hidden_layers", limit=LAYERS))
        sides.append(own)
    encoder, decoder = sides
    for key in ("hidden_size", "intermediate_size", "hidden_activation", "head_dim"):
        decoder.check(key, encoder.get(key))
    activation = encoder.activation("hidden_activation")
    if activation not in GATED:
        raise UserError(f"{encoder.file} has hidden_activation={activation}, which is not gated")
    tables = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
    tied = folder.output_table(tables[1]) == tables[1]
    model = _chosen(
        "model", "transformer", dim=encoder.count("hidden_size"),
        ffn_dim=encoder.count("intermediate_size"), activation=GATED[activation],
        encoder_layers=encoder.count("num_hidden_layers", limit=LAYERS),
        decoder_layers=decoder.count("num_hidden_layers", limit=LAYERS), norm="rmsnorm", bias=False,
        branch_norm=True, dropout=settings.get("dropout_rate", 0.0),
        share_embeddings=_sharing(False, tied), output_bias=True,
        output_softcap=decoder.values.get("final_logit_softcapping"),
    )  # fmt: skip
    attention = {
        slot: _chosen(
            "attention", "mha", num_heads=stack.count("num_attention_heads"), bias=False,
            num_kv_heads=stack.count("num_key_value_heads"), head_dim=stack.count("head_dim"),
        )
        for slot, stack in (
            ("attention", encoder), ("decoder_attention", decoder), ("cross_attention", decoder)
        )
    }  # fmt: skip
    base = encoder.within("rope_parameters").number("rope_theta")
    position = _chosen("position", "rope", base=base)
    head = tables[1] if tied else "lm_head.out_proj.weight"
    weights = [Weight("head.linear.weight", (head,), side="target")]
    for stack, side, table in zip(("encoder", "decoder"), get_args(Side), tables, strict=True):
        weights.append(Weight(f"{side}_embedding.table.weight", (table,), side=side))
        weights.append(Weight(f"{stack}.norm.weight", (f"model.{stack}.norm.weight",), shift=1.0))
        for number in range(model[f"{stack}_layers"]):
            layer = f"{stack}.layers.{number}"
            weights += _t5gemma_layer(layer, f"model.{layer}", cross=stack == "decoder")
    return Family({"model": model, "position": position, **attention}, weights)


def _t5gemma_layer(layer: str, foreign: str, cross: bool) -> Iterator[Weight]:
    """Yield a layer's weights, whose norms lack 1."""
    attentions = [("self_attention", "self_attn", "attend")]
    attentions += [("cross_attention", "cross_attn", "cross")] if cross else []
    norms = [("feed", "feedforward")]
    for mine, attn, residual in attentions:
        norms.append((residual, attn))
        for part, name in _T5_ATTENTION.items():
            yield Weight(f"{layer}.{mine}.{part}.weight", (f"{foreign}.{attn}.{name}_proj.weight",))
    for residual, name in norms:
        for norm, prefix in (("norm", "pre"), ("branch_norm", "post")):
            foreign_name = f"{foreign}.{prefix}_{name}_layernorm.weight"
            yield Weight(f"{layer}.{residual}.{norm}.weight", (foreign_name,), shift=1.0)
    inner = f"{foreign}.mlp.gate_proj.weight", f"{foreign}.mlp.up_proj.weight"
    yield Weight(f"{layer}.feedforward.inner.weight", inner)
    yield Weight(f"{layer}.feedforward.outer.weight", (f"{foreign}.mlp.down_proj.weight",))


FAMILIES: dict[str, Callable[[Settings, Folder], Family]] = {
    **dict.fromkeys(("marian", "m2m_100", "bart", "mbart", "pegasus"), _bart),
    **dict.fromkeys(("t5", "mt5"), _t5),
    "t5gemma": _t5gemma,
}
"""Readers by `model_type`; NLLB is m2m_100, Flan-T5 is t5."""


def _chosen(group: str, name: str, **settings: Node) -> dict[str, Node]:
    """Return the node of a choice with these settings."""
    node: dict[str, Node] = {**choices(group)[name]}
    return node | settings


def _sharing(joint: bool, tied: bool) -> str:
    return ("all" if tied else "inputs") if joint else ("target" if tied else "none")


def _module_weights(module: str, foreign: str) -> Iterator[Weight]:
    """Yield the weight and bias of a module."""
    for part in _BIASES:
        yield Weight(f"{module}.{part}", (f"{foreign}.{part}",))
