"""Translation memories, XLIFF and catalogs of gettext as training pairs."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from xml.parsers import expat

from seqattn.checking import NotNegative
from seqattn.data.base import TOGETHER, FileOrHub, Files
from seqattn.errors import UserError
from seqattn.extras.files.catalogs import Catalog
from seqattn.extras.files.exchange_files import language_of, matches
from seqattn.inputs import opened
from seqattn.storage import digest_of, kind_of

if TYPE_CHECKING:
    from datasets import Dataset

_KINDS = (".tmx", ".xliff", ".xlf", ".po")
_AT_ONCE, _LONGEST, _DEEPEST = 1 << 16, 1_000_000, 256  # bytes read, characters and elements
_NOT_TEXT = frozenset(("bpt", "ept", "it", "ph", "ut"))
"""Elements of codes in a text."""
_TEXTS = frozenset(("seg", "source", "target"))
_UNITS = frozenset(("tu", "trans-unit", "segment"))


class Segments(FileOrHub):
    """Pairs of the units of TMX, XLIFF and PO files, as plain text without their codes.

    A file is read as a stream, however large it is. Units without one of the languages, or without
    a translation, are left out.

    Args:
        files: as of `FileOrHub`; names end in .tmx, .xliff, .xlf or .po, and maybe in .gz.
        source_language, target_language: codes such as "en", which also reads "en-US".
        hold_out, hold_out_test: number of pairs, or share if below 1, that are drawn from train to
            be val and test, always the same ones; 0 for none.
        hold_out_by: what is drawn together: all pairs of a source, or equal pairs alone.

    Raises:
        UserError: for another suffix.
    """

    def __init__(
        self,
        files: Files,
        source_language: str,
        target_language: str,
        hold_out: NotNegative = 0,
        hold_out_test: NotNegative = 0,
        hold_out_by: Literal["source", "pair"] = "source",
    ) -> None:
        super().__init__(files, None)
        for path in [path for paths in self.paths.values() for path in paths]:
            if kind_of(path).lower() not in _KINDS:
                kinds = ", ".join(_KINDS)
                raise UserError(f"names in data.files must end in one of {kinds}, got {path}")
        self.languages = source_language, target_language
        self.hold_out(hold_out, hold_out_test, TOGETHER[hold_out_by])

    @property
    def source_name(self) -> str:
        return self.languages[0]

    def load(self, split: str, cache_dir: Path | None = None) -> "Dataset":
        _ = self.origin(split)
        from seqattn.data.arrow_tables import TEXT, table_of  # `datasets` takes a second to import

        paths = self.files(split)
        self.check_files([split])
        content = " ".join(["segments", *self.languages, *map(digest_of, paths)])
        rows = ({"source": source, "target": target} for source, target in self._pairs(paths))
        table = table_of(rows, {"source": TEXT, "target": TEXT}, content, cache_dir)
        if not len(table):
            source, target = self.languages
            raise UserError(
                f"{self.origin(split)} has no units with texts in {source} and {target}; correct "
                "data.source_language and data.target_language"
            )
        return self.part(table, split)

    def stream(self, split: str) -> Iterator[tuple[str, str]]:
        if self.held_out:
            yield from super().stream(split)
            return
        _ = self.origin(split)
        yield from self._pairs(self.files(split))

    def _pairs(self, paths: list[Path]) -> Iterator[tuple[str, str]]:
        for path in paths:
            if kind_of(path).lower() == ".po":
                yield from Catalog(path).translated()
            else:
                yield from _Units(path, self.languages).pairs()


class _Units:
    """Reader of the units of a file of XML. Args: languages: of sources and targets."""

    def __init__(self, path: Path, languages: tuple[str, str]) -> None:
        self._path, self._languages = path, languages
        self._ready: list[tuple[str, str]] = []
        self._names: list[str] = []
        self._texts: dict[str, str] = {}
        self._language, self._own = "", dict[str, str]()
        self._pieces: list[str] | None = None
        self._size = self._codes = 0

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs.

        Raises:
            UserError: if the file is not well-formed, declares entities, or exceeds a bound.
        """
        parser = expat.ParserCreate()
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler, parser.EntityDeclHandler = self._text, self._refuse
        with opened(self._path) as file:
            while True:
                part = file.read(_AT_ONCE)
                try:
                    parser.Parse(part, not part)
                except expat.ExpatError as error:
                    raise UserError(f"{self._path} is not well-formed XML: {error}") from error
                yield from self._ready
                self._ready.clear()
                if not part:
                    return

    def _refuse(self, *_: object) -> None:
        raise UserError(f"{self._path} declares entities; remove the declarations")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        self._names.append(name)
        if len(self._names) > _DEEPEST:
            raise UserError(f"{self._path} nests deeper than {_DEEPEST} elements")
        if self._pieces is not None:
            self._codes += name in _NOT_TEXT
        elif name in ("xliff", "file"):  # XLIFF names its languages there
            for side, keys in (("source", ("srcLang", "source-language")),
                               ("target", ("trgLang", "target-language"))):  # fmt: skip
                found = [attributes[key] for key in keys if key in attributes]
                self._own[side] = found[0] if found else self._own.get(side, "")
        elif name == "tuv":
            self._language = language_of(attributes)
        elif name in _TEXTS:
            self._pieces, self._size = [], 0
        elif name in _UNITS:
            self._texts = {}

    def _text(self, text: str) -> None:
        if self._pieces is None or self._codes:
            return
        self._pieces.append(text)
        self._size += len(text)
        if self._size > _LONGEST:
            raise UserError(f"{self._path} has a text of more than {_LONGEST:,} characters")

    def _end(self, name: str) -> None:
        name = name.rpartition(":")[2]
        self._names.pop()
        if self._pieces is not None:
            if name not in _TEXTS or self._names[-1:] == ["sub"]:
                self._codes -= name in _NOT_TEXT
                return
            code = self._language if name == "seg" else self._own.get(name, "")
            text, self._pieces = " ".join("".join(self._pieces).split()), None
            for side, language in zip(("source", "target"), self._languages, strict=True):
                fits = not code or matches(code, language)
                if fits and (name == "seg" or name == side) and side not in self._texts:
                    self._texts[side] = text
        elif name in _UNITS and self._texts.get("source") and self._texts.get("target"):
            self._ready.append((self._texts["source"], self._texts["target"]))
