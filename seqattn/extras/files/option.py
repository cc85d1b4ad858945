"""Generation from files of several texts, whose translations are written in their place."""

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

from seqattn.bundle.text_options import TextOption, options_of
from seqattn.errors import UserError
from seqattn.extras.files.catalogs import Catalog
from seqattn.extras.files.codes import ELEMENT
from seqattn.extras.files.documents import WordDocument
from seqattn.extras.files.exchange_files import ExchangeFile
from seqattn.extras.files.formats import (
    LONGEST,
    BrokenUnit,
    TranslatedFile,
    Translation,
    Translations,
)
from seqattn.extras.files.subtitles import Subtitles
from seqattn.inputs import read_bytes
from seqattn.screen import say
from seqattn.storage import kind_of

_SHOWN = 5  # broken units
_SHALLOW = 300  # characters of a unit that cannot have as many elements as are too many
_PAGES = (".html", ".htm", ".xhtml")


class Page(TranslatedFile):
    """A web page, which is one text. Args: path, skip_broken: as `TranslatedFile`."""

    def units(self) -> Sequence[str]:
        return [options_of(Files.units_need)["markup"].read(self.path)]

    def name(self, number: int) -> str:
        return "the page"

    def written(self, translations: Translations) -> Iterator[bytes]:
        for translation, text in zip(translations, self.units(), strict=True):
            mark = "\ufeff" * read_bytes(self.path, LONGEST).startswith(BOM_UTF8)
            yield f"{mark}{text if translation is None else translation.html}".encode()


@dataclass(frozen=True)
class Files(TextOption):
    """Subtitles (srt, vtt), catalogs of gettext (po), XLIFF, TMX, documents (docx) and web pages.

    Only translations are written into the text of a file; the rest stays as it is.

    Args:
        everything: True to translate again what has a translation in the file.
        skip_broken: True to leave units that cannot be read as they are.
        source_language, target_language: of the texts to translate and of their translations, such
            as "de", in XLIFF and TMX; None for those of the file.
    """

    everything: bool = False
    skip_broken: bool = False
    source_language: str | None = None
    target_language: str | None = None
    formats: ClassVar[Sequence[str]] = (
        ".srt", ".vtt", ".po", ".pot", ".xliff", ".xlf", ".tmx", ".docx", *_PAGES,
    )  # fmt: skip
    noted: ClassVar[Sequence[str]] = (".vtt", ".po", ".pot", ".xliff", ".xlf", ".tmx")
    units_need: ClassVar[Mapping[str, str]] = {"markup": "html"}

    @property
    def has_effect(self) -> bool:
        """False for the defaults, which change nothing but the reading of such files."""
        return self != Files()

    def _file(self, path: Path) -> TranslatedFile:
        kind = kind_of(path).lower()
        if kind in (".srt", ".vtt"):
            return Subtitles(path, self.skip_broken)
        if kind in (".po", ".pot"):
            return Catalog(path, self.everything, self.skip_broken)
        if kind == ".docx":
            return WordDocument(path, self.skip_broken)
        if kind in _PAGES:
            return Page(path, self.skip_broken)
        languages = self.source_language, self.target_language
        return ExchangeFile(path, self.everything, *languages, skip_broken=self.skip_broken)

    def _read(self, path: Path) -> tuple[TranslatedFile, list[str | None]]:
        """Return a file, and its units; None for one that is too deep or long."""
        try:
            file = self._file(path)
            return file, [self._readable(file, *one) for one in enumerate(file.units())]
        except BrokenUnit as error:
            raise UserError(f"{error}; add files.skip_broken=true to leave it as it is") from error

    def _readable(self, file: TranslatedFile, number: int, unit: str) -> str | None:
        """Return a unit of a file; None if it is too deep or long, which is noted."""
        try:
            if len(unit) > _SHALLOW:
                options_of(self.units_need)["markup"].split([unit])
        except UserError as error:
            file.leave(file.name(number), str(error))
            return None
        return unit

    def units(self, path: Path) -> Sequence[str]:
        return [unit for unit in self._read(path)[1] if unit is not None]

    def written(self, path: Path, outputs: Iterable[str]) -> Iterator[bytes]:
        return self._written(path, map(Translation, outputs))

    def with_notes(self, path: Path, rows: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
        each = (list(some) for _, some in groupby(rows, key=lambda row: row["line"]))
        return self._written(path, (Translation(some[0]["output"], _notes(some)) for some in each))

    def _written(self, path: Path, translations: Iterator[Translation]) -> Iterator[bytes]:
        file, units = self._read(path)
        yield from file.written([unit if unit is None else next(translations) for unit in units])
        if not units:
            say(
                f"{path} has nothing to translate by files.everything, files.source_language and "
                "files.target_language"
            )
        if file.broken:
            some = "; ".join(file.broken[:_SHOWN])
            more = f"; and {len(file.broken) - _SHOWN:,} more" * (len(file.broken) > _SHOWN)
            say(f"units of {path} that stay as they are: {some}{more}")


def _notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return notes on the translations of a unit, the best first: qualities, and other texts."""
    notes = []
    for row in rows:
        quality = row.get("quality") or {}
        parts = [quality.get(key) for key in ("label", "expected")]
        words = ", ".join(str(part) for part in parts if part is not None)
        if row["rank"] > 1:
            html = ELEMENT.sub(lambda code: " " if code["one"] else "", row["output"])
            text = " ".join(unescape(html).split())
            notes.append(f"translation {row['rank']}{f' ({words})' if words else ''}: {text}")
        elif words:
            notes.append(f"quality: {words}")
    return notes
