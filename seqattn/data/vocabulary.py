"""Settings of vocabularies, and their training by sentencepiece, cached by content."""

import hashlib
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

import sentencepiece
from annotated_types import Ge, Le

from seqattn.checking import shown
from seqattn.data.escapes import escaped
from seqattn.data.foreign_models import MARKS, ForeignModel
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.tokenizer_side import LINE_BREAK, Side, set_apart
from seqattn.data.truecasing import Truecaser
from seqattn.errors import UserError
from seqattn.inputs import check_there, read_bytes
from seqattn.storage import file_faults, user_path
from seqattn.tokens import BOS, EOS, PAD, UNK

# Unigram training sums expectations per thread, so rounding and vocabulary depend on the number of
# threads: a fixed number gives the same vocabulary on every machine.
_THREADS = 4
LONGEST_LEARNT = 20_000
"""Characters of a text used for training: sentencepiece is quadratic in the length of a run of
letters without a space, minutes for a million."""
_LARGEST_UNASKED, _ALL_UNASKED = 8_000, 100_000
"""Largest vocabularies without `vocab_size`: of subwords, and of characters or symbols."""
_MODELS = {"characters": "char", "symbols": "word"}
"""sentencepiece's names of kinds, if they differ."""
_SYMBOL = re.compile(r"[^\s▁▅]+")
_TOO_LARGE = re.compile(r"set it to a value <= (\d+)")


Kind = Literal["unigram", "bpe", "characters", "symbols"]


@dataclass(frozen=True)
class TokenizerConfig:
    """Settings of a vocabulary to train.

    Args:
        kind: "unigram" (Kudo 2018, arXiv 1804.10959), "bpe" (Sennrich 2016, arXiv 1508.07909),
            "characters", or "symbols" that spaces separate.
        vocab_size: pieces of each vocabulary, the four marks included; None for 8,000, or fewer for
            a small corpus; for characters and symbols, None for all.
        joint: True for one vocabulary for both sides, so that embeddings can be shared; False for
            one of `vocab_size` for each.
        byte_fallback: spell unknown characters in bytes (256 pieces more) rather than as unknown.
        character_coverage: share of the text's characters covered by pieces, 0.98 to 1.
        normalization: sentencepiece's rule. "identity" (the default) preserves every character,
            which scoring tokenized text needs; "nmt_nfkc" unifies Unicode forms and folds spaces,
            and "nmt_nfkc_cf" folds case as well.
        line_breaks: keep line breaks, as a separate piece, where the rule would turn them into
            spaces; "identity" keeps them like any character, within pieces.
        truecase: restore capital letters in outputs if `normalization` folds case; see
            `Truecaser`.
        symbols: pieces that are never split, such as "<2de>" before each source.
        target_kind: kind of the target side's vocabulary; None for `kind`.

    Raises:
        UserError: for `line_breaks` or `truecase` with a rule that preserves them anyway, for
            symbols that are empty, repeated, marks, or have spaces, or for settings that do not
            fit the kind.
    """

    kind: Kind = "unigram"
    vocab_size: Annotated[int, Ge(EOS + 2), Le(1_000_000)] | None = None
    joint: bool = True
    byte_fallback: bool = False
    character_coverage: Annotated[float, Ge(0.98), Le(1)] = 1.0
    normalization: Literal["identity", "nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf"] = "identity"
    line_breaks: bool = False
    truecase: bool = False
    symbols: Sequence[str] | None = None
    target_kind: Kind | None = None

    def __post_init__(self) -> None:
        if self.joint and self.target_kind not in (None, self.kind):
            raise UserError(
                f"tokenizer.target_kind={self.target_kind} needs a vocabulary for each side; set "
                "tokenizer.joint=false"
            )
        if self.byte_fallback and self.one_segmentation:
            raise UserError(
                "tokenizer.byte_fallback needs subwords; set it to false, or choose "
                "tokenizer=unigram or bpe"
            )
        names = {*MARKS}
        for symbol in self.symbols or ():
            if symbol in names or not _SYMBOL.fullmatch(symbol):
                raise UserError(
                    "tokenizer.symbols must be different pieces without spaces, such as <2de>, "
                    f"got {shown(symbol)}"
                )
            names.add(symbol)
        if self.line_breaks and self.normalization == "identity":
            raise UserError(
                "tokenizer.normalization=identity already keeps line breaks; set "
                "tokenizer.normalization=nmt_nfkc, or tokenizer.line_breaks=false"
            )
        if self.truecase and not self.normalization.endswith("_cf"):
            raise UserError(
                "tokenizer.truecase=true requires a tokenizer.normalization that folds case, such "
                f"as nmt_nfkc_cf, got {self.normalization}; set tokenizer.truecase=false"
            )

    def trained(self, source: Iterable[str], target: Iterable[str]) -> Tokenizer | None:
        """Return a tokenizer for the texts of both sides; None for one of sentencepiece."""
        return None

    @property
    def kinds(self) -> tuple[Kind, Kind]:
        """Kinds of the source's and the target's vocabulary."""
        return self.kind, self.target_kind or self.kind

    @property
    def one_segmentation(self) -> bool:
        """True if a side has characters or symbols, which have one segmentation only."""
        return not {*self.kinds}.isdisjoint(_MODELS)


