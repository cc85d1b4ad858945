"""Tokenizers of Hugging Face models, as a tokenizer with our ids."""

import base64
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from seqattn.checking import shown
from seqattn.data.byte_level import ByteLevelModel
from seqattn.data.foreign_models import (
    BPE,
    BYTE,
    CONTROL,
    MARKS,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    ForeignModel,
    Normalizer,
    Piece,
)
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.tokenizer_side import Begin
from seqattn.errors import UserError
from seqattn.inputs import read_bytes, read_json
from seqattn.storage import is_file
from seqattn.tokens import BOS, EOS, PAD, UNK

_LARGEST = 1 << 27  # bytes; NLLB's tokenizer.json has 17 million
_MOST_ROWS = 1 << 20
_MOST_EMPTY = 1 << 10  # tables are padded to a multiple of at most this many rows
_LARGEST_SCORE = 3e38  # in float32
_PLAIN = "PreTrainedTokenizerFast", "TokenizersBackend"
"""Classes of `transformers` that do what tokenizer.json says, and nothing else."""
_SPACES = {*" ▁▅\U0010fffb\U0010fffc\U0010fffd", *"{2,}\\Az|+^$"}
"""Characters of patterns that concern only spaces and characters set apart by `data.escapes`."""
_M2M_CODES = """af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga
gd gl gu ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr
ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz
vi wo xh yi yo zh zu""".split()  # noqa: SIM905
_SHIFTED = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
_T5 = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}


class ImportedTokenizer(NamedTuple):
    """A tokenizer, and what its ids are in the model that it comes from."""

    tokenizer: Tokenizer
    rows: list[int]
    """For each source id the row of the original embedding table."""
    target_rows: list[int]
    """For each target id; `rows` unless both sides have their own vocabulary."""
    lacking: tuple[int, ...]
    """Target ids without a logit there; their output bias is minus infinity."""


@dataclass
class _Folder:
    """Files of a tokenizer; those that are missing are empty."""

    path: Path

    def __post_init__(self) -> None:
        self.config = self.json("tokenizer_config.json")
        self.complete = self.json("tokenizer.json")
        self.specials = self.json("special_tokens_map.json")

    def json(self, name: str, required: bool = False) -> dict[str, Any]:
        path = self.path / name
        if not required and not is_file(path):
            return {}
        content = read_json(path, "a file of a tokenizer", largest=_LARGEST)
        if not isinstance(content, dict):
            raise UserError(f"{path} must hold an object")
        return content

    def has(self, name: str) -> bool:
        return is_file(self.path / name)

    def model(self, name: str) -> ForeignModel:
        path = self.path / name
        if not is_file(path):
            raise UserError(f"{path} is missing; download it beside the weights")
        return ForeignModel.read(read_bytes(path, _LARGEST), path)

    def vocabulary(self, name: str) -> dict[str, int]:
        """Return the rows of a file such as vocab.json."""
        return _rows(self.json(name, required=True).items(), self.path / name)

    def added(self) -> dict[str, int]:
        """Return the rows of pieces outside the model, as far as they are listed."""
        decoder = _dict(self.config.get("added_tokens_decoder"))
        named_rows: list[tuple[str, Any]] = [(_name(token), row) for row, token in decoder.items()]
        for token in _list(self.complete.get("added_tokens")):
            named_rows.append((_name(token), _dict(token).get("id")))
        named_rows += self.json("added_tokens.json").items()
        return _rows(named_rows, self.path)

    def special(self) -> list[str]:
        """Return the names of additional special pieces, in order."""
        lists = [
            _list(_dict(file).get(key))
            for file in (self.specials, self.config)
            for key in ("additional_special_tokens", "extra_special_tokens")
        ]
        return list(dict.fromkeys(_name(piece) for names in lists for piece in names))

    def unknown(self) -> str:
        return _name(self.config.get("unk_token") or self.specials.get("unk_token") or "<unk>")


