"""Generation from files of several texts, whose translations are written in their place."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from seqattn.bundle.text_options import TextOption
from seqattn.extras.files.catalogs import Catalog
from seqattn.extras.files.documents import WordDocument
from seqattn.extras.files.exchange_files import ExchangeFile
from seqattn.extras.files.formats import TranslatedFile
from seqattn.extras.files.subtitles import Subtitles
from seqattn.storage import kind_of


@dataclass(frozen=True)
class Files(TextOption):
    """Files of subtitles (srt, vtt), catalogs of gettext (po), XLIFF, TMX and documents (docx).

    Only translations are written into the text of a file; the rest stays as it is.

    Args:
        everything: True to translate again what has a translation in the file.
        source_language, target_language: of the texts to translate and of their translations, such
            as "de", in XLIFF and TMX; None for those of the file.
    """

    everything: bool = False
    source_language: str | None = None
    target_language: str | None = None
    formats: ClassVar[Sequence[str]] = (
        ".srt", ".vtt", ".po", ".pot", ".xliff", ".xlf", ".tmx", ".docx",
    )  # fmt: skip
    units_need: ClassVar[Mapping[str, str]] = {"markup": "html"}

    @property
    def has_effect(self) -> bool:
        """False for the defaults, which change nothing but the reading of such files."""
        return self != Files()

    def _file(self, path: Path) -> TranslatedFile:
        kind = kind_of(path).lower()
        if kind in (".srt", ".vtt"):
            return Subtitles(path)
        if kind in (".po", ".pot"):
            return Catalog(path, self.everything)
        if kind == ".docx":
            return WordDocument(path)
        return ExchangeFile(path, self.everything, self.source_language, self.target_language)

    def units(self, path: Path) -> Sequence[str]:
        return self._file(path).units()

    def written(self, path: Path, outputs: Iterable[str]) -> Iterator[bytes]:
        return self._file(path).written(outputs)