@dataclass(frozen=True, init=False)
class TokenizerFiles(TokenizerConfig):
    """Sentencepiece models from elsewhere, in place of a vocabulary to train.

    Their segmentation is kept; padding, unknown, begin and end get our ids. Other settings of a
    vocabulary to train are not parameters.

    Args:
        source: file of a unigram or BPE model, of both sides if there is no `target`.
        target: file of the target side's model.
        symbols: pieces that each model must have; None for any.
    """

    source: str | None = None
    target: str | None = None

    def __init__(
        self,
        source: str | None = None,
        target: str | None = None,
        symbols: Sequence[str] | None = None,
    ) -> None:
        super().__init__(joint=target is None, symbols=symbols)
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "target", target)

    def trained(self, source: Iterable[str], target: Iterable[str]) -> Tokenizer:
        """Return the tokenizer of the files.

        Raises:
            UserError: if a file is missing, is not such a model, or lacks a symbol.
        """
        if self.source is None:
            raise UserError("missing required key: tokenizer.source (add tokenizer.source=FILE)")
        models = []
        for path in (user_path(name) for name in (self.source, self.target) if name is not None):
            check_there(path, "a sentencepiece model")
            model = ForeignModel.read(read_bytes(path), path).adopted()
            try:
                pieces = {*Side(model).vocabulary()}
            except UserError as error:
                raise UserError(f"{path}: {error}") from error
            if absent := [symbol for symbol in self.symbols or () if symbol not in pieces]:
                raise UserError(
                    f"{path} has no piece {absent[0]}, which tokenizer.symbols requires; list only "
                    "its own pieces"
                )
            models.append(model)
        return Tokenizer(models[0], models[1] if len(models) > 1 else None)


def train_tokenizer(
    source: Iterable[str], target: Iterable[str], config: TokenizerConfig, cache_dir: Path
) -> Tokenizer:
    """Train a vocabulary, or load it from the cache, or from the files of `TokenizerFiles`.

    The cache is keyed by texts and config, so that a changed corpus or size never gets an old
    vocabulary. The same texts and config give the same models on every machine. Only the first
    `LONGEST_LEARNT` characters of a text are used.

    Raises:
        UserError: for no text, a size too large for these texts, or a cache that cannot be written.
    """
    if (tokenizer := config.trained(source, target)) is not None:
        return tokenizer
    # an iterator can be read only once, and the texts are read to hash and again to train
    source = list(source) if isinstance(source, Iterator) else source
    target = list(target) if isinstance(target, Iterator) else target
    directory = cache_dir / "tokenizers" / _content_key(source, target, config)
    try:
        return Tokenizer.load(directory)
    except UserError:  # missing or damaged: trained again
        with file_faults("create", directory):  # before training
            directory.mkdir(parents=True, exist_ok=True)
    _announce([len(text) for text in chain(source, target)], config)
    sides = {"joint": [source, target]}
    if not config.joint:
        sides = {"source": [source], "target": [target]}
    kinds = dict(zip(("source", "target"), config.kinds, strict=True))
    models = [
        _model(texts, replace(config, kind=kinds.get(side, config.kind), target_kind=None), side)
        for side, texts in sides.items()
    ]
    truecaser = Truecaser.learnt(target) if config.truecase else None
    try:
        tokenizer = Tokenizer(models[0], models[1] if len(models) > 1 else None, truecaser)
    except UserError as error:  # pieces of several thousand bytes
        raise UserError("a vocabulary cannot have symbols of thousands of characters") from error
    size = max(tokenizer.source_size, tokenizer.target_size)
    if config.vocab_size is None and size > _ALL_UNASKED:
        raise UserError(
            f"the text has {size:,} different {' and '.join(dict.fromkeys(config.kinds))}, each a "
            "row of the model's tables; set tokenizer.vocab_size=N for the N most frequent"
        )
    tokenizer.save(directory)
    return tokenizer


