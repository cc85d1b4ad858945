"""Text to subword ids and back, by models stored with the run."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from seqattn.data.byte_level import ByteLevelSide
from seqattn.data.own_side import OwnSide, own_side
from seqattn.data.tokenizer_side import NO_MARKS, Begin, Side
from seqattn.data.truecasing import Truecaser
from seqattn.errors import UserError
from seqattn.inputs import read_bytes, read_json
from seqattn.storage import file_faults, is_file, write_whole
from seqattn.tokens import UNK

_FORMAT = "seqattn-tokenizer-1"
_TRUECASER = "truecaser.json"
_SYMBOL = re.compile("▁?[^▁]+|▁$")
_MAX_CODES = 5  # codes of languages
_NAMES = [["joint.json"], ["joint.model"], ["source.model", "target.model"]]


class Tokenizer:
    """Tokenizer of both sides, with serialized models of sentencepiece, or one of byte-level BPE.

    Args:
        target_model: None if both sides share `source_model`.
        truecaser: restores capital letters in outputs of a lower-cased target side; None for none.
        joint: True if two models have the same pieces in the same order, and differ in how they
            segment text. Without a `target_model` always True.
        begin: pieces that begin the texts of each side; a search produces the target's first.
        size: as in `Side`.
        side: class of the sides if it is one's own, which reads the models.

    Attributes:
        joint: True if both sides share one vocabulary.
        fingerprint: digest of the models, 16 hexadecimal digits; equal fingerprints give equal ids.
        source_begin, target_begin: ids of the pieces that begin every text of a side.
        source_size, target_size: number of pieces of each `Side`.
        file_names: names of the stored models, one for both sides or one for each.
        encode_source, encode_target, sample_source, sample_target, source_offsets,
        source_pieces, target_pieces, source_vocabulary, target_vocabulary, target_texts,
        source_line_breaks:
            methods of the `Side`s.

    Raises:
        UserError: for bytes that are not a sentencepiece model with our marks, models that cannot
            be joint, or a model without a piece of `begin`.
    """

    def __init__(
        self,
        source_model: bytes,
        target_model: bytes | None = None,
        truecaser: Truecaser | None = None,
        *,
        joint: bool = False,
        begin: Begin = NO_MARKS,
        size: int | None = None,
        side: type[OwnSide] | None = None,
    ) -> None:
        self.truecaser = truecaser
        self.joint = joint or target_model is None
        self._models = [source_model] if target_model is None else [source_model, target_model]
        self.file_names = _NAMES[
            0 if not side and _is_byte_level(source_model) else len(self._models)
        ]
        self._options: dict[str, Any] = {"joint": joint, "begin": begin, "size": size, "side": side}
        source = side(source_model) if side else _side(source_model, begin.source, size)
        target = source
        if target_model is not None or begin.source != begin.target:
            model = self._models[-1]
            target = side(model) if side else _side(model, begin.target, size)
        if joint and target_model is not None and source.vocabulary() != target.vocabulary():
            raise UserError("the models of a joint vocabulary have different pieces")
        self.source_size, self.target_size = source.size, target.size
        self.encode_source, self.encode_target = source.encode, target.encode
        self.sample_source, self.sample_target = source.sample, target.sample
        self.source_offsets, self._decode_target = source.offsets, target.decode
        self.source_pieces, self.target_pieces = source.pieces, target.pieces
        self.source_vocabulary, self.target_vocabulary = source.vocabulary, target.vocabulary
        self.target_texts, self.source_line_breaks = target.texts, source.line_breaks
        self._languages = {**source.languages, **target.languages}
        self.source_begin, self.target_begin = tuple(source.begin), tuple(target.begin)
        digests = "".join(hashlib.sha256(model).hexdigest() for model in self._models)
        if self._more():
            digests += json.dumps(self._more())
        self.fingerprint = hashlib.sha256(digests.encode()).hexdigest()[:16]

    def decode_target(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Decode rows of ids as in `Side.decode`, and restore case."""
        texts = self._decode_target(rows)
        return texts if self.truecaser is None else [*map(self.truecaser, texts)]

    def into(self, language: str) -> "Tokenizer":
        """Return the tokenizer of a multilingual model for outputs in a language.

        Args:
            language: its code, such as "deu_Latn".

        Raises:
            UserError: the vocabulary has no piece for it.
        """
        piece, languages = self._languages.get(language), sorted(self._languages)
        if piece is None:
            some = ", ".join(languages[:_MAX_CODES]) + ", ..." * (len(languages) > _MAX_CODES)
            hint = f"use one of {some}" if languages else "its model is not multilingual; remove it"
            raise UserError(f"target_language={language} is not in this vocabulary; {hint}")
        begin: Begin = self._options["begin"]
        if piece[0] == ">":  # Marian reads it before the source
            begin = begin._replace(source=(piece,))
        else:
            marks = (mark for mark in begin.target if mark not in self._languages.values())
            begin = begin._replace(target=(*marks, piece))
        models: list[Any] = [*self._models, None]
        options: Any = {**self._options, "begin": begin}
        return Tokenizer(models[0], models[1], self.truecaser, **options)

    def unknown(self, texts: Sequence[str]) -> Counter[str]:
        """Count the pieces of source texts that the vocabulary lacks."""
        counts = Counter[str]()
        for ids, text in zip(self.encode_source(texts), texts, strict=True):
            if UNK in ids:
                pieces = self.source_pieces(ids, text)
                runs = (piece for piece, token in zip(pieces, ids, strict=True) if token == UNK)
                counts.update(piece for run in runs for piece in _SYMBOL.findall(run))
        return counts

    def _more(self) -> dict[str, Any]:
        """Return the entries of `tokenizer.json` that differ from those of a trained tokenizer."""
        begin, size = self._options["begin"], self._options["size"]
        more: dict[str, Any] = {"begin": begin._asdict()} if any(begin) else {}
        if side := self._options["side"]:
            more["side"] = f"{side.__module__}.{side.__qualname__}"
        return more if size is None else {**more, "size": size}

    def save(self, directory: Path) -> None:
        """Write the models and then `tokenizer.json`, each file atomically."""
        with file_faults("create", directory):
            directory.mkdir(parents=True, exist_ok=True)
        contents = dict(zip(self.file_names, self._models, strict=True))
        if self.truecaser is not None:
            contents[_TRUECASER] = json.dumps(asdict(self.truecaser)).encode()
        files = {}
        for name, content in contents.items():
            write_whole(directory / name, content)
            files[name] = hashlib.sha256(content).hexdigest()
        head = {"format": _FORMAT, "joint": self.joint, "files": files, **self._more()}
        write_whole(directory / "tokenizer.json", json.dumps(head, indent=2).encode())

    @classmethod
    def load(cls, directory: Path, trust: Collection[str] = ()) -> "Tokenizer":
        """Load a tokenizer written by `save`.

        Args:
            trust: packages besides seqattn that the class of its sides may come from.

        Raises:
            UserError: if a file is missing or damaged, or was written by another tool.
        """
        path = directory / "tokenizer.json"
        if not is_file(path):
            raise UserError(f"{directory} is not a tokenizer: tokenizer.json is missing")
        foreign = f"{path} is not a seqattn tokenizer ({_FORMAT})"
        try:
            head = read_json(path, "a tokenizer")
        except UserError as error:
            raise UserError(foreign) from error
        files = head.get("files") if isinstance(head, dict) else None
        files = files if isinstance(files, dict) and head.get("format") == _FORMAT else {}
        names = sorted(name for name in files if name != _TRUECASER)
        if names not in _NAMES:
            raise UserError(foreign)
        try:
            more = _Head.model_validate(head)
        except ValidationError as error:
            raise UserError(foreign) from error
        side = None if more.side is None else own_side(more.side, trust)
        models = [_read(path.with_name(name), files[name]) for name in names]
        truecaser = None
        if _TRUECASER in files:
            content = _read(path.with_name(_TRUECASER), files[_TRUECASER])
            try:
                truecaser = Truecaser.read(content)
            except ValueError as error:
                damaged = f"{path.with_name(_TRUECASER)} is not a valid truecaser"
                raise UserError(f"{damaged}; copy it again or retrain") from error
        try:
            target = models[1] if len(models) > 1 else None
            return cls(models[0], target, truecaser, **more.options(), side=side)
        except UserError as error:
            raise UserError(f"{directory}: {error}; copy it again or retrain") from error

    def __reduce__(self) -> tuple[Any, ...]:
        models = [*self._models, None][:2]
        return partial(type(self), **self._options), (*models, self.truecaser)


class _Head(BaseModel, strict=True):
    """Optional entries of `tokenizer.json`."""

    joint: bool
    begin: dict[Literal["source", "target"], list[str]] = {}
    size: int | None = None
    side: str | None = None

    def options(self) -> dict[str, Any]:
        begin = Begin(**{side: tuple(names) for side, names in self.begin.items()})
        return {"joint": self.joint, "begin": begin, "size": self.size}


def _is_byte_level(model: bytes) -> bool:
    return model.startswith(b"{")  # a sentencepiece model begins with another byte


def _side(model: bytes, begin: Sequence[str], size: int | None) -> Side | ByteLevelSide:
    return ByteLevelSide(model, begin) if _is_byte_level(model) else Side(model, begin, size)


def _read(path: Path, digest: object) -> bytes:
    if not is_file(path):
        raise UserError(f"{path} is missing")
    content = read_bytes(path)
    if hashlib.sha256(content).hexdigest() != digest:
        raise UserError(f"{path} does not match its digest: truncated or replaced")
    return content
