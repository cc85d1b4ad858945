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
        **{key: pieces[own] for own, key in enumerate(marks) if own in order},
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
        adopted = any(one.kind == UNUSED for one in read[0].pieces)
        if len(read) > 1 or adopted or len(read[0].pieces) > tokenizer.source_size:
            return _write_slow(tokenizer, contents, order, output, settings)
        spec = _sentencepiece(read[0], order)
        control = {one.name for one in read[0].pieces if one.kind == CONTROL}
    listed = [
        {
            "id": row, "content": pieces[own], "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False, "special": True,
        }
        for row, own in enumerate(order)
        if own < RESERVED or pieces[own] in control
    ]  # fmt: skip
    rows = {pieces[own]: row for row, own in enumerate(order)}
    begin = [pieces[own] for own in tokenizer.source_begin]
    spec = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": listed, **spec,
        "post_processor": _template(begin, [pieces[EOS]], rows),
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
    rows = {pieces[own]: row for row, own in enumerate(ids)}
    begins = [
        tokenizer.source_pieces(tokenizer.source_begin),
        tokenizer.target_pieces(tokenizer.target_begin),
    ]
    if len(contents) == 1 and all(len(one) == 1 and _M2M.fullmatch(one[0]) for one in begins):
        write_whole(output / "sentencepiece.bpe.model", contents[0])
        known = {name: row for name, row in rows.items() if not _ADDED.fullmatch(name)}
        write_json(output / "vocab.json", known)
        languages = {"src_lang": begins[0][0][2:-2], "tgt_lang": begins[1][0][2:-2]}
        settings |= {"tokenizer_class": "M2M100Tokenizer", **languages}
        write_json(output / "tokenizer_config.json", settings)
        return False, ""
    begin = begins[0]
    if len(begin) > 1 or not all(one.startswith(">>") and one.endswith("<<") for one in begin):
        raise UserError(
            "a MarianTokenizer, which two vocabularies or pieces outside the vocabulary need, "
            f"cannot begin sources with {' '.join(begin)}; import without source_begin"
        )
    for name, content in zip(("source.spm", "target.spm"), (contents[0], contents[-1])):
        write_whole(output / name, content)
    write_json(output / "vocab.json", rows)
    if not tokenizer.joint:
        target = {name: row for row, name in enumerate(tokenizer.target_vocabulary())}
        write_json(output / "target_vocab.json", target)
        settings |= {"separate_vocabs": True, "target_vocab_file": "target_vocab.json"}
    write_json(output / "tokenizer_config.json", settings | {"tokenizer_class": "MarianTokenizer"})
    return True, begin[0] if begin else ""


def _template(begin: list[str], end: list[str], rows: Mapping[str, int]) -> dict[str, Any]:
    """Return the postprocessor that puts marks around a text."""
    first, last = (
        [{"SpecialToken": {"id": one, "type_id": 0}} for one in side] for side in (begin, end)
    )
    text, more = ({"Sequence": {"id": one, "type_id": 0}} for one in "AB")
    marks = {one: {"id": one, "ids": [rows[one]], "tokens": [one]} for one in [*begin, *end]}
    single = [*first, text, *last]
    pair = [*first, text, more, *last]
    return {
        "type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": marks,
    }  # fmt: skip


def _sentencepiece(model: ForeignModel, order: Sequence[int]) -> dict[str, Any]:
    """Return model, normalizer and decoder of a sentencepiece model."""
    rules, prefix, folds = model.normalizer
    symbols = [one.name for one in model.pieces if one.kind == SYMBOL]
    if "\n" in symbols:
        raise UserError(
            "transformers cannot set line breaks apart; train with tokenizer.line_breaks=false"
        )
    changed = [name for name in symbols if rules and not _PLAIN.fullmatch(name)]
    if changed:
        raise UserError(
            f"transformers would normalize {changed[0]!r}, a symbol; train with "
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
    pieces = [model.pieces[own] for own in order]
    fallback = any(one.kind == BYTE for one in pieces)
    unknown = next(row for row, one in enumerate(order) if one == UNK)
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
        for sign, own in ((_SPACE, "▁"), (_BLOCK, "▅")):
            decoders.append(_replace({"Regex": f"(?<!{_KEEP}){sign}"}, own))
        decoders += [_replace(_KEEP + sign, sign) for sign in (_SPACE, _BLOCK, _KEEP)]
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps}, "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders}, "model": spec,
    }  # fmt: skip


def _unigram(pieces: Sequence[Piece], unknown: int, fallback: bool) -> dict[str, Any]:
    """Return a unigram model. Symbols have the score that sentencepiece gives them."""
    highest = max((one.score for one in pieces if one.kind == NORMAL), default=0.0)
    scores = [
        len(one.name.encode()) * highest - 0.1 if one.kind == SYMBOL else one.score
        for one in pieces
    ]
    names = [one.name for one in pieces]
    vocabulary = [list(one) for one in zip(names, scores, strict=True)]
    return {"type": "Unigram", "unk_id": unknown, "vocab": vocabulary, "byte_fallback": fallback}


def _bpe(pieces: Sequence[Piece], unknown: int, fallback: bool) -> dict[str, Any]:
    """Return a BPE model: every pair that makes a piece, by the piece's rank."""
    symbols = [one.name for one in pieces if one.kind == SYMBOL]
    if symbols:
        raise UserError(
            f"transformers would split {symbols[0]!r}, a symbol of a BPE vocabulary; train with "
            "tokenizer=unigram"
        )
    known = {one.name for one in pieces if one.kind == NORMAL}
    merges = []
    for piece in sorted(pieces, key=lambda one: -one.score):
        if piece.kind == NORMAL:
            splits = [(piece.name[:n], piece.name[n:]) for n in range(1, len(piece.name))]
            merges += [list(pair) for pair in splits if known.issuperset(pair)]
    return {
        "type": "BPE", "dropout": None, "unk_token": pieces[unknown].name, "fuse_unk": True,
        "continuing_subword_prefix": None, "end_of_word_suffix": None, "byte_fallback": fallback,
        "ignore_merges": False, "vocab": {one.name: row for row, one in enumerate(pieces)},
        "merges": merges,
    }  # fmt: skip


def _byte_level(model: ByteLevelModel, order: Sequence[int]) -> dict[str, Any]:
    """Return model and splitting of a byte-level model."""
    level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    spec = {
        "type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False,
        "continuing_subword_prefix": None, "end_of_word_suffix": None, "byte_fallback": False,
        "ignore_merges": False, "vocab": {model.pieces[own]: row for row, own in enumerate(order)},
        "merges": [one.split(" ") for one in model.merges],
    }  # fmt: skip
    return {
        "normalizer": None, "pre_tokenizer": {**level, "add_prefix_space": model.prefix_space},
        "decoder": {**level, "add_prefix_space": True}, "model": spec,
    }  # fmt: skip


def _replace(pattern: str | dict[str, str], content: str) -> dict[str, Any]:
    pattern = {"String": pattern} if isinstance(pattern, str) else pattern
    return {"type": "Replace", "pattern": pattern, "content": content}
