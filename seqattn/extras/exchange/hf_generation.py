"""Recommended searches of Hugging Face models, in our terms."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from seqattn.checking import shown
from seqattn.errors import UserError
from seqattn.extras.exchange.families import Settings
from seqattn.extras.exchange.hf_folder import HFFolder
from seqattn.settings.choices import choices
from seqattn.settings.nodes import TARGET, Node, build, with_settings
from seqattn.tokens import BOS, EOS, PAD

_LONGEST = 10_000  # of `LengthLimit`
_CARRIED = {
    "num_beams", "length_penalty", "early_stopping", "max_length", "max_new_tokens", "min_length",
    "min_new_tokens", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "repetition_penalty",
    "bad_words_ids", "suppress_tokens", "do_sample", "temperature", "top_k", "top_p",
    "forced_bos_token_id", "forced_eos_token_id",
}  # fmt: skip
_HARMLESS = {
    "bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "use_cache",
    "cache_implementation", "cache_config", "max_cache_len", "return_dict_in_generate",
    "transformers_version", "_from_model_config", "remove_invalid_values", "low_memory",
    "is_assistant", "compile_config", "disable_compile", "continuous_batching_config",
    "prefill_chunk_size", "trust_remote_code",
}  # fmt: skip
"""Settings that change no output of a finite model; so do those whose names begin with `output_`
or speak of another model that assists."""
_SAMPLED = {"min_p": 0.0, "top_h": 1.0, "typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0}
_LEFT_OUT = {
    **_SAMPLED, "encoder_repetition_penalty": 1.0, "diversity_penalty": 0.0, "num_beam_groups": 1,
    "penalty_alpha": 0.0, "dola_layers": None, "exponential_decay_length_penalty": None,
    "begin_suppress_tokens": None, "sequence_bias": None, "guidance_scale": 1.0,
    "renormalize_logits": False, "constraints": None, "force_words_ids": None,
    "stop_strings": None, "max_time": None, "num_return_sequences": 1, "token_healing": False,
    "watermarking_config": None,
}  # fmt: skip
"""Settings that searches here lack, and their values without effect."""


class Recommended(NamedTuple):
    """The search that a folder recommends.

    Args:
        node: the node of the search.
        lacking: settings that it lacks, as `name=value`.
    """

    node: dict[str, Node]
    lacking: list[str]

    def __str__(self) -> str:
        """Return a line about what is lacking, "" if nothing is."""
        if not self.lacking:
            return ""
        return f"outputs may differ from transformers' without {', '.join(self.lacking)}"


def recommended_search(
    node: Mapping[str, Node], folder: HFFolder, rows: Sequence[int]
) -> Recommended:
    """Return the search that a folder recommends: of generation_config.json, else config.json.

    Args:
        node: the node of a search, whose other settings stay.
        folder: the folder.
        rows: for each id of ours the row of its vocabulary.

    Raises:
        UserError: if a setting has a value that is not supported.
    """
    values = folder.generation or folder.config
    file = folder.path / ("generation_config.json" if folder.generation else "config.json")
    settings = Settings(values, file)
    sampled, beams = settings.flag("do_sample", False), values.get("num_beams") or 1
    if sampled and beams == 1 and node.get(TARGET) == choices("generation")["beam"][TARGET]:
        common = {key: node[key] for key in ("processors", "limit", "workers") if key in node}
        node = {**choices("generation")["sampling"], **common}
    penalty = values.get("length_penalty")
    overrides: dict[str, Node] = {
        "beam_size": beams, "length_penalty": 1.0 if penalty is None else penalty,
        "early_stopping": values.get("early_stopping") is True,
    }  # fmt: skip
    if sampled:
        drawn = {"temperature": 1.0, "top_k": 50, "top_p": 1.0}  # without a word of the folder
        overrides |= drawn | {key: values[key] for key in drawn if values.get(key) is not None}
    overrides = {key: value for key, value in overrides.items() if key in node}
    limit = _limit(settings)
    overrides |= {"limit": limit} if limit else {}
    lacking: list[str] = []
    processors = dict(_processors(settings, rows, lacking))
    overrides |= {"processors": {**node.get("processors", {}), **processors}} if processors else {}
    lacking += _lacking(values, bool(folder.generation), sampled)
    if sampled and "temperature" not in node:
        lacking.append("do_sample=True")
    if "repetition_penalty" in processors and beams == 1:
        lacking.append("repetition_penalty of logits (log-probabilities here)")
    node = with_settings(node, overrides)
    try:
        build(node, "generation")
    except UserError as error:
        raise UserError(f"{file} has a setting that is not supported: {error}") from error
    return Recommended(node, lacking)


def _limit(settings: Settings) -> dict[str, Node]:
    """Return the limits of outputs; theirs count the mark that begins an output."""
    limit: dict[str, Node] = {}
    for longest, least, marks in (("max_length", "min_length", 1), ("max_new_tokens", "", 0)):
        if settings.values.get(longest) is not None:
            # a forced end is one token more, without which the output is the same
            forced = settings.values.get("forced_eos_token_id") is not None
            max_length = settings.count(longest, limit=10**9) - marks - forced
            limit |= {"ratio": 0.0, "extra": min(max(1, max_length), _LONGEST)}
        least = least or "min_new_tokens"
        if settings.values.get(least):
            limit["minimum"] = max(0, settings.count(least, limit=_LONGEST) - marks)
    return limit


def _processors(
    settings: Settings, rows: Sequence[int], lacking: list[str]
) -> Iterator[tuple[str, Node]]:
    """Yield the processors, and add words that the vocabulary lacks to `lacking`."""
    values, ids = settings.values, {}
    for token in (BOS, *range(len(rows) - 1, -1, -1)):  # the first id of a row, but for the begin
        ids[rows[token]] = token
    for key, name in (
        ("no_repeat_ngram_size", "no_repeat_ngram"),
        ("encoder_no_repeat_ngram_size", "encoder_no_repeat_ngram"),
    ):
        if values.get(key):
            yield name, {**choices("processor")[name][name], "size": values[key]}
    if values.get("repetition_penalty") not in (None, 1.0):
        part = choices("processor")["repetition_penalty"]["repetition_penalty"]
        end = rows[BOS] == rows[EOS]
        yield "repetition_penalty", {**part, "penalty": values["repetition_penalty"], "end": end}
    words = []
    for key in ("bad_words_ids", "suppress_tokens"):
        banned = values.get(key)
        if banned is None:
            continue
        tokens = isinstance(banned, list) and all(
            isinstance(token, int if key == "suppress_tokens" else list) for token in banned
        )
        if not tokens:
            raise UserError(f"{settings.file} has {key}={shown(banned)}, which must list tokens")
        for word in [[token] for token in banned] if key == "suppress_tokens" else banned:
            if not word or not all(isinstance(token, int) and token in ids for token in word):
                lacking.append(f"{key} {shown(word)}")
            elif (key, word) != ("bad_words_ids", [rows[EOS]]) and rows[PAD] not in word:
                words.append([ids[token] for token in word])
    if words:
        yield "bad_words", {**choices("processor")["bad_words"]["bad_words"], "ids": words}


def _lacking(values: Mapping[str, Any], every: bool, sampled: bool) -> Iterator[str]:
    """Yield settings that searches here lack. Args: every: also those that nobody knows."""
    for key, value in values.items():
        handled = key in _LEFT_OUT or key in _CARRIED or key in _HARMLESS
        unknown = not handled and every and not key.startswith("output_") and "assist" not in key
        matters = key in _LEFT_OUT and (sampled or key not in _SAMPLED)
        if (matters or unknown) and value not in (None, _LEFT_OUT.get(key), [], {}, False):
            yield f"{key}={shown(value)}"
    ends = values.get("eos_token_id")
    if isinstance(ends, list) and len(ends) > 1:
        yield f"eos_token_id={shown(ends)} (only the first)"
    if values.get("early_stopping") not in (None, True, False, "never"):
        yield f"early_stopping={shown(values['early_stopping'])}"
