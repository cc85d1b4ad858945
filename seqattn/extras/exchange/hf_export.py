"""Export of a bundle to a folder that `transformers` loads."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from seqattn import __version__
from seqattn.attention.heads import MultiHeadAttention
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.bundle.architecture import Architecture, Vocabularies
from seqattn.bundle.files import CARD
from seqattn.bundle.text_bundle import TextBundle
from seqattn.errors import UserError
from seqattn.extras.exchange.export_checks import attentions
from seqattn.extras.exchange.families import ACTIVATIONS, GATED, Family, family
from seqattn.extras.exchange.hf_folder import CONFIG, WEIGHTS, HFFolder
from seqattn.extras.exchange.hf_import import FORBIDDEN, check_weights, fill
from seqattn.extras.exchange.hf_tokenizer_files import write_tokenizer
from seqattn.extras.exchange.hf_tokenizers import ImportedTokenizer
from seqattn.extras.exchange.parity import TOLERANCE, check_ids, compared, expected, our_difference
from seqattn.generation.base import listed
from seqattn.generation.processors import NoRepeatNgram
from seqattn.models.head import Head
from seqattn.models.transformer import Transformer
from seqattn.positions import LearnedPosition, RotaryPosition, SinusoidalPosition, T5Position
from seqattn.storage import write_json
from seqattn.tokens import BOS, EOS, PAD, UNK

LONGEST = 1024
"""Number of positions that transformers computes for a scheme without a maximum length."""
_CLASSES = {
    "pegasus": "Pegasus",
    "marian": "Marian",
    "m2m_100": "M2M100",
    "bart": "Bart",
    "mbart": "MBart",
    "t5": "T5",
    "t5gemma": "T5Gemma",
}
_HEADS = {"marian": "MTModel"}
_MODEL_KEYS = (
    "pre_norm", "norm", "bias", "activation", "branch_norm", "embedding_norm", "share_embeddings",
)  # fmt: skip
"""Settings of a model that its family decides."""
_ROWS = (
    "table.weight", "query.weight", "key.weight", "value.weight", "inner.weight", "linear.weight",
)  # fmt: skip
"""Weights with the channels of the residual stream along the second axis."""
_COLUMNS = "output.weight", "output.bias", "outer.weight", "outer.bias", "norm.weight", "norm.bias"
"""Weights with those channels along the first axis."""


@dataclass(frozen=True)
class _Ids:
    """Ids of the model that is written.

    Args:
        order: our id for each of theirs; our begin may be missing.
        start: their id that begins an output.
    """

    order: list[int]
    start: int

    @property
    def rows(self) -> list[int]:
        """Their id for each of ours."""
        places = {own: row for row, own in enumerate(self.order)}
        return [places.get(own, self.start) for own in range(max(self.order) + 1)]

    def select(self, tensor: Tensor) -> Tensor:
        """Return the rows of a tensor in their order; only a joint vocabulary is reordered."""
        return tensor if self.order == [*range(len(self.order))] else tensor[self.order]


@dataclass(frozen=True)
class _Planned:
    """A folder to be written, with the names that its weights will have."""

    path: Path
    config: Mapping[str, Any]

    def table(self, *names: str) -> str:
        return names[0]

    def output_table(self, tied: str) -> str:
        return tied if self.config["tie_word_embeddings"] else "lm_head.weight"


def write_huggingface(bundle: TextBundle, new: Path) -> dict[str, str]:
    """Write all files of an export, once `transformers` reproduces the bundle's scores.

    Args:
        bundle: the bundle.
        new: an empty directory.

    Returns:
        What was written and checked, for display.

    Raises:
        UserError: no family of transformers has a part of the bundle, or its scores differ.
    """
    model = _checked(bundle.model)
    kind = _kind(model)
    ids = _ids(model, kind)
    config = _config(model, kind, ids)
    described = family(_Planned(new, config))
    _compare(model, described, kind)
    longest = config.get("max_position_embeddings", LONGEST)
    marian, code = write_tokenizer(bundle.tokenizer, bundle.path, ids.order, new, longest)
    write_json(new / CONFIG, config)
    searched = _generation(bundle, ids, longest, config["use_cache"])
    write_json(new / "generation_config.json", searched)
    try:
        save_file(_tensors(model, described, ids), new / WEIGHTS, {"format": "pt"})
    except SafetensorError as error:
        raise UserError(f"cannot write {WEIGHTS}: {error}") from error
    (new / WEIGHTS).chmod((new / CONFIG).stat().st_mode)  # respects the user's umask
    (new / CARD).write_text(_card(bundle, marian, code), encoding="utf-8")
    rows = ids.rows if bundle.tokenizer.joint else [*range(bundle.tokenizer.source_size)]
    lacking = () if BOS in ids.order else (BOS,)
    theirs = ImportedTokenizer(bundle.tokenizer, rows, ids.rows, lacking)
    name = f"bundle={bundle.path}"
    check_ids(new, theirs, name, code)
    try:
        checked = compared(expected(HFFolder(new), theirs), model, theirs)
    except UserError as error:
        raise UserError(f"{name}: {error}") from error
    if checked.difference is None:
        _read_back(new, model, theirs)
    return {"family": f"{_CLASSES[kind]} (model_type {kind})", "checked": str(checked)}


def _checked(model: nn.Module) -> Transformer:
    """Raise UserError for features that no family has."""
    if type(model) is not Transformer:
        kind = type(model).__name__
        raise UserError(f"transformers has no {kind}; train with model=transformer")
    if type(model.head) is not Head:
        raise UserError("transformers has no copying; train with model.copy=false")
    if model.config.encoder_dim not in (None, model.config.dim):
        raise UserError("transformers has one width; train with model.encoder_dim=null")
    stacks = {"encoder": model.encoder, "decoder": model.decoder}
    for name, stack in stacks.items():
        if not len(stack.layers):
            raise UserError(
                f"transformers needs at least one layer; train with model.{name}_layers=1"
            )
        for part in attentions(stack):
            kernel = getattr(part, "kernel", part)
            if type(part) is not MultiHeadAttention or type(kernel) is not SoftmaxKernel:
                raise UserError(
                    f"transformers has no {type(kernel).__name__} in the {name}; train with "
                    "attention=mha"
                )
            if part.kept_heads is not None:
                raise UserError("transformers has no pruned heads; export the original bundle")
    return model


def _kind(model: Transformer) -> str:
    """Return the `model_type` of a model, by its positions and norms."""
    position, pre_norm = model.encoder.position, model.config.pre_norm
    if isinstance(position, T5Position):
        return "t5"
    if isinstance(position, LearnedPosition):
        return "mbart" if pre_norm else "bart"
    if isinstance(position, SinusoidalPosition):
        if not pre_norm:
            return "marian"
        return "m2m_100" if position.endpoint else "pegasus"
    if isinstance(position, RotaryPosition):
        return "t5gemma"
    raise UserError(
        f"transformers has no encoder-decoder with {type(position).__name__}; train with "
        "position=sinusoidal, learned, t5 or rope"
    )


def _ids(model: Transformer, kind: str) -> _Ids:
    """Return the ids of a model, ours as far as its family allows.

    A family without an output bias cannot forbid our begin, so that an imported model begins its
    outputs with the mark that its own did.
    """
    order, start = [*range(model.head.linear.out_features)], BOS
    bias = model.head.linear.bias
    if kind in ("t5", "t5gemma", "m2m_100") and bias is not None:
        table = model.target_embedding.table.weight
        same = [own for own in (PAD, EOS) if torch.equal(table[own], table[BOS])]
        only = torch.zeros_like(bias).index_fill_(
            0, torch.tensor([BOS], device=bias.device), FORBIDDEN
        )
        if not same or not torch.equal(bias, only):
            raise UserError(
                f"{_CLASSES[kind]} has no output bias; train with model.output_bias=false, or an "
                "imported model with freeze=[embeddings,head]"
            )
        order.remove(BOS)
        start = same[-1]
    if kind == "m2m_100":  # counts positions from the id of padding, which is 1
        first = BOS if BOS in order else order[3]
        marks = [first, PAD, EOS, UNK]
        order = [*marks, *(own for own in order if own not in marks)]
    return _Ids(order, order.index(start))


def _config(model: Transformer, kind: str, ids: _Ids) -> dict[str, Any]:
    """Return the content of config.json."""
    own, position = model.config, cast(Any, model.encoder.position)
    share, dim = own.share_embeddings, own.dim
    first = [attentions(stack)[0] for stack in (model.encoder, model.decoder)]
    row = ids.rows
    common = {
        "architectures": [_CLASSES[kind] + _HEADS.get(kind, "ForConditionalGeneration")],
        "model_type": kind, "is_encoder_decoder": True, "d_model": dim,
        "use_cache": _caches(model, kind),
        "vocab_size": len(ids.order), "tie_word_embeddings": share in ("all", "target"),
        "pad_token_id": row[PAD], "eos_token_id": row[EOS], "decoder_start_token_id": ids.start,
        "bos_token_id": row[BOS], "forced_eos_token_id": None, "dtype": "float32",
    }  # fmt: skip
    if kind == "t5":
        gated = {ours: f"gated-{_named(plain)}" for plain, ours in GATED.items()}
        return {
            **common, "d_ff": own.ffn_dim, "d_kv": first[0].head_dim,
            "num_layers": own.encoder_layers, "num_decoder_layers": own.decoder_layers,
            "num_heads": first[0].num_heads, "dropout_rate": own.dropout,
            "layer_norm_epsilon": 1e-6,
            "feed_forward_proj": gated.get(own.activation) or _named(own.activation),
            "relative_attention_num_buckets": position.table.num_embeddings,
            "relative_attention_max_distance": position.max_distance,
        }  # fmt: skip
    if kind == "t5gemma":
        sides = {
            side: {**common, **_gemma(model, part, count)}
            for side, part, count in zip(
                ("encoder", "decoder"), first, (own.encoder_layers, own.decoder_layers)
            )
        }
        return {**common, **sides, "dropout_rate": own.dropout, "attention_dropout": 0.0}
    sizes = len(ids.order), model.source_embedding.table.num_embeddings
    apart = {"vocab_size": sizes[1], "decoder_vocab_size": sizes[0]}
    joint = share in ("all", "inputs")
    return {
        **common, **({"share_encoder_decoder_embeddings": joint} if kind == "marian" else {}),
        **(apart if kind == "marian" else {}),
        "encoder_layers": own.encoder_layers, "decoder_layers": own.decoder_layers,
        "encoder_ffn_dim": own.ffn_dim, "decoder_ffn_dim": own.ffn_dim,
        "encoder_attention_heads": first[0].num_heads,
        "decoder_attention_heads": first[1].num_heads,
        "activation_function": _named(own.activation), "dropout": own.dropout,
        "attention_dropout": 0.0, "activation_dropout": 0.0,
        "scale_embedding": model.target_embedding.scale != 1.0,
        "max_position_embeddings": position.max_length or LONGEST,
    }  # fmt: skip


def _gemma(model: Transformer, first: MultiHeadAttention, layers: int) -> dict[str, Any]:
    """Return the settings of one side of a T5Gemma, with `first` of its attentions.

    It has no layers with a window, for which transformers needs one nevertheless.
    """
    own, base = model.config, cast(RotaryPosition, model.encoder.position).base
    activation = own.activation if own.activation in GATED.values() else "geglu_tanh"
    return {
        "model_type": "t5_gemma_module", "hidden_size": own.dim, "intermediate_size": own.ffn_dim,
        "num_hidden_layers": layers, "num_attention_heads": first.num_heads,
        "num_key_value_heads": first.num_kv_heads, "head_dim": first.head_dim,
        "query_pre_attn_scalar": first.head_dim, "hidden_activation": _named(activation),
        "max_position_embeddings": LONGEST, "rms_norm_eps": 1e-6, "attention_bias": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": base}, "rope_theta": base,
        "layer_types": ["full_attention"] * layers, "sliding_window": LONGEST,
        "attn_logit_softcapping": None, "final_logit_softcapping": None,
    }  # fmt: skip


def _caches(model: Transformer, kind: str) -> bool:
    """Return False for a T5 whose decoder is deeper, which transformers 5 cannot cache."""
    return kind != "t5" or model.config.decoder_layers <= model.config.encoder_layers


def _named(activation: str) -> str:
    """Return their name of an activation, ours without its gate if they have none."""
    names = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    plain = {gated: ours for ours, gated in GATED.items()}
    return names[plain.get(activation, activation)]


def _compare(model: Transformer, described: Family, kind: str) -> None:
    """Raise UserError, with the overrides, for settings that a family does not have."""
    own, nodes = model.config, cast(Any, described.nodes)
    node, differing = nodes["model"], dict[str, str]()

    def compare(key: str, value: Any, needed: Any) -> None:
        if value != needed:
            differing[f"{key}={_typed(value)}"] = f"{key}={_typed(needed)}"

    for key in _MODEL_KEYS:
        # T5Gemma's tables are apart, so that a shared one is written twice
        if (kind, key) != ("t5gemma", "share_embeddings"):
            compare(f"model.{key}", getattr(own, key), node[key])
    scale = model.target_embedding.scale
    if own.share_embeddings in ("all", "target") and not math.isclose(scale, _scale(described)):
        compare("model.embedding_scale", own.embedding_scale, node["embedding_scale"])
    for key in ("first", "endpoint", "base", "scaling"):
        if key in nodes["position"]:
            value = getattr(model.encoder.position, key)
            compare(f"position.{key}", value, nodes["position"][key])
    for slot, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        node = nodes.get(f"{slot}_attention", nodes["attention"])
        width = node.get("head_dim") or own.dim // node["num_heads"]
        for part in attentions(stack):
            compare("attention.bias", part.output.bias is not None, node.get("bias", True))
            for key in ("num_heads", "num_kv_heads"):
                compare(f"attention.{key}", getattr(part, key), node[key])
            if part.head_dim != width:
                compare("attention.head_dim", part.head_dim, node.get("head_dim"))
    if differing:
        other = ", or with position=sinusoidal" if kind == "t5gemma" else ""
        raise UserError(
            f"{_CLASSES[kind]} of transformers has no {', '.join(differing)}; train with "
            f"{' '.join(differing.values())}{other}"
        )


def _typed(value: Any) -> str:
    return "null" if value is None else str(value).lower()


def _scale(described: Family) -> float:
    """Return the factor on embeddings of a family."""
    node: dict[str, Any] = cast(Any, described.nodes)["model"]
    scale = node["embedding_scale"]
    return float(math.sqrt(node["dim"]) if scale is None else scale)


def _tensors(model: Transformer, described: Family, ids: _Ids) -> dict[str, Tensor]:
    """Return the weights by their names."""
    state = {name: one.detach().float().cpu() for name, one in model.state_dict().items()}
    position = model.encoder.position
    if isinstance(position, SinusoidalPosition) and position.layout == "interleaved":
        state = {name: _in_halves(name, tensor) for name, tensor in state.items()}
    tied = model.config.share_embeddings in ("all", "target")
    factor = model.target_embedding.scale / _scale(described)
    tensors: dict[str, Tensor] = {}
    for weight in described.weights:
        tensor = state[weight.ours]
        if weight.side is not None:
            tensor = ids.select(tensor)
        if "_embedding.table." in weight.ours:
            tensor = tensor * factor
        tensors |= weight.to_hf(tensor)
    if not tied:  # transformers ties the tables of both inputs only with the output's
        shared = [name for name in tensors if name.endswith("shared.weight")]
        copies = [name for name in described.unused if name.endswith("embed_tokens.weight")]
        tensors |= {copy: tensors[name].clone() for name in shared for copy in copies}
    if isinstance(position, SinusoidalPosition) and not position.endpoint:
        own = SinusoidalPosition(position.stack, "halves")
        nothing = torch.zeros(1, LONGEST, position.stack.dim)
        for stack in ("encoder", "decoder"):  # they would be computed, after a warning
            table = own.embed(nothing, torch.arange(LONGEST))[0].clone()
            tensors[f"model.{stack}.embed_positions.weight"] = table
    if described.output_bias:
        bias = state.get("head.linear.bias", torch.zeros(len(ids.order)))
        tensors[described.output_bias] = ids.select(bias)[None].clone()
    return tensors


def _in_halves(name: str, tensor: Tensor) -> Tensor:
    """Return a weight with the even channels of the residual stream before the odd ones."""
    if name.endswith(_ROWS):
        return torch.cat([tensor[:, ::2], tensor[:, 1::2]], dim=1)
    if name.endswith(_COLUMNS):
        return torch.cat([tensor[::2], tensor[1::2]])
    return tensor


def _read_back(new: Path, model: Transformer, theirs: ImportedTokenizer) -> None:
    """Import the folder again, and compare log-probabilities with the bundle's."""
    folder = HFFolder(new)
    described = family(folder)
    again = Architecture.of(described.nodes).build(Vocabularies.of(theirs.tokenizer))
    check_weights(again, described, folder, theirs)
    fill(cast(Transformer, again), described, folder, theirs)
    difference = our_difference(model, cast(Transformer, again).eval(), theirs)
    if not difference < TOLERANCE:
        raise UserError(f"the written model says something else, by {difference:.2g} nats")


