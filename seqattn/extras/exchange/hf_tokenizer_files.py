"""Tokenizers of bundles, as files that `transformers` reads."""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqattn.data.byte_level import ByteLevelModel
from seqattn.data.foreign_models import (
    BPE,
    BYTE,
    CONTROL,
    NORMAL,
    SYMBOL,
    UNUSED,
    ForeignModel,
    Piece,
)
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.inputs import read_bytes
from seqattn.storage import write_json, write_whole
from seqattn.tokens import EOS, RESERVED, UNK

_KEEP, _SPACE, _BLOCK = "\U0010fffb", "\U0010fffc", "\U0010fffd"  # see `data.escapes`
_PLAIN = re.compile("▁?[!-@\\[-~]+")
"""A symbol that no normalization changes."""
_M2M, _ADDED = re.compile("__[a-z]+__"), re.compile(r"__[a-z]+__|<row \d+>")
"""Pieces of M2M-100's languages, and those that its tokenizer adds itself."""


def write_tokenizer(
    tokenizer: Tokenizer, directory: Path, order: Sequence[int], output: Path, longest: int
) -> tuple[bool, str]:
    """Write the files of a tokenizer.

    One sentencepiece or byte-level model becomes a `tokenizer.json`, which needs no other package.
    Two models, or one with pieces outside the vocabulary, stay sentencepiece models of a
    `MarianTokenizer`, whose ids are those of a vocab.json.

    Args:
        tokenizer: the tokenizer.
        directory: holds its models.
        order: its id for each id that is written.
        output: the directory to write to.
        longest: maximum number of tokens.

    Returns:
        True if it is a `MarianTokenizer`, and what must then begin each text, "" for nothing.

    Raises:
        UserError: if it has a part that transformers lacks; the message names the override.
    """
    if tokenizer.truecaser is not None:
        raise UserError("transformers cannot restore case; train with tokenizer.truecase=false")
    contents = [read_bytes(directory / name) for name in tokenizer.file_names]
    pieces = tokenizer.source_vocabulary()
    marks = ("pad_token", "unk_token", "bos_token", "eos_token")  # in the order of our ids
    settings: dict[str, Any] = {
        **{key: pieces[token] for token, key in enumerate(marks) if token in order},
        "model_max_length": longest,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    if tokenizer.file_names[0].endswith(".json"):
        model = ByteLevelModel.model_validate(json.loads(contents[0]))
        spec = _byte_level(model, order)
        control = set(model.control)
    else:
        read = [ForeignModel.read(content, directory) for content in contents]
        adopted = any(piece.kind == UNUSED for piece in read[0].pieces)
        if len(read) > 1 or adopted or len(read[0].pieces) > tokenizer.source_size:
            return _write_slow(tokenizer, contents, order, output, settings)
        spec = _sentencepiece(read[0], order)
        control = {piece.name for piece in read[0].pieces if piece.kind == CONTROL}
    added = [
        {
            "id": row, "content": pieces[token], "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False, "special": True,
        }
        for row, token in enumerate(order)
        if token < RESERVED or pieces[token] in control
    ]  # fmt: skip
    rows = {pieces[token]: row for row, token in enumerate(order)}
    prefix = [pieces[token] for token in tokenizer.source_begin]
    spec = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **spec,
        "post_processor": _template(prefix, [pieces[EOS]], rows),
    }  # fmt: skip
    write_json(output / "tokenizer.json", spec)
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    write_json(output / "tokenizer_config.json", settings)
    return False, ""


def _write_slow(
    tokenizer: Tokenizer,
    contents: Sequence[bytes],
    order: Sequence[int],
    output: Path,
    settings: dict[str, Any],
) -> tuple[bool, str]:
    """Write sentencepiece models and the ids of their pieces: for Marian, or for M2M-100."""
    pieces = tokenizer.source_vocabulary()
    ids = order if tokenizer.joint else range(len(pieces))
    rows = {pieces[token]: row for row, token in enumerate(ids)}
    begins = [
        tokenizer.source_pieces(tokenizer.source_begin),
        tokenizer.target_pieces(tokenizer.target_begin),
    ]
    if len(contents) == 1 and all(len(side) == 1 and _M2M.fullmatch(side[0]) for side in begins):
        write_whole(output / "sentencepiece.bpe.model", contents[0])
        vocabulary = {name: row for name, row in rows.items() if not _ADDED.fullmatch(name)}
        write_json(output / "vocab.json", vocabulary)
        languages = {"src_lang": begins[0][0][2:-2], "tgt_lang": begins[1][0][2:-2]}
        settings |= {"tokenizer_class": "M2M100Tokenizer", **languages}
        write_json(output / "tokenizer_config.json", settings)
        return False, ""
    prefix = begins[0]
    if len(prefix) > 1 or not all(mark.startswith(">>") and mark.endswith("<<") for mark in prefix):
        raise UserError(
            "a MarianTokenizer, which two vocabularies or pieces outside the vocabulary need, "
            f"cannot begin sources with {' '.join(prefix)}; import without source_begin"
        )
    for name, content in zip(("source.spm", "target.spm"), (contents[0], contents[-1])):
        write_whole(output / name, content)
    write_json(output / "vocab.json", rows)
    if not tokenizer.joint:
        target = {name: row for row, name in enumerate(tokenizer.target_vocabulary())}
        write_json(output / "target_vocab.json", target)
        settings |= {"separate_vocabs": True, "target_vocab_file": "target_vocab.json"}
    write_json(output / "tokenizer_config.json", settings | {"tokenizer_class": "MarianTokenizer"})
    return True, prefix[0] if prefix else ""


