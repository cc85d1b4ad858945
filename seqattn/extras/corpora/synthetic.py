"""Synthetic corpora written by a model, saved in parts so that an interruption loses little."""

import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any, ClassVar

from seqattn.bundle.bundle import Bundle
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
from seqattn.screen import print_table, progress
from seqattn.storage import file_faults, is_file, user_path, write_whole
from seqattn.subcommands.bundle_run import BundleRun
from seqattn.subcommands.provenance import Provenance, bundle_contents
from seqattn.training.run_directory import claimed
from seqattn.training.task_options import task_class

_PART = 5_000
"""Number of sources searched together; an interruption loses at most these."""


@dataclass(frozen=True, kw_only=True)
class SyntheticCorpus(BundleRun):
    """Training corpus with one side written by a bundle.

    Args:
        bundle, device, trust, ensemble: as `BundleRun`; the writing model.
        data: pairs, in the direction of the bundle's training.
        generation: search of the outputs.
        output: directory of the new corpus; repeat the command to resume.
        originals: copies of the training pairs of `data` to add to the synthetic pairs.
        sentences: read the first N sources; None for all.
        cache_dir: cache directory of the data; None for the default.
    """

    subcommand: ClassVar[str]
    choice: ClassVar[str]
    """Name of the corpus, as in `data=NAME`."""

    data: Any
    generation: Search
    output: str
    originals: CountOrNone = 0
    sentences: Count | None = None
    cache_dir: str | None = None

    @property
    def search(self) -> Search:
        """Search with the settings in effect."""
        return self.generation

    def in_direction(self, texts: Texts) -> Texts:
        """Return pairs of `data` in the corpus's direction."""
        return texts

    def inputs(self, train: Texts) -> Texts:
        """Return the texts that the bundle reads. Args: train: the training pairs of `data`."""
        return train

    @abstractmethod
    def pair(self, number: int, inputs: Texts, outputs: Sequence[str]) -> tuple[str, str]:
        """Return source and target of a pair. Args: outputs: for input `number`, best first."""

    def run(self) -> Path:
        """Write the corpus and return its directory.

        Raises:
            UserError: if the bundle or the data cannot be used, or the directory is in use.
        """
        bundle = self.load(self.generation).texts(self.subcommand)
        source = task_class(bundle.config).source(self.data)
        splits, summary = read_splits(source, self.cache_dir)
        directory = user_path(self.output)
        with claimed(directory, "output"):
            provenance = self.provenance(splits)
            finished = provenance.is_finished(directory, f"data/{self.choice}.yaml")
            summary = self._make(bundle, splits, directory, provenance) | summary
        if not finished:
            notes = where_it_is(directory, self.choice)
            print_table(f"{self.subcommand} with {self.names}", summary, notes=notes)
        return directory

    def _make(
        self, bundle: Bundle, splits: dict[str, Texts], directory: Path, provenance: Provenance
    ) -> dict[str, str]:
        """Write all missing files and return how much was written."""
        inputs = self.inputs(splits["train"])
        inputs = inputs if self.sentences is None else inputs.first(self.sentences)
        splits = {split: self.in_direction(texts) for split, texts in splits.items()}
        summary = self._write(bundle, inputs, directory / "synthetic.jsonl", provenance)
        names = {split: [f"{split}.jsonl"] for split in splits}
        names["train"] = ["synthetic.jsonl", *["original.jsonl"] * self.originals]
        for split, texts in splits.items():
            if split != "train" or self.originals:
                rows = zip(texts.sources, texts.targets, texts.references, strict=True)
                write_whole(directory / names[split][-1], starmap(pair_line, rows))
        write_choice(directory, self.choice, names, source_column="source")
        return summary

    def deciding(self) -> dict[str, Any]:
        """Return all settings that determine what the model writes."""
        search = self.settings["generation"]
        generation = {key: value for key, value in search.items() if key != "workers"}
        return {
            "subcommand": self.subcommand,
            "generation": generation,
            "sentences": self.sentences,
        }

    def contents(self) -> dict[str, list[str]]:
        """Return digests of inputs besides the data."""
        read = {"bundle": bundle_contents(self.bundle)}
        return read | ({"ensemble": bundle_contents(*self.ensemble)} if self.ensemble else {})

    def provenance(self, splits: dict[str, Texts]) -> Provenance:
        """Return the inputs that determine the corpus. Args: splits: splits of `data`."""
        contents = self.contents() | texts_contents(splits)
        return Provenance(settings=self.deciding(), contents=contents)

    def _write(
        self, bundle: Bundle, inputs: Texts, file: Path, provenance: Provenance
    ) -> dict[str, str]:
        """Append the remaining pairs after an interruption; return their number and speed."""
        total, part, began = len(inputs.sources), file.with_suffix(".part"), time.perf_counter()
        if is_file(file):
            return {"sentences": f"{total:,}, already written"}
        with file_faults("write", part):
            first = _complete_parts(part)
            with (
                progress("writing", "sentences", first) as advance,
                bundle.generator(self.search).open() as generator,
            ):
                for start in range(first, total, _PART):
                    numbers = range(start, min(start + _PART, total))
                    pairs = [*self._pairs(bundle, generator, inputs, numbers, advance)]
                    provenance.write(file.parent)  # only once the search works
                    with part.open("ab") as rows:
                        rows.writelines(starmap(pair_line, pairs))
            part.replace(file)
        rate = (total - first) / (time.perf_counter() - began)
        resumed = f", {first:,} already written" if first else ""
        return {"sentences": f"{total - first:,} ({rate:,.1f} per second){resumed}"}

    def _pairs(
        self,
        bundle: Bundle,
        generator: Generator,
        inputs: Texts,
        numbers: range,
        on_progress: Progress,
    ) -> Iterator[tuple[str, str, list[str]]]:
        encoded = bundle.encode([inputs.sources[number] for number in numbers])

        def moved(done: int, _: int, tokens: int) -> None:
            on_progress(numbers.start + done, len(inputs.sources), tokens)

        generated = generator.generate_windows(encoded, numbers, moved)
        for number, some in zip(numbers, generated, strict=True):
            outputs = bundle.tokenizer.decode_target([hypothesis.ids for hypothesis in some])
            yield *self.pair(number, inputs, outputs), []


def _complete_parts(file: Path) -> int:
    """Truncate a file to its complete parts and return the number of remaining lines."""
    lines = size = complete = 0
    if not file.exists():
        return 0
    with file.open("r+b") as rows:
        for number, line in enumerate(rows, 1):
            size += len(line)
            if number % _PART == 0 and line.endswith(b"\n"):
                lines, complete = number, size
        rows.truncate(complete)
    return lines