def _generation(bundle: TextBundle, ids: _Ids, longest: int, use_cache: bool) -> dict[str, Any]:
    """Return the content of generation_config.json."""
    search: Any = bundle.search()
    row, begin = ids.rows, bundle.tokenizer.target_begin
    if len(begin) > 1:
        raise UserError(
            f"transformers forces one piece to begin outputs, got {len(begin)}; import with one "
            "target_begin"
        )
    settings = {
        "pad_token_id": row[PAD], "bos_token_id": row[BOS], "eos_token_id": row[EOS],
        "decoder_start_token_id": ids.start, "bad_words_ids": [[row[PAD]]],
        "max_new_tokens": min(longest, 512), "num_beams": getattr(search, "beam_size", 1),
        "length_penalty": getattr(search, "length_penalty", 1.0),
        "early_stopping": getattr(search, "early_stopping", False),
    }  # fmt: skip
    settings |= {} if use_cache else {"use_cache": False}
    settings |= {"forced_bos_token_id": row[begin[0]]} if begin else {}
    settings |= {"min_new_tokens": search.limit.minimum} if search.limit.minimum else {}
    for one in listed(search.processors):
        if isinstance(one, NoRepeatNgram):
            settings["no_repeat_ngram_size"] = one.size
    return settings


def _card(bundle: TextBundle, marian: bool, code: str) -> str:
    """Return instructions to run the model, as a Markdown page.

    Args:
        bundle: the bundle.
        marian: its tokenizer is a `MarianTokenizer`.
        code: begins each text, "" for nothing.
    """
    limit = bundle.search().limit
    text = f'"{code} " + "TEXT"' if code else '"TEXT"'
    length = f'max(1, int({limit.ratio:g} * batch["input_ids"].shape[1]) + {limit.extra})'
    note = (
        "The tokenizer is a `MarianTokenizer`, which needs sentencepiece; if sacremoses is "
        "installed, it changes the punctuation of texts, which the model was not trained with."
        if marian
        else ""
    )
    return f"""---
library_name: transformers
---

# {bundle.config.get("name", "model")}

Exported by seqattn {__version__}. Requires `transformers` and `torch`:

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("DIR")
model = AutoModelForSeq2SeqLM.from_pretrained("DIR")

batch = tokenizer({text}, return_tensors="pt")
length = {length}
output = model.generate(**batch, max_new_tokens=length)
print(tokenizer.decode(output[0], skip_special_tokens=True))
```
{note}
"""
