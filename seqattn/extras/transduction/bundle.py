"""Bundles that read words with features, and write words."""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from seqattn.analysis.word_alignment import BEGINS, MARKS
from seqattn.bundle.bundle import Bundle
from seqattn.bundle.files import part_of
from seqattn.bundle.outputs import Outputs
from seqattn.bundle.text_arguments import TextOrTexts, text_list
from seqattn.data.lines import LONGEST, read_texts, write_lines
from seqattn.data.text_files import read_lines
from seqattn.extras.transduction.scorer import WordScorer
from seqattn.extras.transduction.words import Words, pieces
from seqattn.generation.forced_decoding import Sides
from seqattn.metrics.several import one_scorer
from seqattn.settings.nodes import TARGET, build, import_path
from seqattn.storage import kind_of


@dataclass(repr=False)
class WordBundle(Bundle):
    """A bundle of task=transduction, whose inputs are words such as `Abend;N;DAT(PL)`.

    Attributes: as `Bundle`.
    """

    unit: ClassVar[str] = "words"
    form: ClassVar[str] = "a word, and its features after a tab"

    @cached_property
    def words(self) -> Words:
        """The training data's columns, without files; words alone for data of other kinds."""
        node: Any = self.config.get("data") or {}
        has_words = TARGET in node and import_path(node[TARGET], "data") is Words
        return build(node, "data") if has_words else Words()

    def read_inputs(self, path: Path | None) -> Iterator[list[tuple[int, Any]]]:
        """Yield the words of a file with their line numbers, in parts.

        A line has the columns of the training data, or the word and its features alone, or both in
        one column, as in `generate`.
        """
        where, parts = path or "standard input", read_texts(path)
        if path is not None and kind_of(path) not in (".jsonl", ".json"):
            parts = ([row] for row in enumerate(read_lines(path, LONGEST), 1))
        for part in parts:
            rows = [(n, line.split("\t"), f"{where} line {n:,}") for n, line in part]
            yield [(n, self.words.source_of(fields, row)) for n, fields, row in rows]

    def encode(self, texts: TextOrTexts) -> list[list[list[int]]]:
        """Return source ids of each text; note on standard error features not in training."""
        read = [*map(self.words.tidy, text_list(texts))]
        if self.words.mark:
            vocabulary = {*self.tokenizer.source_vocabulary()}
            used = [piece for text in read for piece in pieces(text, self.words.mark)]
            if unseen := [piece[1:] for piece in used if piece not in vocabulary]:
                what = f"{len(unseen):,} features of the input did not occur in training"
                print(f"{what}, such as {unseen[0]}", file=sys.stderr)
        return super().encode(read)

    def pieces_of(self, pair: Sides, texts: Sequence[str | None]) -> list[list[str]]:
        """Return the pieces of a pair as `Bundle`, each as a word, so that letters are aligned."""
        marks = (*MARKS, BEGINS)
        sides = super().pieces_of(pair, texts)
        return [
            [piece if piece.startswith(marks) else BEGINS + piece for piece in side]
            for side in sides
        ]

    def outputs(self, *args: Any, **kwargs: Any) -> "WordOutputs":
        node = part_of(self.config, "task.scorer", self.path)
        scorer = one_scorer(build(node, "task.scorer"))
        outputs = super().outputs(*args, **kwargs)
        return WordOutputs(**vars(outputs), mark=self.words.mark, scorer=scorer)


@dataclass(frozen=True)
class WordOutputs(Outputs):
    """Outputs for words, which `write` also scores by feature and by length.

    Args:
        mark: as `Words.mark`.
        scorer: scores each group of words.
    """

    unit: ClassVar[str] = "words"
    mark: str | None = None
    scorer: Any = None

    def dependence(self) -> list[str]:
        """Return a warning for `evaluate` if most rows share their word."""
        sources = self.rows.sources
        words = Counter(text.split(self.mark)[0] if self.mark else text for text in sources)
        shared = sum(count for count in words.values() if count > 1)
        if 2 * shared < len(sources):
            return []
        key = "lemma" if self.mark else "source"
        return [
            f"{shared:,} of {len(sources):,} rows share their word with other rows ({len(words):,} "
            f"words in all), so intervals over rows are too narrow; set group={key}"
        ]

    def write(self, directory: Path) -> None:
        """Also write by_length.tsv and by_feature.tsv: words and scores of each group."""
        super().write(directory)
        groups: dict[str, dict[Any, list[int]]] = {
            "length": defaultdict(list), "feature": defaultdict(list),
        }  # fmt: skip
        for row, source in enumerate(self.rows.sources):
            word, *features = source.split(self.mark) if self.mark else [source]
            groups["length"][len(word)].append(row)
            for feature in {*features}:
                groups["feature"][feature].append(row)
        for name, some in groups.items():
            lines = ["\t".join((name, "words", *WordScorer.logged))]
            for group, rows in sorted(some.items()):
                scores = self.rows.at(rows).score(self.scorer, [self.texts[row] for row in rows])
                values = [f"{score.value:.2f}" for score in scores]
                lines.append("\t".join((str(group), str(len(rows)), *values)))
            if some:
                write_lines(lines, str(directory / f"by_{name}.tsv"))