@dataclass(frozen=True)
class _ByteLevel:
    """A byte-level model whose ids are not yet ours."""

    merges: list[str]
    prefix_space: bool

    def adopted(self, names: Sequence[str], control: Collection[str], symbols: Any = ()) -> bytes:
        """Return the serialized model with our marks first. Args: as `ForeignModel.adopted`."""
        marks = [f"<{mark}>" if mark in names else mark for mark in MARKS]
        content = ByteLevelModel(
            pieces=[*marks, *names], control=sorted(control), merges=self.merges,
            prefix_space=self.prefix_space,
        )  # fmt: skip
        return content.model_dump_json().encode()


@dataclass
class _Vocabulary:
    """A vocabulary as its folder has it."""

    models: Sequence[ForeignModel | _ByteLevel]
    rows: list[dict[str, int]]
    """Rows of the pieces, by name: one for both sides, or one for each."""
    control: Collection[str] = ()
    symbols: Collection[str] = ()
    codes: dict[str, str] = field(default_factory=dict)
    """Pieces of the languages, by code."""
    begin: Begin | None = None
    """None if the sides begin with the codes of their languages."""


def read_tokenizer(
    directory: Path,
    config: Mapping[str, Any],
    source_begin: Sequence[str] | None = None,
    target_begin: Sequence[str] | None = None,
) -> ImportedTokenizer:
    """Read the tokenizer of a folder, with the same ids for the same text but for their order.

    Text is segmented as by sentencepiece, which the models were trained with. Ids differ from those
    of transformers 5 where a text spells a mark, such as "</s>" (text here, but for a language
    code ">>fra<<" of Marian before a text and sentinels of T5 after a space), has spaces around it
    (NLLB, mBART-50 and Pegasus keep them there), or has a combining mark after a letter that
    normalization changes. An empty text has no begin marks.

    Args:
        directory: holds the files of the tokenizer.
        config: content of config.json.
        source_begin, target_begin: pieces or language codes that begin the texts of a side, in
            place of what the folder says.

    Raises:
        UserError: for files that are missing or damaged, a kind of tokenizer that is not supported,
            or a language that is not known.
    """
    folder, kind = _Folder(directory), str(config.get("model_type"))
    if kind not in FAMILIES:
        kinds = ", ".join(FAMILIES)
        raise UserError(f"{directory} has a tokenizer of {kind}; supported are {kinds}")
    read, defaults = FAMILIES[kind]
    generation = folder.json("generation_config.json")
    settings = {**defaults, **_present(config), **_present(generation)}  # as `generate` reads them
    is_plain = bool(folder.complete) and folder.config.get("tokenizer_class") in _PLAIN
    vocabulary = (_plain if is_plain else read)(folder, settings)
    begin = _begins(vocabulary, folder, settings, (source_begin, target_begin))
    template, end = _template(folder), _number(folder, settings, "eos_token_id")
    name_of = {row: name for name, row in vocabulary.rows[0].items()}
    if template and vocabulary.begin and template != (vocabulary.begin[0], (name_of.get(end),)):
        raise UserError(
            f"{folder.path / 'tokenizer.json'} puts {' '.join(template[0]) or 'nothing'} before a "
            f"text and {' '.join(template[1]) or 'nothing'} after it, which is not supported"
        )
    layouts = [_layout(folder, settings, rows) for rows in vocabulary.rows]
    for model in vocabulary.models:
        if isinstance(model, ForeignModel) and all(piece.kind != NORMAL for piece in model.pieces):
            raise UserError(f"{directory} has a tokenizer without pieces; download it again")
    size = len(layouts[0].rows)
    if size != len(layouts[-1].rows):
        raise UserError(f"{directory} has vocabularies of different sizes, which is not supported")
    contents = []
    for number, model in enumerate(vocabulary.models):
        names = layouts[min(number, len(layouts) - 1)].names
        control = {*vocabulary.control, *(name for name in names if _EMPTY.fullmatch(name))}
        contents.append(model.adopted(names, control, vocabulary.symbols))
    target = contents[1] if len(contents) > 1 else None
    joint = len(layouts) == 1
    try:
        tokenizer = Tokenizer(contents[0], target, joint=joint, begin=begin, size=size)
    except UserError as error:
        raise UserError(f"{directory}: {error}") from error
    rows = layouts[-1].rows
    doubled = {PAD: [rows[UNK], rows[EOS]], UNK: [rows[EOS]]}
    lacking = [BOS, *(mark for mark, used_rows in doubled.items() if rows[mark] in used_rows)]
    return ImportedTokenizer(tokenizer, layouts[0].rows, rows, tuple(sorted(lacking)))


