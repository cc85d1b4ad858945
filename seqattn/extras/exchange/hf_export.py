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
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.bundle.bundle import Bundle
from seqattn.bundle.files import CARD
from seqattn.errors import UserError
from seqattn.extras.exchange.export_checks import Supported, attentions
from seqattn.extras.exchange.families import Family, family
from seqattn.extras.exchange.hf_config import CLASSES, LONGEST, Ids, generation_config, model_config
from seqattn.extras.exchange.hf_folder import CONFIG, WEIGHTS, HFFolder
from seqattn.extras.exchange.hf_import import FORBIDDEN, check_weights, fill
from seqattn.extras.exchange.hf_tokenizer_files import write_tokenizer
from seqattn.extras.exchange.hf_tokenizers import ImportedTokenizer
from seqattn.extras.exchange.hub_card import hub_card, left_out
from seqattn.extras.exchange.parity import TOLERANCE, check_ids, compared, expected, our_difference
from seqattn.models.transformer import Transformer
from seqattn.positions import LearnedPosition, RotaryPosition, SinusoidalPosition, T5Position
from seqattn.settings.assembly import Architecture, Vocabularies
from seqattn.storage import write_json
from seqattn.tokens import BOS, EOS, PAD, UNK

_MODEL_KEYS = (
    "pre_norm", "norm", "bias", "activation", "branch_norm", "embedding_norm", "share_embeddings",
    "output_softcap",
)  # fmt: skip
"""Settings of a model that its family decides."""
_ROWS = (
    "table.weight", "query.weight", "key.weight", "value.weight", "inner.weight", "linear.weight",
)  # fmt: skip
"""Weights with the channels of the residual stream along the second axis."""
_COLUMNS = "output.weight", "output.bias", "outer.weight", "outer.bias", "norm.weight", "norm.bias"
"""Weights with those channels along the first axis."""


_SUPPORTED = Supported(
    "transformers",
    [T5Position, LearnedPosition, SinusoidalPosition, RotaryPosition],
    "position=sinusoidal, learned, t5 or rope",
    [SoftmaxKernel],
    "attention=mha",
)


@dataclass(frozen=True)
class _Planned:
    """A folder to be written, with the names that its weights will have."""

    path: Path
    config: Mapping[str, Any]

    def table(self, *names: str) -> str:
        return names[0]

    def stored(self, name: str) -> None:
        return None

    def output_table(self, tied: str) -> str:
        return tied if self.config["tie_word_embeddings"] else "lm_head.weight"


def write_huggingface(bundle: Bundle, new: Path, license: str | None = None) -> dict[str, str]:
    """Write all files of an export, once `transformers` reproduces the bundle's scores.

    Args:
        bundle: the bundle.
        new: an empty directory.
        license: of the card, as `hub_card`.

    Returns:
        What was written and checked, for display.

    Raises:
        UserError: no family of transformers has a part of the bundle, or its scores differ.
    """
    model = _checked(bundle.model)
    kind = _kind(model)
    ids = _ids(model, kind)
    config = model_config(model, kind, ids)
    described = family(_Planned(new, config))
    _compare(model, described, kind)
    longest = config.get("max_position_embeddings", LONGEST)
    marian, code = write_tokenizer(bundle.tokenizer, bundle.path, ids.order, new, longest)
    write_json(new / CONFIG, config)
    searched = generation_config(bundle, ids, longest, config["use_cache"])
    write_json(new / "generation_config.json", searched)
    try:
        save_file(_tensors(model, described, ids), new / WEIGHTS, {"format": "pt"})
    except SafetensorError as error:
        raise UserError(f"cannot write {WEIGHTS}: {error}") from error
    (new / WEIGHTS).chmod((new / CONFIG).stat().st_mode)  # respects the user's umask
    missing = left_out(bundle)
    card = hub_card(bundle, _usage(bundle, marian, code), missing, license)
    (new / CARD).write_text(card, encoding="utf-8")
    rows = ids.rows if bundle.tokenizer.joint else [*range(bundle.tokenizer.source_size)]
    lacking = () if BOS in ids.order else (BOS,)
    exported = ImportedTokenizer(bundle.tokenizer, rows, ids.rows, lacking)
    name = f"bundle={bundle.path}"
    check_ids(new, exported, name, code)
    try:
        checked = compared(expected(HFFolder(new), exported), model, exported)
    except UserError as error:
        raise UserError(f"{name}: {error}") from error
    if checked.difference is None:
        _read_back(new, model, exported)
    title = f"{CLASSES[kind]} (model_type {kind})"
    return {"family": title, "checked": str(checked), "left out": "\n".join(missing)}


