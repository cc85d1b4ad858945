"""A page on what bundles make of some sentences, in one file."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from seqattn.bundle.bundle import SpanBundle, TextBundle
from seqattn.bundle.loading import load_bundle
from seqattn.checking import Count
from seqattn.data.span_batch import Questions
from seqattn.errors import UserError
from seqattn.extras.report.document_types import RunDocument, SentenceDocument
from seqattn.extras.report.run_document import bundle_document
from seqattn.extras.report.sentences import Look, looks_into, sentence_document, summary_document
from seqattn.extras.report.single_file import page
from seqattn.extras.report.text_document import TextLook
from seqattn.metrics.text import TextScore
from seqattn.screen import progress
from seqattn.storage import file_faults, user_path, write_whole
from seqattn.training.run_directory import distinct_names
from seqattn.verbs.bundle_run import ScoredRun


class Row(NamedTuple):
    """A sentence of the split with what is right, or a question with its context."""

    text: str
    references: Sequence[str]
    context: str | None = None


@dataclass(frozen=True, kw_only=True)
class Report(ScoredRun):
    """A page that shows what bundles make of some sentences.

    Args:
        bundle, device, trust, data, generation, scorer, split, cache_dir: as `ScoredRun`.
        output: the file, which ends in .html.
        bundles: others that are shown beside the bundle on the same sentences.
        sentences: how many rows of the split are shown, the first ones.
        methods: of contributions; None for the usual ones that a bundle can have.
        tokens: tokens of a side that maps of weights show, the first ones.
    """

    output: str
    bundles: Sequence[str] = ()
    sentences: Count = 50
    methods: Sequence[str] | None = None
    tokens: Count = 100

    def run(self) -> Path:
        """Looks into the sentences, writes the page and says where; returns its path.

        Raises:
            UserError: where a bundle or the data cannot be used, or the page cannot be written.
        """
        path = self._path()
        bundles = self._bundles()
        looks = looks_into(bundles, self.generation, self.methods, self.tokens)
        rows = self._rows(bundles[0])[: self.sentences]
        if not rows:
            raise UserError(f"the {self.split} split has no rows to show")
        began = time.perf_counter()
        sentences = []
        with progress("looking into", "sentences") as tell:
            for number, row in enumerate(rows):
                sentences.append(sentence_document(looks, number, *row))
                tell(number + 1, len(rows))
        seconds = (time.perf_counter() - began) / len(bundles)
        text = page(self._run_document(looks, rows, sentences, seconds), sentences)
        write_whole(path, text.encode())
        count = f"{len(rows):,} sentences of the {self.split} split"
        print(f"report: {path}   ({count}, {len(text.encode()) / 1e6:,.1f} MB)", flush=True)
        return path

    def _path(self) -> Path:
        path = user_path(self.output)
        if path.suffix not in (".html", ".htm") or path.is_dir():
            raise UserError(f"output must be a file such as report.html, got {self.output}")
        with file_faults("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _bundles(self) -> list[TextBundle | SpanBundle]:
        found = [self.load(self.generation)]
        for name in self.bundles:
            other = load_bundle(name, self.device, trust=self.trust)
            if other.output != found[0].output:
                raise UserError(
                    f"bundles must give {found[0].output} as {self.bundle} does, and {name} gives "
                    f"{other.output}"
                )
            if Path(name).resolve() not in {one.path.resolve() for one in found}:
                found.append(other)
        return found

    def _rows(self, bundle: TextBundle | SpanBundle) -> list[Row]:
        if isinstance(bundle, SpanBundle):
            asked = Questions.of(self.load_split(self.data))
            return list(map(Row, asked.questions, asked.answers, asked.contexts))
        texts = self.read_texts(bundle)
        return list(map(Row, texts.sources, texts.references))

    def _run_document(
        self,
        looks: Sequence[Look],
        rows: Sequence[Row],
        sentences: Sequence[SentenceDocument],
        seconds: float,
    ) -> RunDocument:
        paths = [look.bundle.path.resolve() for look in looks]
        names = distinct_names(paths) if len(paths) > 1 else [paths[0].parent.name]
        shown = [
            self._scores(rows, [sentence["looks"][number]["output"] for sentence in sentences])
            for number in range(len(looks))
        ]
        first = looks[0]
        return {
            "title": " beside ".join(names),
            "split": self.split,
            "score": "chrF" if isinstance(first, TextLook) else "F1",
            "source_use": first.measure if isinstance(first, TextLook) else "",
            "bundles": [
                bundle_document(name, look.bundle, scores, seconds)
                for name, look, scores in zip(names, looks, shown, strict=True)
            ],
            "sentences": [summary_document(sentence) for sentence in sentences],
        }

    def _scores(self, rows: Sequence[Row], outputs: Sequence[str]) -> list[TextScore]:
        if rows[0].context is None:
            columns: Any = outputs, [row.references for row in rows], [row.text for row in rows]
            return list(self.scorer.score(*columns))
        gold = {str(number): list(row.references) for number, row in enumerate(rows)}
        return list(self.scorer.score(dict(zip(gold, outputs, strict=True)), gold))
