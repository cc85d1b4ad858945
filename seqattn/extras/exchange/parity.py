"""Comparison of an imported model with what `transformers` computes."""

import inspect
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqattn.checking import shown
from seqattn.errors import UserError
from seqattn.extras.exchange.hf_folder import HFFolder, one_line
from seqattn.extras.exchange.hf_tokenizers import ImportedTokenizer
from seqattn.generation.base import inference
from seqattn.models.base import Seq2SeqModel
from seqattn.tokens import BOS, EOS, PAD, RESERVED

TOLERANCE = 1e-4
"""Largest difference of two log-probabilities in float32, in nats, and as a share of them."""
_PAIRS, _LONGEST = 6, 20
_LARGEST = 10**7
"""Largest whole number, and length of a text, of a configuration that `transformers` gets."""
_LATER = "decoder_start_token_id", "scale_decoder_outputs", "tie_word_embeddings", "vocab_size"
"""Settings that some of its classes take without naming them."""
_LINES = (
    "The committee will meet again on 14 March 2025, won't it?",
    "Zwölf Boxkämpfer jagten Eva quer über den Sylter Deich.",
    "Le cœur a ses raisons que la raison ne connaît point.",
)
_SPELT = *_LINES, "Two ½  cups of ﬁne ㌔, 中文 ☃ <b>"
"""Lines whose ids are compared: also some that a normalization changes."""


@dataclass(frozen=True)
class Comparison:
    """The largest difference of two log-probabilities, in nats; None if it is unknown.

    `unknown` says what else could not be compared, "" for nothing.
    """

    difference: float | None = None
    pairs: int = 0
    unknown: str = ""

    def __str__(self) -> str:
        if self.difference is None:
            return (
                "names and shapes; install transformers to compare log-probabilities and ids of "
                "texts, too"
            )
        return (
            f"{self.pairs} pairs: no log-probability differs from that of transformers "
            f"{version('transformers')} by more than {self.difference:.1g} nats{self.unknown}"
        )


class Expected(NamedTuple):
    """Pairs of our ids, and what `transformers` computes for them."""

    sources: list[list[int]]
    """With the end."""
    targets: list[list[int]]
    """Without marks."""
    log_probabilities: Tensor
    """(B, T, V) of their vocabulary, in nats."""


def expected(folder: HFFolder, imported: ImportedTokenizer) -> Expected | None:
    """Compute log-probabilities of random and of real pairs; None without `transformers`."""
    if not has_transformers():
        return None
    longest = folder.config.get("max_position_embeddings")
    sources, targets = _pairs(imported, longest if isinstance(longest, int) else _LONGEST)
    log_probabilities = hf_log_probabilities(load_hf(folder.path), imported, sources, targets)
    return Expected(sources, targets, log_probabilities)


def compared(
    pairs: Expected | None, model: Seq2SeqModel, imported: ImportedTokenizer
) -> Comparison:
    """Compare a model with what is expected of it.

    Raises:
        UserError: if a log-probability differs by more than `TOLERANCE`.
    """
    if pairs is None:
        return Comparison()
    largest = 0.0
    spoken = [token for token in range(len(imported.target_rows)) if token not in imported.lacking]
    rows = [imported.target_rows[token] for token in spoken]
    computed = our_log_probabilities(model, pairs.sources, pairs.targets)
    for own, foreign, target in zip(computed, pairs.log_probabilities, pairs.targets, strict=True):
        length = len(target) + 1
        their = foreign[:length, rows]
        gap = (own[:length, spoken] - their).abs()
        largest = max(largest, float(gap.max()))
        if not (gap <= TOLERANCE * their.abs().clamp(min=1)).all():
            raise UserError(
                f"log-probabilities differ from those of transformers by {float(gap.max()):.2g} "
                "nats; the model has a setting that is not supported"
            )
    return Comparison(largest, len(pairs.targets))


def check_ids(folder: Path, exported: ImportedTokenizer, name: str, code: str) -> None:
    """Check that `transformers`, if installed, gives real lines the same ids.

    Args:
        folder: holds the tokenizer's files.
        exported: our tokenizer, and the rows of its ids.
        name: of the model, for messages.
        code: begins each of their texts, "" for nothing.

    Raises:
        UserError: if the ids differ.
    """
    if has_transformers():
        texts = [f"{code} {line}" if code else line for line in _SPELT]
        foreign = _load_tokenizer(folder)(texts)["input_ids"]
        ids = exported.tokenizer.encode_source(_SPELT)
        _check_same(foreign, ids, exported.rows, name)


def check_imported_ids(folder: Path, imported: ImportedTokenizer, chosen: bool) -> str:
    """Check that the tokenizer of a folder, by `transformers`, gives real lines the same ids.

    Args:
        folder: holds the tokenizer's files.
        imported: our tokenizer, and the rows of its ids.
        chosen: the user says what begins a source.

    Returns:
        Why they were not compared; "" if they were.

    Raises:
        UserError: if the ids differ.
    """
    tokenizer, name = imported.tokenizer, f"source={folder}"
    try:
        foreign = _load_tokenizer(folder)
        source = foreign([*_SPELT])["input_ids"]
        # codes of a target are forced, and its pieces are those of a source
        coded = hasattr(foreign, "tgt_lang")
        target = [] if coded else foreign(text_target=[*_SPELT])["input_ids"]
    except Exception as error:  # it checks files by errors of many kinds
        reason = one_line(error)
        return f"; ids of texts not compared: transformers cannot load the tokenizer ({reason})"
    ids = tokenizer.encode_source(_SPELT)
    _check_same(source, ids, imported.rows, name, tokenizer.source_begin if chosen else None)
    if target:
        ids = tokenizer.encode_target(_SPELT)
        _check_same(target, ids, imported.target_rows, name, tokenizer.target_begin)
    return ""


