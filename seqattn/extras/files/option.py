"""Generation from files of several texts, whose translations are written in their place."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from seqattn.bundle.text_options import TextOption
from seqattn.extras.files.catalogs import Catalog
from seqattn.extras.files.formats import TranslatedFile
from seqattn.extras.files.subtitles import Subtitles
from seqattn.storage import kind_of


@dataclass(frozen=True)
class Files(TextOption):
    """Files of subtitles (srt, vtt) and catalogs of gettext (po).

    Only translations are written into the text of a file; the rest stays as it is.

    Args:
        everything: True to translate again what has a translation in a catalog.
    """

    everything: bool = False
    formats: ClassVar[Sequence[str]] = (".srt", ".vtt", ".po", ".pot")
    units_need: ClassVar[Mapping[str, str]] = {"markup": "html"}

    def _file(self, path: Path) -> TranslatedFile:
        kind = kind_of(path).lower()
        return Catalog(path, self.everything) if kind in (".po", ".pot") else Subtitles(path)

    def units(self, path: Path) -> Sequence[str]:
        return self._file(path).units()

    def written(self, path: Path, outputs: Iterable[str]) -> Iterator[bytes]:
        return self._file(path).written(outputs)
