"""Retrieval-augmented corpora: sources prefixed with the targets of similar training sources."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqattn.checking import Count, Share
from seqattn.data.base import Texts
from seqattn.errors import UserError
from seqattn.extras.corpora.corpora import (
    input_texts,
    json_line,
    pair_line,
    read_splits,
    texts_contents,
    where_it_is,
    write_choice,
)
from seqattn.extras.corpora.retrieval import TfidfIndex
from seqattn.screen import print_table, progress
from seqattn.storage import user_path, write_whole
from seqattn.subcommands.provenance import Provenance
from seqattn.training.run_directory import claimed

_CHOICE = "retrieved"
_BETWEEN, _END = " | ", " || "
"""Separators between retrieved targets, and after the last."""


@dataclass(frozen=True, kw_only=True)
class Retrieval:
    """Retrieval as augmentation of the source (Bulté and Tezcan 2019, "Neural Fuzzy Repair").

    A source becomes "<6> TARGET | TARGET || SOURCE": the cosine with the most similar training
    source in tenths, 0 to 9, then the targets of the most similar training sources. No training
    pair retrieves itself, and validation and test texts retrieve only training pairs.

    Args:
        data: source of the pairs.
        output: directory of the new corpus.
        input: file of texts to generate from, as `generate` reads it, to augment in the same way;
            None for none.
        neighbors: maximum number of targets for each source, all different.
        least: minimum cosine of a neighbor.
        cache_dir: cache directory of the data; None for the default.
    """

    data: Any
    output: str
    input: str | None = None
    neighbors: Count = 1
    least: Share = 0.0
    cache_dir: str | None = None

    def run(self) -> Path:
        """Write the corpus and return its directory.

        Raises:
            UserError: if the data or the input cannot be read, or the directory is in use.
        """
        if getattr(self.data, "yields", "pairs") != "pairs":
            raise UserError("retrieve supports only text pairs; train on questions directly")
        queries = None if self.input is None else input_texts(self.input, self.data)
        splits, summary = read_splits(self.data, self.cache_dir)
        directory = user_path(self.output)
        with claimed(directory, "output"):
            provenance = self._provenance(splits, queries)
            if provenance.is_finished(directory, f"data/{_CHOICE}.yaml"):
                return directory
            train = splits["train"]
            index = TfidfIndex(train.sources)
            for split, texts in splits.items():
                columns = self._augmentations(index, train, texts.sources, split)
                provenance.write(directory)  # only once there is a split to write
                rows = zip(texts.sources, texts.targets, texts.references, columns)
                write_whole(directory / f"{split}.jsonl", (pair_line(*row) for row in rows))
                summary[split] = _summary(columns)
            if queries is not None:
                columns = self._augmentations(index, train, queries, "input")
                lines = (json_line({**row, "source": text}) for row, text in zip(columns, queries))
                write_whole(directory / "input.jsonl", lines)
                summary["input"] = _summary(columns)
            write_choice(
                directory,
                _CHOICE,
                {split: [f"{split}.jsonl"] for split in splits},
                source_column=["retrieved", "source"],
                source_mark=_END,
                tag_columns=["likeness"],
            )
        notes = where_it_is(directory, _CHOICE)
        if queries is not None:
            notes.append(f"generate from augmented texts with: input={directory / 'input.jsonl'}")
        print_table("retrieve", summary, notes=notes)
        return directory

    def _provenance(self, splits: dict[str, Texts], queries: list[str] | None) -> Provenance:
        contents = texts_contents(splits)
        if queries is not None:
            contents |= texts_contents({"input": Texts(queries, [], [], None)})
        settings = {"subcommand": "retrieve", "neighbors": self.neighbors, "least": self.least}
        return Provenance(settings=settings, contents=contents)

    def _augmentations(
        self, index: TfidfIndex, train: Texts, texts: Sequence[str], split: str
    ) -> list[dict[str, str]]:
        """Return for each text the columns of its augmentation."""
        columns = []
        candidates = self.neighbors * 2  # several may have the same target
        with progress(f"comparing {split}", "texts") as advance:
            rows = index.nearest(texts, candidates, themselves=split != "train")
            for number, row in enumerate(rows, 1):
                near = [
                    (position, likeness) for position, likeness in row if likeness >= self.least
                ]
                targets = dict.fromkeys(train.targets[position] for position, _ in near)
                highest = near[0][1] if near else 0.0
                retrieved = _BETWEEN.join([*targets][: self.neighbors])
                tenth = min(9, int(highest * 10))
                columns.append({"likeness": str(tenth), "retrieved": retrieved})
                advance(number, len(texts))
        return columns


def _summary(columns: Sequence[dict[str, str]]) -> str:
    """Return a note on the number of texts and their similarity to known ones."""
    like = sum(int(row["likeness"]) >= 5 for row in columns)
    share = like / max(1, len(columns))
    return f"{len(columns):,} texts, {share:.1%} with a cosine of at least 0.5 to a training source"