def _check_same(
    foreign: list[list[int]],
    encoded: list[list[int]],
    rows: list[int],
    name: str,
    prefix: Sequence[int] | None = None,
) -> None:
    """Raise UserError for ids that differ, but for marks before a text. Args: prefix: ours."""
    for line, their, ids in zip(_SPELT, foreign, encoded, strict=True):
        expected = [rows[token] for token in ids[len(prefix or ()) :]]
        if (their if prefix is None else their[-len(expected) :]) != expected:
            raise UserError(
                f"{name}: transformers gives {line!r} other ids; it has a tokenizer that is not "
                "supported"
            )


def has_transformers() -> bool:
    """Return True if `transformers` is installed."""
    try:
        return bool(version("transformers"))
    except PackageNotFoundError:
        return False


def _load_tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = {"config": _config(folder), "local_files_only": True}
        return AutoTokenizer.from_pretrained(folder, **settings)


def our_log_probabilities(
    model: Seq2SeqModel, sources: list[list[int]], targets: list[list[int]]
) -> Tensor:
    """Return log-probabilities (B, T, V) of pairs of our ids."""
    with inference(model):
        state = model.start(model.encode(_padded(sources)))
        decoder_input = _padded([[BOS, *target] for target in targets])
        return model.log_probabilities(decoder_input, state).log_probabilities


def our_difference(model: Seq2SeqModel, other: Seq2SeqModel, imported: ImportedTokenizer) -> float:
    """Return the largest difference, in nats, of two models of ours for the same pairs."""
    sources, targets = _pairs(imported, model.max_source_length or _LONGEST)
    gap = our_log_probabilities(model, sources, targets)
    gap = (gap - our_log_probabilities(other, sources, targets)).abs()
    lengths = torch.tensor([[len(target)] for target in targets])
    real = torch.arange(gap.shape[1])[None] <= lengths
    return float(gap[real].max())


def load_hf(source: Path) -> Any:
    """Load a folder by `transformers`, in float32, without code of its own.

    Raises:
        UserError: if it cannot, also for weights of other shapes than its own.
    """
    from transformers import AutoModelForSeq2SeqLM
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        model, loaded = AutoModelForSeq2SeqLM.from_pretrained(
            source, config=_config(source), local_files_only=True, use_safetensors=True,
            dtype=torch.float32, ignore_mismatched_sizes=True, output_loading_info=True,
        )  # fmt: skip
        for name, shape, needed in sorted(loaded["mismatched_keys"]):  # else only in its log
            raise ValueError(f"{name} is {tuple(shape)}, but must be {tuple(needed)}")
    except Exception as error:  # it checks files by errors of many kinds
        raise UserError(f"transformers cannot load {source} ({one_line(error)})") from error
    return model.eval()


def _config(source: Path) -> Any:
    """Return a folder's settings that its class for this family has, each of bounded size."""
    from transformers import CONFIG_MAPPING, PreTrainedConfig

    config = HFFolder(source).config
    kind = CONFIG_MAPPING[config["model_type"]]
    common = inspect.signature(PreTrainedConfig).parameters.keys() - {"is_encoder_decoder"}
    supported = {*_LATER, *inspect.signature(kind).parameters} - common
    settings = {key: value for key, value in config.items() if key in supported}
    _check_bounded(settings)
    return kind(**settings)


def _check_bounded(value: Any) -> None:
    """Raise ValueError for a setting that is larger than that of any model."""
    if isinstance(value, dict | list):
        for part in [*value.values()] if isinstance(value, dict) else value:
            _check_bounded(part)
    size = len(value) if isinstance(value, str) else abs(value) if type(value) is int else 0
    if size > _LARGEST:
        raise ValueError(f"a setting of {shown(value)} is too large")


@torch.no_grad()
def hf_log_probabilities(
    hf_model: Any, imported: ImportedTokenizer, sources: list[list[int]], targets: list[list[int]]
) -> Tensor:
    """Return log-probabilities (B, T, V) of their vocabulary, for pairs of our ids."""
    ids = _padded(sources)
    decoder = _padded([[BOS, *target] for target in targets])
    rows, target_rows = torch.tensor(imported.rows), torch.tensor(imported.target_rows)
    output = hf_model(
        input_ids=rows[ids], attention_mask=(ids != PAD).long(),
        decoder_input_ids=target_rows[decoder],
    )  # fmt: skip
    logits: Tensor = output.logits
    return logits.float().log_softmax(dim=-1)


def _pairs(imported: ImportedTokenizer, longest: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return sources, with their end, and targets, without: random ids, and some real lines.

    None has more than `longest` tokens, with its marks.
    """
    chance = torch.Generator().manual_seed(0)
    tokenizer, limit = imported.tokenizer, max(2, min(_LONGEST, longest) - 1)

    def random_ids(size: int) -> list[int]:
        length = int(torch.randint(1, limit, (), generator=chance))
        ids: list[int] = torch.randint(RESERVED, size, (length,), generator=chance).tolist()
        return ids

    sources = [[*random_ids(tokenizer.source_size), EOS] for _ in range(_PAIRS)]
    targets = [random_ids(tokenizer.target_size) for _ in range(_PAIRS)]
    lines = tokenizer.encode_source(_LINES), tokenizer.encode_target(_LINES)
    for source, target in zip(*lines, strict=True):
        sources.append([*source[:-1][:limit], EOS])
        targets.append(target[:-1][:limit])
    return sources, targets


def _padded(rows: list[list[int]]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])
