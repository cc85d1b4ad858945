"""Report on the outputs of bundles for some sentences, as one HTML file."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seqattn.bundle.bundle import Bundle
from seqattn.bundle.load import load_bundle
from seqattn.checking import Count
from seqattn.data.base import Texts
from seqattn.errors import UserError
from seqattn.extras.report.document_types import RunDocument, SentenceDocument
from seqattn.extras.report.run_document import bundle_document
from seqattn.extras.report.sentences import Look, looks_into, sentence_document, summary_document
from seqattn.extras.report.single_file import page
from seqattn.screen import progress
from seqattn.storage import file_faults, user_path, write_whole
from seqattn.subcommands.bundle_run import ScoredRun
from seqattn.training.run_directory import distinct_names


@dataclass(frozen=True, kw_only=True)
class Report(ScoredRun):
    """Page that shows the outputs of bundles for some sentences.

    Args:
        bundle, device, trust, data, generation, scorer, split, cache_dir: as `ScoredRun`.
        output: the file, ending in .html.
        bundles: further bundles to show on the same sentences.
        sentences: show the first N rows of the split.
        methods: explanation methods; None for the default ones that a bundle supports.
        tokens: attention maps show at most the first N tokens per side.
        quality: how to judge each output; None not to.
    """

    output: str
    bundles: Sequence[str] = ()
    sentences: Count = 50
    methods: Sequence[str] | None = None
    tokens: Count = 100
    quality: Any = None

    def run(self) -> Path:
        """Analyze the sentences, write the page and print its path; return the path.

        Raises:
            UserError: if a bundle or the data cannot be used, or the page cannot be written.
        """
        path = self._path()
        bundles = self._bundles()
        looks: Any = looks_into(bundles, self.generation, self.methods, self.tokens)
        if self.quality is not None:
            looks = [replace(look, judge=self.quality.of(look.bundle)) for look in looks]
        rows = self.read_rows(bundles[0]).first(self.sentences)
        count = len(rows.sources)
        if not count:
            raise UserError(f"the {self.split} split has no rows to show; choose another")
        began = time.perf_counter()
        sentences = []
        with progress("analyzing", "sentences") as advance:
            contexts = getattr(rows, "contexts", [None] * len(rows.sources))
            inputs = zip(rows.sources, rows.references, contexts, strict=True)
            for number, row in enumerate(inputs):
                sentences.append(sentence_document(looks, number, *row))
                advance(number + 1, count)
        seconds = (time.perf_counter() - began) / len(bundles)
        text = page(self._run_document(looks, rows, sentences, seconds), sentences)
        write_whole(path, text.encode())
        summary = f"{count:,} sentences of the {self.split} split"
        print(f"report: {path}   ({summary}, {len(text.encode()) / 1e6:,.1f} MB)", flush=True)
        return path

    def _path(self) -> Path:
        path = user_path(self.output)
        if path.suffix not in (".html", ".htm") or path.is_dir():
            raise UserError(f"output must be a file such as report.html, got {self.output}")
        with file_faults("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _bundles(self) -> list[Bundle]:
        bundles = [self.load(self.generation)]
        for name in self.bundles:
            bundle = load_bundle(name, self.device, trust=self.trust)
            if bundle.output != bundles[0].output:
                raise UserError(
                    f"bundles must have the same type of output: {self.bundle} gives "
                    f"{bundles[0].output}, {name} gives {bundle.output}"
                )
            if Path(name).resolve() not in {loaded.path.resolve() for loaded in bundles}:
                bundles.append(bundle)
        return bundles

    def _run_document(
        self,
        looks: Sequence[Look],
        rows: Texts,
        sentences: Sequence[SentenceDocument],
        seconds: float,
    ) -> RunDocument:
        paths = [look.bundle.path.resolve() for look in looks]
        names = distinct_names(paths) if len(paths) > 1 else [paths[0].parent.name]
        scores_by_look = [
            rows.score(self.scorer, [sentence["looks"][number]["output"] for sentence in sentences])
            for number in range(len(looks))
        ]
        return {
            "title": " and ".join(names),
            "split": self.split,
            "score": looks[0].score,
            "source_use": looks[0].measure,
            "bundles": [
                bundle_document(name, look.bundle, scores, seconds)
                for name, look, scores in zip(names, looks, scores_by_look, strict=True)
            ],
            "sentences": [summary_document(sentence) for sentence in sentences],
        }