def _content_key(source: Iterable[str], target: Iterable[str], config: TokenizerConfig) -> str:
    """Return the cache key of a vocabulary: texts, config and version of the trainer."""
    settings = asdict(config)
    if not config.truecase:
        del settings["truecase"]  # keeps vocabularies cached before these settings existed
    if not config.symbols:
        del settings["symbols"]
    if config.target_kind is None:
        del settings["target_kind"]
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    digest.update(sentencepiece.__version__.encode())
    for side, texts in (("source", source), ("target", target)):
        digest.update(side.encode())
        lines = 0
        for text in texts:
            digest.update(_learnt(text, config).encode() + b"\0")
            lines += 1
        if lines == 0:
            raise UserError(f"the {side} corpus is empty")
    return digest.hexdigest()[:32]


def _announce(sizes: list[int], config: TokenizerConfig) -> None:
    """Print to standard error what is trained. Args: sizes: characters of each text."""
    kinds, size = [*dict.fromkeys(config.kinds)], config.vocab_size
    of = " and ".join(kinds)
    vocabularies = f"a joint {of} vocabulary" if config.joint else f"two {of} vocabularies"
    limit = f"at most {_LARGEST_UNASKED:,}" if size is None else f"{size:,}"
    limit = "all" if size is None and {*kinds} <= {*_MODELS} else limit
    lines = [f"training {vocabularies} of {limit} pieces on {len(sizes):,} lines ..."]
    long = [number for number, size in enumerate(sizes, 1) if size > LONGEST_LEARNT]
    if long:
        lines.append(
            f"{len(long):,} of them (first: line {long[0]:,}) are longer than {LONGEST_LEARNT:,} "
            f"characters; training uses only the first {LONGEST_LEARNT:,} of each"
        )
    print(*lines, sep="\n", file=sys.stderr, flush=True)


def _learnt(text: str, config: TokenizerConfig) -> str:
    """Return the part of a text used for training, prepared for sentencepiece."""
    text = text[:LONGEST_LEARNT]
    if config.line_breaks:
        return set_apart(text)
    if config.kind == "symbols":  # its model folds spaces, so that texts are not escaped
        return text
    return escaped(text) if config.normalization == "identity" else text


def _model(parts: list[Iterable[str]], config: TokenizerConfig, side: str) -> bytes:
    """Train a model of the configured size, or of the largest possible default size."""
    size = config.vocab_size or _LARGEST_UNASKED
    if config.kind in _MODELS and config.vocab_size is None:  # then all, whatever the size
        size += len(config.symbols or ())
    while True:
        try:
            return _train(chain(*parts), config, size)
        except RuntimeError as error:
            largest = _TOO_LARGE.search(str(error))
            if config.vocab_size is not None or largest is None or int(largest[1]) >= size:
                raise _explained(str(error), config.kind, size, side) from error
            size = int(largest[1])


def _train(texts: Iterable[str], config: TokenizerConfig, size: int) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(_learnt(text, config) for text in texts),
        model_writer=model,
        model_type=_MODELS.get(config.kind, config.kind),
        vocab_size=size,
        use_all_vocab=config.kind in _MODELS and config.vocab_size is None,
        add_dummy_prefix=config.kind != "characters",
        byte_fallback=config.byte_fallback,
        character_coverage=config.character_coverage,
        normalization_rule_name=config.normalization,
        user_defined_symbols=[
            *([LINE_BREAK] if config.line_breaks else []),
            *(config.symbols or ()),
        ],
        remove_extra_whitespaces=config.normalization != "identity" or config.kind == "symbols",
        pad_id=PAD,
        unk_id=UNK,
        bos_id=BOS,
        eos_id=EOS,
        unk_surface="⁇",  # the default has spaces around it
        max_sentence_length=1_000_000,
        num_threads=_THREADS,
        minloglevel=2,
    )
    return model.getvalue()


def _explained(message: str, kind: str, size: int, side: str) -> Exception:
    """Return an error with advice on a failure of sentencepiece."""
    if largest := _TOO_LARGE.search(message):
        limit = int(largest[1])
        return UserError(
            f"tokenizer.vocab_size must be at most {limit} for this {side} corpus ({kind}), got "
            f"{size}; lower it, or set null"
        )
    if smallest := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        least = int(smallest[1])
        return UserError(
            f"tokenizer.vocab_size must be at least {least} to cover every character of this "
            f"{side} corpus, got {size}; raise it, or lower tokenizer.character_coverage"
        )
    if "(vocab_size) >= (0)" in message:
        return UserError(f"tokenizer.vocab_size={size} is too small for all symbols; raise it")
    if "sentences_.empty()" in message or "all_chars_count" in message:
        return UserError(f"the {side} corpus contains no text: every line is empty")
    return RuntimeError(message)