class _Layout(NamedTuple):
    """The order of our ids: names of the pieces after the marks, and rows of all."""

    names: list[str]
    rows: list[int]


def _layout(folder: _Folder, settings: Mapping[str, Any], rows: Mapping[str, int]) -> _Layout:
    size, unknown = _number(folder, settings, "vocab_size"), folder.unknown()
    if unknown not in rows:
        raise UserError(f"{folder.path} has no piece {unknown} for unknown text")
    pad, start, end = (
        _number(folder, settings, name)
        for name in ("pad_token_id", "decoder_start_token_id", "eos_token_id")
    )
    marks = [pad, rows[unknown], start, end]
    name_of = {row: name for name, row in rows.items()}
    beyond = max(*name_of, *marks)
    if beyond >= size or len(name_of) != len(rows):
        raise UserError(
            f"{folder.path} has a tokenizer of another model: row {beyond} of {size} embeddings"
        )
    if size - len(name_of) > min(_MOST_EMPTY, size // 4):
        raise UserError(
            f"{folder.path} has a tokenizer that is damaged or of another model: {len(name_of):,} "
            f"pieces for {size:,} embeddings"
        )
    unmarked = [row for row in range(size) if row not in {pad, rows[unknown], end}]
    return _Layout([name_of.get(row, f"<row {row}>") for row in unmarked], [*marks, *unmarked])


def _begins(
    vocabulary: _Vocabulary,
    folder: _Folder,
    settings: Mapping[str, Any],
    chosen: Sequence[Sequence[str] | None],
) -> Begin:
    """Return the pieces that begin each side: chosen ones, else what the folder says."""
    forced = settings.get("forced_bos_token_id")
    name_of = {row: name for name, row in vocabulary.rows[-1].items()}
    sides: list[tuple[str, ...]] = []
    for number, side in enumerate(("source", "target")):
        pieces, rows = chosen[number], vocabulary.rows[-number]
        if pieces is None and number and isinstance(forced, int) and forced in name_of:
            pieces = [name_of[forced]]
        elif pieces is None and vocabulary.begin is not None:
            pieces = vocabulary.begin[number]
        elif pieces is None:
            language = folder.config.get(("src_lang", "tgt_lang")[number])
            if language is None:
                raise UserError(
                    f"{folder.path} names no {side} language; add {side}_begin=[CODE], with one "
                    f"of {_some(vocabulary.codes)}"
                )
            pieces = [str(language)]
        pieces = tuple(vocabulary.codes.get(name, name) for name in pieces)
        for name in pieces:
            if name not in rows:
                codes = f"; use one of {_some(vocabulary.codes)}" if vocabulary.codes else ""
                raise UserError(f"{side}_begin: {folder.path} has no piece {name!r}{codes}")
        sides.append(pieces)
    return Begin(*sides)


def _marian(folder: _Folder, settings: Mapping[str, Any]) -> _Vocabulary:
    models = [folder.model("source.spm"), folder.model("target.spm")]
    rows = [folder.vocabulary("vocab.json")]
    if folder.config.get("separate_vocabs"):
        rows.append(folder.vocabulary("target_vocab.json"))
    codes = [name for name in rows[0] if name.startswith(">>") and name.endswith("<<")]
    return _Vocabulary(models, rows, codes, begin=Begin())


def _m2m_100(folder: _Folder, settings: Mapping[str, Any]) -> _Vocabulary:
    if not folder.has("vocab.json"):
        return _fairseq(folder, settings)
    rows, added = folder.vocabulary("vocab.json"), folder.added()
    special = [name for name in folder.special() if name.startswith("__")]
    codes = special or [f"__{code}__" for code in _M2M_CODES]
    for number, name in enumerate(codes, len(rows)):
        rows[name] = added.get(name, number)
    models = [folder.model("sentencepiece.bpe.model")]
    return _Vocabulary(models, [rows], {"<s>", *codes}, codes={name[2:-2]: name for name in codes})


def _fairseq(folder: _Folder, settings: Mapping[str, Any]) -> _Vocabulary:
    """NLLB and mBART-50, whose ids are sentencepiece's, shifted by one, before the languages."""
    if folder.config.get("legacy_behaviour"):
        raise UserError(f"{folder.path} puts language codes after the text, which is not supported")
    special = folder.special()
    if folder.has("sentencepiece.bpe.model"):
        model = folder.model("sentencepiece.bpe.model")
        names = ["<s>", "<pad>", "</s>", "<unk>", *(piece.name for piece in model.pieces[3:])]
        existing = {*names, "<mask>"}
        names += [*(name for name in special if name not in existing), "<mask>"]
        rows = {name: row for row, name in enumerate(names)} | folder.added()
    else:
        model, rows = _complete(folder, "<unk>")
        special += [name for name in folder.added() if name not in special]
    codes = [name for name in special if _LANGUAGE.fullmatch(name) and name in rows]
    if not codes:
        raise UserError(
            f"{folder.path} lists no language codes; add special_tokens_map.json or tokenizer.json"
        )
    return _Vocabulary([model], [rows], {"<s>", "<mask>", *codes}, codes={n: n for n in codes})


def _mbart(folder: _Folder, settings: Mapping[str, Any]) -> _Vocabulary:
    vocabulary = _fairseq(folder, settings)
    kind = str(folder.config.get("tokenizer_class"))
    if "xh_ZA" not in vocabulary.codes or kind.removesuffix("Fast") == "MBartTokenizer":
        raise UserError(
            f"{folder.path} is mBART-cc25 or has its tokenizer, which puts language codes after "
            "the text; use mBART-50"
        )
    return vocabulary


def _t5(folder: _Folder, settings: Mapping[str, Any]) -> _Vocabulary:
    unknown = folder.unknown()
    if folder.has("spiece.model"):
        model = folder.model("spiece.model")
        rows = {piece.name: row for row, piece in enumerate(model.pieces)}
        count = folder.config.get("extra_ids", 100)
        if not any("<extra_id_" in name for name in rows) and isinstance(count, int):
            end = len(rows) + min(count, 1_000)
            rows |= {f"<extra_id_{n}>": end - 1 - n for n in range(end - len(rows))}
    else:
        model, rows = _complete(folder, unknown)
    # the space before a sentinel belongs to it
    symbols = {name: f"▁{name.lstrip('▁')}" for name in rows if "<extra_id_" in name}
    rows = {symbols.get(name, name): row for name, row in rows.items()}
    return _Vocabulary([model], [rows], (), symbols.values(), begin=Begin())


def _pegasus(folder: _Folder, settings: Mapping[str, Any]) -> _Vocabulary:
    if folder.has("spiece.model"):
        model, offset = folder.model("spiece.model"), folder.config.get("offset", 103)
        special = ["<mask_1>", "<mask_2>", *(f"<unk_{n}>" for n in range(2, 103))]
        if offset != len(special):
            raise UserError(f"{folder.path} has {offset} reserved pieces; supported are 103")
        names = ["<pad>", "</s>", *special, *(piece.name for piece in model.pieces[2:])]
        rows = {name: row for row, name in enumerate(names)}
    else:
        model, rows = _complete(folder, folder.unknown())
        special = [*folder.added()]
    return _Vocabulary([model], [rows], special, begin=Begin())


def _bart(folder: _Folder, settings: Mapping[str, Any]) -> _Vocabulary:
    if folder.has("vocab.json") or not folder.complete:
        rows, added = folder.vocabulary("vocab.json"), folder.added()
        lines = (
            read_bytes(folder.path / "merges.txt", _LARGEST).decode("utf-8", "replace").split("\n")
        )
        merges = [line for line in lines[lines[0].startswith("#version") :] if line]
    else:
        spec = _dict(folder.complete.get("model"))
        rows, added = _rows(_dict(spec.get("vocab")).items(), folder.path), folder.added()
        pairs = _list(spec.get("merges"))
        merges = [pair if isinstance(pair, str) else " ".join(map(str, pair)) for pair in pairs]
    rows |= added
    marks = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    control = {name for name in (*marks, *added) if name in rows}
    splitting = _dict(folder.complete.get("pre_tokenizer"))
    prefix = folder.config.get("add_prefix_space", splitting.get("add_prefix_space")) is True
    begin = Begin(("<s>",), ("<s>",))
    return _Vocabulary([_ByteLevel(merges, prefix)], [rows], control, begin=begin)


def _complete(folder: _Folder, unknown: str) -> tuple[ForeignModel, dict[str, int]]:
    """Read the model and the rows of tokenizer.json."""
    path = folder.path / "tokenizer.json"
    if not folder.complete:
        raise UserError(f"{path} is missing, and so is a sentencepiece model; download one")
    spec = _dict(folder.complete.get("model"))
    vocabulary, kind = spec.get("vocab"), spec.get("type")
    added = folder.added()
    try:
        if kind == "Unigram" and isinstance(vocabulary, list):
            scored = [(str(name), float(score)) for name, score in vocabulary]
            rows = {name: row for row, (name, _) in enumerate(scored)}
        elif kind == "BPE" and isinstance(vocabulary, dict):
            rows = _rows(vocabulary.items(), path)
            merges = [one.split(" ") if isinstance(one, str) else one for one in spec["merges"]]
            ranks: dict[str, float] = {}
            for rank, (left, right) in enumerate(merges, 1):
                ranks.setdefault(left + right, -float(rank))
            scored = [(name, ranks.get(name, -float(len(merges)) - 1)) for name in rows]
        else:
            raise UserError(f"{path} is of kind {kind}; supported are Unigram and BPE")
        for name, score in scored:
            if not abs(score) <= _LARGEST_SCORE:
                raise ValueError(f"the score of {name!r} is {score}")
        normalizer = _normalizer(folder.complete)
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise UserError(f"{path} is not a tokenizer: {error}") from error
    fallback = spec.get("byte_fallback") is True
    kinds = {unknown: UNKNOWN} | {name: CONTROL for name in added if name != unknown}
    pieces = [
        Piece(name, score, kinds.get(name, BYTE if fallback and _BYTES.fullmatch(name) else NORMAL))
        for name, score in scored
        if name in rows
    ]
    model = ForeignModel.of(pieces, UNIGRAM if kind == "Unigram" else BPE, normalizer)
    return model, rows | added


def _normalizer(spec: Mapping[str, Any]) -> Normalizer:
    """Return the changes to a text of a tokenizer.json; raise ValueError for unknown ones."""
    rules, signs, prefix = b"", False, []
    for step in _steps(spec, "normalizer"):
        kind, pattern = step.get("type"), _dict(step.get("pattern"))
        text = str(pattern.get("String", pattern.get("Regex", "")))
        if kind == "Precompiled" or "precompiled_charsmap" in step:
            rules += base64.b64decode(step["precompiled_charsmap"], validate=True)
        elif kind == "Prepend":
            prefix.append(step.get("prepend") == "▁")
        elif kind != "Strip" and not (kind == "Replace" and {*text} <= _SPACES):
            raise ValueError(f"its normalizer has {kind} {text!r}, which is not supported")
        signs = signs or text == "\U0010fffb"
    for step in _steps(spec, "pre_tokenizer"):
        if step.get("type") not in ("Metaspace", "WhitespaceSplit"):
            raise ValueError(f"its pre_tokenizer has {step.get('type')}, which is not supported")
        always = "always" if step.get("add_prefix_space", True) else "never"
        prefix.append(step.get("prepend_scheme", always) != "never")
    return Normalizer(rules, any(prefix), not signs)


def _steps(spec: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the steps of a part of tokenizer.json, none or one or a sequence."""
    node = spec.get(key)
    if node is None:
        return []
    if not isinstance(node, dict):
        raise ValueError(f"its {key} is not an object")
    parts = node.get({"normalizer": "normalizers", "pre_tokenizer": "pretokenizers"}[key])
    return [node] if parts is None else [s for one in _list(parts) for s in _steps({key: one}, key)]


def _plain(folder: _Folder, settings: Mapping[str, Any]) -> _Vocabulary:
    """Read a tokenizer.json alone, with marks around a text as it says; exports have no others."""
    if _dict(folder.complete.get("pre_tokenizer")).get("type") == "ByteLevel":
        vocabulary = _bart(folder, settings)
    else:
        model, rows = _complete(folder, folder.unknown())
        vocabulary = _Vocabulary([model], [rows], [*folder.added()])
    prefix, _ = _template(folder) or ((), ())
    return replace(vocabulary, begin=Begin(prefix))


def _template(folder: _Folder) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return the marks before and after a text of tokenizer.json; None if it says nothing."""
    spec = _dict(folder.complete.get("post_processor"))
    if spec.get("type") == "RobertaProcessing":
        prefix, suffix = (_list(spec.get(key))[:1] for key in ("cls", "sep"))
        return tuple(map(str, prefix)), tuple(map(str, suffix))
    parts = [entry for part in _list(spec.get("single")) for entry in _dict(part).items()]
    names = [str(_dict(value).get("id")) for _, value in parts]
    indices = [index for index, (kind, _) in enumerate(parts) if kind == "Sequence"]
    return (tuple(names[: indices[0]]), tuple(names[indices[0] + 1 :])) if indices else None


_BYTES = re.compile("<0x[0-9A-F]{2}>")
_EMPTY, _LANGUAGE = re.compile(r"<row \d+>"), re.compile(r"[a-z]{2,3}_([A-Z]{2}|[A-Z][a-z]{3})")
FAMILIES: dict[Any, tuple[Callable[[_Folder, Mapping[str, Any]], _Vocabulary], dict[str, int]]] = {
    "marian": (_marian, {"eos_token_id": 0}),
    "m2m_100": (_m2m_100, _SHIFTED),
    "mbart": (_mbart, _SHIFTED),
    "t5": (_t5, _T5),
    "mt5": (_t5, _T5),
    "pegasus": (_pegasus, _T5),
    "bart": (_bart, _SHIFTED),
}


def _number(folder: _Folder, settings: Mapping[str, Any], key: str) -> int:
    value = settings.get(key)
    value = value[0] if isinstance(value, list) and value else value
    if not isinstance(value, int) or not 0 <= value < _MOST_ROWS:
        raise UserError(f"{folder.path}: config.json needs {key}, a number, got {value!r}")
    return value


def _rows(named_rows: Iterable[tuple[str, Any]], path: Path) -> dict[str, int]:
    """Check rows of pieces; names that no sentencepiece model can have are left out."""
    rows = {}
    for name, row in named_rows:
        if type(row) not in (int, str) or not re.fullmatch("[0-9]{1,9}", str(row)):
            raise UserError(f"{path}: the row of {name!r} must be a number, got {shown(row)}")
        if name and "\0" not in name:
            rows[name] = int(row)
    return rows


def _present(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if value is not None}


def _name(piece: Any) -> str:
    """Return the name of a piece: itself, or the content of an object."""
    return str(_dict(piece).get("content", "")) if isinstance(piece, dict) else str(piece)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _some(names: Collection[str]) -> str:
    """Return a few of many names, for a message."""
    examples = [*names][:5]
    return ", ".join(examples) + (" ..." if len(names) > 5 else "")
