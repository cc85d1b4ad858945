"""What a vocabulary is made of, and its training by sentencepiece."""

from __future__ import annotations

import hashlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain

import sentencepiece

from seqattn.errors import UserError

PAD, UNK, BOS, EOS = 0, 1, 2, 3

LINE_BREAK = "\n"
KINDS = ("unigram", "bpe")
NORMALIZATIONS = ("identity", "nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf")
# Unigram sums expectations per thread, so another number of threads gives other roundings and
# other vocabularies: a fixed number gives the same one on every machine.
_THREADS = 4
# sentencepiece leaves longer lines out without a word; this is beyond any sentence or document.
_LONGEST_LINE = 1_000_000
_LARGEST_UNASKED = 8000


@dataclass(frozen=True)
class TokenizerConfig:
    """What vocabulary to train.

    Args:
        kind: "unigram" (Kudo 2018, arXiv 1804.10959) or "bpe" (Sennrich 2016, arXiv 1508.07909).
        vocab_size: pieces of each vocabulary, the four marks included; None for 8,000, or for as
            many as a small corpus can give.
        joint: one vocabulary for both languages, so that embeddings can be shared; if False,
            one of `vocab_size` for each.
        byte_fallback: spell unknown characters in bytes (256 pieces more) rather than as unknown.
        character_coverage: share of the text's characters that get a piece, in (0, 1].
        normalization: sentencepiece's rule. "identity" (the default) gives every character back
            as it came, which scoring tokenised text needs; "nmt_nfkc" unifies Unicode forms
            and folds spaces, and "nmt_nfkc_cf" folds case as well.
        line_breaks: keep line breaks, as a piece of their own, where the rule would make spaces of
            them; "identity" keeps them as any character, within pieces.

    Raises:
        UserError: a value outside its range, or line breaks kept twice over.
    """

    kind: str = "unigram"
    vocab_size: int | None = None
    joint: bool = True
    byte_fallback: bool = False
    character_coverage: float = 1.0
    normalization: str = "identity"
    line_breaks: bool = False

    def __post_init__(self) -> None:
        """Refuses what sentencepiece would refuse later, or in other words."""
        if self.kind not in KINDS:
            raise UserError(f"tokenizer kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        if self.normalization not in NORMALIZATIONS:
            known = ", ".join(NORMALIZATIONS)
            raise UserError(f"normalization must be one of {known}, got {self.normalization!r}")
        if self.line_breaks and self.normalization == "identity":
            raise UserError(
                "tokenizer.normalization=identity keeps every character, line breaks too; set "
                "tokenizer.normalization=nmt_nfkc, or tokenizer.line_breaks=false"
            )
        if self.vocab_size is not None and self.vocab_size <= EOS + 1:
            raise UserError(f"vocab_size must be greater than {EOS + 1}, got {self.vocab_size}")
        if not 0 < self.character_coverage <= 1:
            got = self.character_coverage
            raise UserError(f"character_coverage must be in (0, 1], got {got}")


def set_apart(text: str) -> str:
    """The text with nothing before a line break and a space after it, so that the piece of a word
    is the same at the start of a line and within it; empty lines are left out.
    """
    return re.sub(r"\s*\n\s*", f"{LINE_BREAK} ", text.strip())


def content_key(source: Iterable[str], target: Iterable[str], config: TokenizerConfig) -> str:
    """Names a vocabulary by all that decides it: the texts, the config, the trainer's version.

    Raises:
        UserError: no line of text.
    """
    digest = hashlib.sha256(json.dumps(asdict(config), sort_keys=True).encode())
    digest.update(sentencepiece.__version__.encode())
    for side, texts in (("source", source), ("target", target)):
        digest.update(side.encode())
        lines = 0
        for text in texts:
            digest.update(text.encode() + b"\0")
            lines += 1
        if lines == 0:
            raise UserError(f"the {side} corpus must hold at least one line of text, got none")
    return digest.hexdigest()[:32]


def train_models(
    source: Iterable[str], target: Iterable[str], config: TokenizerConfig
) -> list[bytes]:
    """Trains one joint model, or one for each side, and says so on standard error.

    Raises:
        UserError: a size that these texts cannot give, or no text but empty lines.
    """
    lines = sum(1 for _ in source) + sum(1 for _ in target)
    noun = "a joint" if config.joint else "two"
    print(
        f"training {noun} {config.kind} {'vocabulary' if config.joint else 'vocabularies'} "
        f"of {_size(config)} pieces on {lines:,} lines ...",
        file=sys.stderr,
        flush=True,
    )
    if config.joint:
        return [_fitting_model(lambda: chain(source, target), config, "joint")]
    return [
        _fitting_model(lambda: iter(source), config, "source"),
        _fitting_model(lambda: iter(target), config, "target"),
    ]


def _size(config: TokenizerConfig) -> str:
    if config.vocab_size is None:
        return f"at most {_LARGEST_UNASKED:,}"
    return f"{config.vocab_size:,}"


def _fitting_model(texts: Callable[[], Iterator[str]], config: TokenizerConfig, side: str) -> bytes:
    """A model of the size that was asked for, or of the largest that needs no asking."""
    if config.vocab_size is not None:
        return _train_model(texts(), config, side)
    try:
        return _train_model(texts(), replace(config, vocab_size=_LARGEST_UNASKED), side)
    except TooLarge as error:
        return _train_model(texts(), replace(config, vocab_size=error.most), side)


def _train_model(texts: Iterator[str], config: TokenizerConfig, side: str) -> bytes:
    model = io.BytesIO()
    assert config.vocab_size is not None
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=map(set_apart, texts) if config.line_breaks else texts,
            model_writer=model,
            model_type=config.kind,
            vocab_size=config.vocab_size,
            byte_fallback=config.byte_fallback,
            character_coverage=config.character_coverage,
            normalization_rule_name=config.normalization,
            user_defined_symbols=[LINE_BREAK] if config.line_breaks else [],
            # Collapsing spaces would change what tokenised text says; folding rules may do so.
            remove_extra_whitespaces=config.normalization != "identity",
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            # The default has spaces around it, which double those of the text.
            unk_surface="⁇",
            max_sentence_length=_LONGEST_LINE,
            num_threads=_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _explained(str(error), config, side) from error
    return model.getvalue()


class TooLarge(UserError):
    """A vocabulary that these texts cannot give; `most` is the largest they can."""

    def __init__(self, most: int, message: str) -> None:
        super().__init__(message)
        self.most = most


def _explained(message: str, config: TokenizerConfig, side: str) -> Exception:
    got = f"got {config.vocab_size:,}"
    if largest := re.search(r"set it to a value <= (\d+)", message):
        most = int(largest.group(1))
        return TooLarge(
            most,
            f"vocab_size must be at most {most:,} for this {side} corpus ({config.kind}), {got}; "
            f"set tokenizer.vocab_size={most} or less, or null",
        )
    if smallest := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        least = int(smallest.group(1))
        return UserError(
            f"vocab_size must be at least {least:,} to hold every character of this {side} "
            f"corpus, {got}; set tokenizer.vocab_size={least} or more"
        )
    if "sentences_.empty()" in message:
        return UserError(f"the {side} corpus must hold some text, every line is empty")
    return RuntimeError(message)