def _checked(model: nn.Module) -> Transformer:
    """Raise UserError for features that no family has."""
    checked = _SUPPORTED.check(model)
    if checked.config.encoder_dim not in (None, checked.config.dim):
        raise UserError("transformers has one width; train with model.encoder_dim=null")
    if any(
        part.kept_heads
        for stack in (checked.encoder, checked.decoder)
        for part in attentions(stack)
    ):
        raise UserError("transformers has no pruned heads; export the original bundle")
    return checked


def _kind(model: Transformer) -> str:
    """Return the `model_type` of a model, by its positions and norms."""
    position, pre_norm = model.encoder.position, model.config.pre_norm
    if isinstance(position, T5Position):
        tied = model.config.share_embeddings in ("all", "target")
        return "mt5" if tied and model.target_embedding.scale == 1 else "t5"  # not scaled there
    if isinstance(position, LearnedPosition):
        return "mbart" if pre_norm else "bart"
    if isinstance(position, SinusoidalPosition):
        if not pre_norm:
            return "marian"
        return "m2m_100" if position.endpoint else "pegasus"
    assert isinstance(position, RotaryPosition)
    return "t5gemma"


def _ids(model: Transformer, kind: str) -> Ids:
    """Return the ids of a model, ours as far as its family allows.

    A family without an output bias cannot forbid our begin, so that an imported model begins its
    outputs with the mark that its own did.
    """
    order, start = [*range(model.head.linear.out_features)], BOS
    bias = model.head.linear.bias
    if kind in ("t5", "mt5", "t5gemma", "m2m_100") and bias is not None:
        table = model.target_embedding.table.weight
        equal = (table == table[BOS]).all(dim=1).nonzero()[:, 0].tolist()
        candidates = [token for token in equal if token != BOS]
        candidates = [token for token in (EOS, PAD) if token in candidates] or candidates
        remaining_bias = bias.index_fill(0, torch.tensor([BOS], device=bias.device), 0.0)
        if not candidates or bias[BOS] > FORBIDDEN or remaining_bias.any():
            raise UserError(
                f"{CLASSES[kind]} has no output bias; train with model.output_bias=false, or an "
                "imported model with freeze=[embeddings,head]"
            )
        order.remove(BOS)
        start = candidates[0]
    if kind == "m2m_100":  # counts positions from the id of padding, which is 1
        first = BOS if BOS in order else order[3]
        marks = [first, PAD, EOS, UNK]
        order = [*marks, *(token for token in order if token not in marks)]
    return Ids(order, order.index(start))


