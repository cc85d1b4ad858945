"""A corpus of what a model wrote, made in parts so that a kill loses little."""

import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any, ClassVar

from seqattn.bundle.text_bundle import TextBundle
from seqattn.checking import Count, CountOrNone
from seqattn.data.base import Texts
from seqattn.extras.corpora.corpora import (
    pair_line,
    read_splits,
    texts_contents,
    where_it_is,
    write_choice,
)
from seqattn.generation.base import Progress, Search
from seqattn.generation.generator import Generator
from seqattn.generation.windows import generate_from_windows
from seqattn.screen import print_table, progress
from seqattn.storage import file_faults, is_file, user_path, write_whole
from seqattn.training.run_directory import claimed
from seqattn.training.task_options import task_class
from seqattn.verbs.bundle_run import BundleRun
from seqattn.verbs.made_from import MadeFrom, bundle_contents

_PART = 5_000
"""Sources that are searched together, and lost by a kill at most."""


@dataclass(frozen=True, kw_only=True)
class SyntheticCorpus(BundleRun):
    """A corpus for training of which a bundle wrote one side.

    Args:
        bundle, device, trust, ensemble: as `BundleRun`; what writes.
        data: pairs, as the bundle was trained on them.
        generation: the search.
        output: the directory that is made; the same command goes on in it after a stop.
        originals: how often the training pairs of `data` stand beside those that are made.
        sentences: the first so many are read; None for all.
        cache_dir: of the data; None for the usual place.
    """

    verb: ClassVar[str]
    choice: ClassVar[str]
    """What the corpus is called as `data=NAME`."""

    data: Any
    generation: Search
    output: str
    originals: CountOrNone = 0
    sentences: Count | None = None
    cache_dir: str | None = None

    @property
    def search(self) -> Search:
        """The search as it is used."""
        return self.generation

    def turned(self, texts: Texts) -> Texts:
        """Pairs of `data` as the corpus has them."""
        return texts

    def inputs(self, train: Texts) -> Texts:
        """What the bundle reads. Args: train: the training pairs of `data`."""
        return train

    @abstractmethod
    def pair(self, number: int, inputs: Texts, outputs: Sequence[str]) -> tuple[str, str]:
        """Source and target of the corpus. Args: outputs: for input `number`, best first."""

    def run(self) -> Path:
        """Writes the corpus; returns its directory.

        Raises:
            UserError: where the bundle or the data cannot be used, or the directory is taken.
        """
        bundle = self.load(self.generation).texts(self.verb)
        source = task_class(bundle.config).source(self.data)
        splits, told = read_splits(source, self.cache_dir)
        directory = user_path(self.output)
        with claimed(directory, "output"):
            made_from = self.made_from(splits)
            finished = made_from.is_finished(directory, f"data/{self.choice}.yaml")
            told = self._make(bundle, splits, directory, made_from) | told
        if not finished:
            notes = where_it_is(directory, self.choice)
            print_table(f"{self.verb} by {self.names}", told, notes=notes)
        return directory

    def _make(
        self, bundle: TextBundle, splits: dict[str, Texts], directory: Path, made_from: MadeFrom
    ) -> dict[str, str]:
        """Writes all files that are not there yet; tells how much was written."""
        inputs = self.inputs(splits["train"])
        inputs = inputs if self.sentences is None else inputs.first(self.sentences)
        splits = {split: self.turned(texts) for split, texts in splits.items()}
        told = self._write(bundle, inputs, directory / "synthetic.jsonl", made_from)
        names = {split: [f"{split}.jsonl"] for split in splits}
        names["train"] = ["synthetic.jsonl", *["original.jsonl"] * self.originals]
        for split, texts in splits.items():
            if split != "train" or self.originals:
                rows = zip(texts.sources, texts.targets, texts.references, strict=True)
                write_whole(directory / names[split][-1], starmap(pair_line, rows))
        write_choice(directory, self.choice, names, source_column="source")
        return told

    def deciding(self) -> dict[str, Any]:
        """Return all settings that decide what the model writes."""
        search = self.settings["generation"]
        kept = {key: value for key, value in search.items() if key != "workers"}
        return {"verb": self.verb, "generation": kept, "sentences": self.sentences}

    def contents(self) -> dict[str, list[str]]:
        """Digests of what is read beside the data."""
        read = {"bundle": bundle_contents(self.bundle)}
        return read | ({"ensemble": bundle_contents(*self.ensemble)} if self.ensemble else {})

    def made_from(self, splits: dict[str, Texts]) -> MadeFrom:
        """What decides the corpus. Args: splits: of `data`."""
        contents = self.contents() | texts_contents(splits)
        return MadeFrom(settings=self.deciding(), contents=contents)

    def _write(
        self, bundle: TextBundle, inputs: Texts, file: Path, made_from: MadeFrom
    ) -> dict[str, str]:
        """Appends pair after pair, from where a run was stopped; tells how many and how fast."""
        total, part, began = len(inputs.sources), file.with_suffix(".part"), time.perf_counter()
        if is_file(file):
            return {"sentences": f"{total:,}, all there"}
        with file_faults("write", part):
            first = _whole_parts(part)
            with (
                progress("writing", "sentences") as tell,
                bundle.generator(self.search).open() as generator,
            ):
                for start in range(first, total, _PART):
                    numbers = range(start, min(start + _PART, total))
                    pairs = [*self._pairs(bundle, generator, inputs, numbers, tell)]
                    made_from.write(file.parent)  # now, so that a refused search binds nobody
                    with part.open("ab") as rows:
                        rows.writelines(starmap(pair_line, pairs))
            part.replace(file)
        rate = (total - first) / (time.perf_counter() - began)
        there = f", {first:,} there already" if first else ""
        return {"sentences": f"{total - first:,} ({rate:,.1f} a second){there}"}

    def _pairs(
        self,
        bundle: TextBundle,
        generator: Generator,
        inputs: Texts,
        numbers: range,
        tell: Progress,
    ) -> Iterator[tuple[str, str, list[str]]]:
        encoded = bundle.encode([inputs.sources[number] for number in numbers])

        def moved(done: int, _: int) -> None:
            tell(numbers.start + done, len(inputs.sources))

        found = generate_from_windows(generator, encoded, numbers, moved)
        for number, some in zip(numbers, found, strict=True):
            outputs = bundle.tokenizer.decode_target([one.ids for one in some])
            yield *self.pair(number, inputs, outputs), []


def _whole_parts(file: Path) -> int:
    """Cuts a file back to the parts of it that are whole; gives the lines that stay."""
    lines = size = kept = 0
    if not file.exists():
        return 0
    with file.open("r+b") as rows:
        for number, line in enumerate(rows, 1):
            size += len(line)
            if number % _PART == 0 and line.endswith(b"\n"):
                lines, kept = number, size
        rows.truncate(kept)
    return lines
