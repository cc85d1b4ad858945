"""Line-aligned text files: a source of sentence pairs."""

from __future__ import annotations

from pathlib import Path

import datasets

from seqattn.checking import checked
from seqattn.data.arrow_tables import TEXT, table_of
from seqattn.data.base import Source
from seqattn.data.table import Table
from seqattn.data.text_files import read_lines, scan_text
from seqattn.errors import UserError
from seqattn.places import shipped
from seqattn.storage import file_faults, is_file


@checked
class ParallelText(Source):
    """Two line-aligned text files for each split, `ROOT/NAME.SUFFIX`, one sentence a line.

    Every line is kept, an empty one too: training leaves pairs with an empty side out and says
    how many, and evaluation answers an empty source with an empty line.

    Args:
        root: the directory.
        source_suffix: ends the names of the source files, such as "en".
        target_suffix: ends those of the target files; None where there are only sources.
        train, val, test: the files' names without the suffix.
    """

    def __init__(
        self,
        root: str,
        source_suffix: str,
        target_suffix: str | None,
        train: str = "train",
        val: str = "val",
        test: str = "test",
    ) -> None:
        self.root = Path(root).expanduser()
        self.suffixes = {"source": source_suffix}
        if target_suffix is not None:
            self.suffixes["target"] = target_suffix
        self.names = {"train": train, "val": val, "test": test}

    def load(self, split: str, cache_dir: Path | None = None) -> datasets.Dataset:
        paths = self._paths(split)
        lines, digests = zip(*map(scan_text, paths), strict=True)
        if len(set(lines)) > 1:
            said = " and ".join(f"{path} has {n:,}" for path, n in zip(paths, lines, strict=True))
            raise UserError(f"both sides must have as many lines, {said}")
        if lines[0] == 0:
            raise UserError(f"the {split} split must hold text, {paths[0]} is empty")

        pairs = zip(*map(read_lines, paths), strict=True)
        rows = (dict(zip(self.suffixes, pair, strict=True)) for pair in pairs)
        # the content names the cache, not the path: a changed file is read anew
        content = " ".join([*self.suffixes, *digests])
        return table_of(rows, dict.fromkeys(self.suffixes, TEXT), content, cache_dir)

    def origin(self, split: str) -> str:
        return " and ".join(map(str, self._paths(split)))

    def _paths(self, split: str) -> list[Path]:
        """A split's files, which are there."""
        if split not in self.names:
            raise UserError(f"split must be one of {', '.join(self.names)}, got {split!r}")
        paths = [self.root / f"{self.names[split]}.{suffix}" for suffix in self.suffixes.values()]
        with file_faults("read", self.root):
            if not self.root.is_dir():
                raise UserError(f"the data's root must be a directory, {self.root} is not")
            names = sorted(path.name for path in self.root.iterdir() if path.is_file())
        more = f" and {len(names) - 12} more" if len(names) > 12 else ""
        for path in paths:
            if not is_file(path):
                raise UserError(
                    f"the {split} split needs {path.name} in {self.root}, "
                    f"which holds {', '.join(names[:12]) or 'no file'}{more}"
                )
        return paths


@checked
class Multi30k(ParallelText):
    """Multi30k (Elliott 2016, arXiv 1605.00459): image captions; test is test_2016_flickr.

    Args:
        root: a directory with train.en train.de val.* test_2016_flickr.*, and perhaps other test
            sets, each a split under its own name, such as test_2017_flickr or test_2017_mscoco;
            None to take `bentrevett/multi30k` from the hub (English and German).
        source: the source language's suffix or, on the hub, column.
        target: the target's.
    """

    def __init__(self, root: str | None = None, source: str = "en", target: str = "de") -> None:
        super().__init__(root or "", source, target, test="test_2016_flickr")
        self.hub = None
        if root is None:
            self.hub = Table(
                dataset="bentrevett/multi30k", source_column=source, target_column=target
            )
            return
        with file_faults("read", self.root):
            found = sorted(path.stem for path in self.root.glob(f"test_*.{source}"))
        self.names.update(zip(found, found, strict=True))

    def load(self, split: str, cache_dir: Path | None = None) -> datasets.Dataset:
        if self.hub is None:
            return super().load(split, cache_dir)
        try:
            return self.hub.load(split, cache_dir)
        except UserError as error:
            raise UserError(
                f"{error}; give data.root=DIR, a directory with train.en, train.de and so on"
            ) from error

    def origin(self, split: str) -> str:
        return super().origin(split) if self.hub is None else self.hub.origin(split)


class DemoTranslation(ParallelText):
    """The bundled English-German sentences, written by a grammar: see the head of its files."""

    def __init__(self) -> None:
        super().__init__(str(shipped("data") / "demo_translation"), "en", "de")