def _compare(model: Transformer, described: Family, kind: str) -> None:
    """Raise UserError, with the overrides, for settings that a family does not have."""
    config, nodes = model.config, cast(Any, described.nodes)
    node, differing = nodes["model"], dict[str, str]()

    def compare(key: str, value: Any, needed: Any) -> None:
        if value != needed:
            differing[f"{key}={_yaml_text(value)}"] = f"{key}={_yaml_text(needed)}"

    for key in _MODEL_KEYS:
        # T5Gemma's tables are apart, so that a shared one is written twice
        if (kind, key) != ("t5gemma", "share_embeddings"):
            compare(f"model.{key}", getattr(config, key), node[key])
    scale = model.target_embedding.scale
    if config.share_embeddings in ("all", "target") and not math.isclose(scale, _scale(described)):
        compare("model.embedding_scale", config.embedding_scale, node["embedding_scale"])
    for key in ("first", "endpoint", "base", "scaling"):
        if key in nodes["position"]:
            value = getattr(model.encoder.position, key)
            compare(f"position.{key}", value, nodes["position"][key])
    for slot, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        node = nodes.get(f"{slot}_attention", nodes["attention"])
        width = node.get("head_dim") or config.dim // node["num_heads"]
        for part in attentions(stack):
            compare("attention.bias", part.output.bias is not None, node.get("bias", True))
            for key in ("num_heads", "num_kv_heads"):
                compare(f"attention.{key}", getattr(part, key), node[key])
            if part.head_dim != width:
                compare("attention.head_dim", part.head_dim, node.get("head_dim"))
    if differing:
        lacking, changes = ", ".join(differing), " ".join(differing.values())
        if kind == "t5gemma":
            raise UserError(
                "transformers has rotary positions only in T5Gemma, which has no "
                f"{lacking}; train with position=sinusoidal (Pegasus), or with {changes}"
            )
        raise UserError(f"{CLASSES[kind]} of transformers has no {lacking}; train with {changes}")


def _yaml_text(value: Any) -> str:
    return "null" if value is None else str(value).lower()


def _scale(described: Family) -> float:
    """Return the factor on embeddings of a family."""
    node: dict[str, Any] = cast(Any, described.nodes)["model"]
    scale = node["embedding_scale"]
    return float(math.sqrt(node["dim"]) if scale is None else scale)


def _tensors(model: Transformer, described: Family, ids: Ids) -> dict[str, Tensor]:
    """Return the weights by their names."""
    state = {name: tensor.detach().float().cpu() for name, tensor in model.state_dict().items()}
    position = model.encoder.position
    if isinstance(position, SinusoidalPosition) and position.layout == "interleaved":
        state = {name: _in_halves(name, tensor) for name, tensor in state.items()}
    tied = model.config.share_embeddings in ("all", "target")
    factor = model.target_embedding.scale / _scale(described)
    tensors: dict[str, Tensor] = {}
    for weight in described.weights:
        tensor = state[weight.name]
        if weight.side is not None:
            tensor = ids.select(tensor)
        if "_embedding.table." in weight.name:
            tensor = tensor * factor
        tensors |= weight.to_hf(tensor)
    if not tied:  # transformers ties the tables of both inputs only with the output's
        shared = [name for name in tensors if name.endswith("shared.weight")]
        copies = [name for name in described.unused if name.endswith("embed_tokens.weight")]
        tensors |= {copy: tensors[name].clone() for name in shared for copy in copies}
    if isinstance(position, SinusoidalPosition) and not position.endpoint:
        scheme = SinusoidalPosition(position.stack, "halves")
        nothing = torch.zeros(1, LONGEST, position.stack.dim)
        for stack in ("encoder", "decoder"):  # they would be computed, after a warning
            table = scheme.embed(nothing, torch.arange(LONGEST))[0].clone()
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


def _read_back(new: Path, model: Transformer, tokenizer: ImportedTokenizer) -> None:
    """Import the folder again, and compare log-probabilities with the bundle's."""
    folder = HFFolder(new)
    described = family(folder)
    again = Architecture.of(described.nodes).build(Vocabularies.of(tokenizer.tokenizer))
    check_weights(again, described, folder, tokenizer)
    fill(cast(Transformer, again), described, folder, tokenizer)
    difference = our_difference(model, cast(Transformer, again).eval(), tokenizer)
    if not difference < TOLERANCE:
        raise UserError(f"the written model says something else, by {difference:.2g} nats")


def _usage(bundle: Bundle, marian: bool, code: str) -> str:
    """Return instructions to run the model, in Markdown.

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
    return f"""Exported by seqattn {__version__}. Requires `transformers` and `torch`:

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("DIR")
model = AutoModelForSeq2SeqLM.from_pretrained("DIR")

batch = tokenizer({text}, return_tensors="pt")
length = {length}
output = model.generate(**batch, max_new_tokens=length)
print(tokenizer.decode(output[0, 1:], skip_special_tokens=True))
```
{note}"""
