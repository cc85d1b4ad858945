"""Configuration files of a model that is exported to `transformers`."""

from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor

from seqattn.attention.heads import MultiHeadAttention
from seqattn.bundle.bundle import Bundle
from seqattn.errors import UserError
from seqattn.extras.exchange.export_checks import attentions
from seqattn.extras.exchange.families import ACTIVATIONS, GATED
from seqattn.generation.base import listed
from seqattn.generation.processors import (
    BadWords,
    EncoderNoRepeatNgram,
    NoRepeatNgram,
    RepetitionPenalty,
)
from seqattn.generation.sampling import Sampling
from seqattn.models.transformer import Transformer
from seqattn.positions import RotaryPosition
from seqattn.tokens import BOS, EOS, PAD

LONGEST = 1024
"""Number of positions that transformers computes for a scheme without a maximum length."""
CLASSES = {
    "pegasus": "Pegasus",
    "marian": "Marian",
    "m2m_100": "M2M100",
    "bart": "Bart",
    "mbart": "MBart",
    "t5": "T5",
    "mt5": "MT5",
    "t5gemma": "T5Gemma",
}
_HEADS = {"marian": "MTModel"}


@dataclass(frozen=True)
class Ids:
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
        row_of = {token: row for row, token in enumerate(self.order)}
        return [row_of.get(token, self.start) for token in range(max(self.order) + 1)]

    def select(self, tensor: Tensor) -> Tensor:
        """Return the rows of a tensor in their order; only a joint vocabulary is reordered."""
        return tensor if self.order == [*range(len(self.order))] else tensor[self.order]


def model_config(model: Transformer, kind: str, ids: Ids) -> dict[str, Any]:
    """Return the content of config.json."""
    config, position = model.config, cast(Any, model.encoder.position)
    share, dim = config.share_embeddings, config.dim
    first = [attentions(stack)[0] for stack in (model.encoder, model.decoder)]
    row, source_size = ids.rows, len(ids.select(model.source_embedding.table.weight))
    common = {
        "architectures": [CLASSES[kind] + _HEADS.get(kind, "ForConditionalGeneration")],
        "model_type": kind, "is_encoder_decoder": True, "d_model": dim,
        "use_cache": _caches(model, kind),
        "vocab_size": len(ids.order), "tie_word_embeddings": share in ("all", "target"),
        "pad_token_id": row[PAD], "eos_token_id": row[EOS], "decoder_start_token_id": ids.start,
        "bos_token_id": row[BOS], "forced_eos_token_id": None, "dtype": "float32",
    }  # fmt: skip
    if kind in ("t5", "mt5"):
        gated = {name: f"gated-{_foreign_name(plain)}" for plain, name in GATED.items()}
        return {
            **common, "d_ff": config.ffn_dim, "d_kv": first[0].head_dim,
            "num_layers": config.encoder_layers, "num_decoder_layers": config.decoder_layers,
            "num_heads": first[0].num_heads, "dropout_rate": config.dropout,
            "layer_norm_epsilon": 1e-6,
            "feed_forward_proj": gated.get(config.activation) or _foreign_name(config.activation),
            "relative_attention_num_buckets": position.table.num_embeddings,
            "relative_attention_max_distance": position.max_distance,
        }  # fmt: skip
    if kind == "t5gemma":
        encoder, decoder = (
            {**common, **_gemma(model, part, count)}
            for part, count in zip(first, (config.encoder_layers, config.decoder_layers))
        )
        sides = {"encoder": {**encoder, "vocab_size": source_size}, "decoder": decoder}
        return {**common, **sides, "dropout_rate": config.dropout, "attention_dropout": 0.0}
    apart = {"vocab_size": source_size, "decoder_vocab_size": len(ids.order)}
    joint = share in ("all", "inputs")
    return {
        **common, **({"share_encoder_decoder_embeddings": joint} if kind == "marian" else {}),
        **(apart if kind == "marian" else {}),
        "encoder_layers": config.encoder_layers, "decoder_layers": config.decoder_layers,
        "encoder_ffn_dim": config.ffn_dim, "decoder_ffn_dim": config.ffn_dim,
        "encoder_attention_heads": first[0].num_heads,
        "decoder_attention_heads": first[1].num_heads,
        "activation_function": _foreign_name(config.activation), "dropout": config.dropout,
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
        "query_pre_attn_scalar": first.head_dim, "hidden_activation": _foreign_name(activation),
        "max_position_embeddings": LONGEST, "rms_norm_eps": 1e-6, "attention_bias": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": base}, "rope_theta": base,
        "layer_types": ["full_attention"] * layers, "sliding_window": LONGEST,
        "attn_logit_softcapping": None, "final_logit_softcapping": own.output_softcap,
    }  # fmt: skip


def _caches(model: Transformer, kind: str) -> bool:
    """Return False for a T5 whose decoder is deeper, which transformers 5 cannot cache."""
    return kind not in ("t5", "mt5") or model.config.decoder_layers <= model.config.encoder_layers


def _foreign_name(activation: str) -> str:
    """Return their name of an activation, ours without its gate if they have none."""
    names = {name: foreign for foreign, name in reversed(ACTIVATIONS.items())}
    plain = {gated: name for name, gated in GATED.items()}
    return names[plain.get(activation, activation)]


def generation_config(bundle: Bundle, ids: Ids, longest: int, use_cache: bool) -> dict[str, Any]:
    """Return the content of generation_config.json."""
    search: Any = bundle.search()
    row, prefix = ids.rows, bundle.tokenizer.target_begin
    if len(prefix) > 1:
        raise UserError(
            f"transformers forces one piece to begin outputs, got {len(prefix)}; import with one "
            "target_begin"
        )
    max_length = 512 if search.limit.ratio else max(1, search.limit.extra)
    settings: dict[str, Any] = {
        "pad_token_id": row[PAD], "bos_token_id": row[BOS], "eos_token_id": row[EOS],
        "decoder_start_token_id": ids.start, "bad_words_ids": [[row[PAD]]],
        # theirs counts the mark that begins an output, and gives way to max_new_tokens
        "max_length": min(longest, max_length) + 1, "num_beams": getattr(search, "beam_size", 1),
        "length_penalty": getattr(search, "length_penalty", 1.0),
        "early_stopping": getattr(search, "early_stopping", False),
    }  # fmt: skip
    settings |= {} if use_cache else {"use_cache": False}
    settings |= {"forced_bos_token_id": row[prefix[0]]} if prefix else {}
    settings |= {"min_length": search.limit.minimum + 1} if search.limit.minimum else {}
    if isinstance(search, Sampling):
        sampled = {"temperature": search.temperature, "top_k": search.top_k, "top_p": search.top_p}
        settings |= {"do_sample": True, **sampled}
    processors = listed(search.processors)
    for processor in [*processors, *(later for first in processors for later in _then(first))]:
        if isinstance(processor, NoRepeatNgram):
            settings["no_repeat_ngram_size"] = processor.size
        if isinstance(processor, EncoderNoRepeatNgram):
            settings["encoder_no_repeat_ngram_size"] = processor.size
        if isinstance(processor, RepetitionPenalty):
            settings["repetition_penalty"] = processor.penalty
        if isinstance(processor, BadWords):
            settings["bad_words_ids"] += [[row[token] for token in word] for word in processor.ids]
    return settings


def _then(processor: Any) -> Any:
    """Return the processors that a forced beginning puts off."""
    return getattr(processor, "then", ())