def _template(prefix: list[str], end: list[str], rows: Mapping[str, int]) -> dict[str, Any]:
    """Return the postprocessor that puts marks around a text."""
    first, last = (
        [{"SpecialToken": {"id": mark, "type_id": 0}} for mark in side] for side in (prefix, end)
    )
    text, more = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    marks = {mark: {"id": mark, "ids": [rows[mark]], "tokens": [mark]} for mark in [*prefix, *end]}
    single = [*first, text, *last]
    pair = [*first, text, more, *last]
    return {
        "type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": marks,
    }  # fmt: skip


def _sentencepiece(model: ForeignModel, order: Sequence[int]) -> dict[str, Any]:
    """Return model, normalizer and decoder of a sentencepiece model."""
    rules, prefix, folds = model.normalizer
    symbols = [piece.name for piece in model.pieces if piece.kind == SYMBOL]
    if "\n" in symbols:
        raise UserError(
            "transformers cannot set line breaks apart; train with tokenizer.line_breaks=false"
        )
    normalized = [name for name in symbols if rules and not _PLAIN.fullmatch(name)]
    if normalized:
        raise UserError(
            f"transformers would normalize {normalized[0]!r}, a symbol; train with "
            "tokenizer.normalization=identity"
        )
    steps: list[dict[str, Any]] = []
    if not folds:
        steps += [_replace(sign, _KEEP + sign) for sign in (_KEEP, _SPACE, _BLOCK)]
        steps += [_replace("▁", _SPACE), _replace("▅", _BLOCK)]
    if rules:
        steps.append(
            {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(rules).decode()}
        )
    if folds:
        steps += [_replace({"Regex": " {2,}"}, " "), _replace({"Regex": r"\A | \z"}, "")]
    if prefix:
        steps.append({"type": "Prepend", "prepend": "▁"})
    steps.append(_replace(" ", "▁"))
    pieces = [model.pieces[token] for token in order]
    fallback = any(piece.kind == BYTE for piece in pieces)
    unknown = next(row for row, token in enumerate(order) if token == UNK)
    if model.algorithm == BPE:
        spec = _bpe(pieces, unknown, fallback)
    else:
        spec = _unigram(pieces, unknown, fallback)
    decoders: list[dict[str, Any]] = [_replace("▁", " ")]
    decoders += [{"type": "ByteFallback"}] if fallback else []
    decoders.append({"type": "Fuse"})
    if prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    if not folds:
        for sign, character in ((_SPACE, "▁"), (_BLOCK, "▅")):
            decoders.append(_replace({"Regex": f"(?<!{_KEEP}){sign}"}, character))
        decoders += [_replace(_KEEP + sign, sign) for sign in (_SPACE, _BLOCK, _KEEP)]
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps}, "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders}, "model": spec,
    }  # fmt: skip


def _unigram(pieces: Sequence[Piece], unknown: int, fallback: bool) -> dict[str, Any]:
    """Return a unigram model. Symbols have the score that sentencepiece gives them."""
    highest = max((piece.score for piece in pieces if piece.kind == NORMAL), default=0.0)
    scores = [
        len(piece.name.encode()) * highest - 0.1 if piece.kind == SYMBOL else piece.score
        for piece in pieces
    ]
    names = [piece.name for piece in pieces]
    vocabulary = [list(pair) for pair in zip(names, scores, strict=True)]
    return {"type": "Unigram", "unk_id": unknown, "vocab": vocabulary, "byte_fallback": fallback}


def _bpe(pieces: Sequence[Piece], unknown: int, fallback: bool) -> dict[str, Any]:
    """Return a BPE model: every pair that makes a piece, by the piece's rank."""
    symbols = [piece.name for piece in pieces if piece.kind == SYMBOL]
    if symbols:
        raise UserError(
            f"transformers would split {symbols[0]!r}, a symbol of a BPE vocabulary; train with "
            "tokenizer=unigram"
        )
    names = {piece.name for piece in pieces if piece.kind == NORMAL}
    merges = []
    for piece in sorted(pieces, key=lambda one: -one.score):
        if piece.kind == NORMAL:
            splits = [(piece.name[:n], piece.name[n:]) for n in range(1, len(piece.name))]
            merges += [list(pair) for pair in splits if names.issuperset(pair)]
    return {
        "type": "BPE", "dropout": None, "unk_token": pieces[unknown].name, "fuse_unk": True,
        "continuing_subword_prefix": None, "end_of_word_suffix": None, "byte_fallback": fallback,
        "ignore_merges": False, "vocab": {piece.name: row for row, piece in enumerate(pieces)},
        "merges": merges,
    }  # fmt: skip


def _byte_level(model: ByteLevelModel, order: Sequence[int]) -> dict[str, Any]:
    """Return model and splitting of a byte-level model."""
    level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    spec = {
        "type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False,
        "continuing_subword_prefix": None, "end_of_word_suffix": None, "byte_fallback": False,
        "ignore_merges": False, "vocab": {model.pieces[own]: row for row, own in enumerate(order)},
        "merges": [merge.split(" ") for merge in model.merges],
    }  # fmt: skip
    return {
        "normalizer": None, "pre_tokenizer": {**level, "add_prefix_space": model.prefix_space},
        "decoder": {**level, "add_prefix_space": True}, "model": spec,
    }  # fmt: skip


def _replace(pattern: str | dict[str, str], content: str) -> dict[str, Any]:
    pattern = {"String": pattern} if isinstance(pattern, str) else pattern
    return {"type": "Replace", "pattern": pattern, "content": content}
