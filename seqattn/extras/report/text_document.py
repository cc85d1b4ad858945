"""Output of a bundle for one text, with the contributions to each token."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch

from seqattn.analysis.pairs import Pair, observed
from seqattn.analysis.word_alignment import words_of
from seqattn.bundle.bundle import Bundle
from seqattn.extras.explain.explanations import METHODS, Explanation, explain
from seqattn.extras.report.attention_maps import attention_documents
from seqattn.extras.report.beam_tree import Candidate, TracedBeamSearch, tree_document
from seqattn.extras.report.contributions import (
    contrast_document,
    explanation_document,
    lens_document,
    source_measure,
    source_use,
)
from seqattn.extras.report.copy_document import copied_document, copy_probabilities
from seqattn.extras.report.document_types import LookDocument, QualityDocument
from seqattn.generation.base import Hypothesis, Search
from seqattn.generation.beam import BeamSearch
from seqattn.generation.generator import Generator
from seqattn.metrics.text import sentence_chrf


class Searched(NamedTuple):
    """Ids of a text, or of its window with the best output, and the results of a search.

    Hypotheses are sorted best first; `nodes` are the tree of a beam search.
    """

    source: list[int]
    hypotheses: list[Hypothesis]
    nodes: list[Candidate]
    windows: int


@dataclass(frozen=True)
class TextLook:
    """Documents of a bundle's outputs, one text at a time.

    Args:
        bundle: bundle of a text model.
        search: search of the outputs; for a beam search the tree is shown.
        methods: explanation methods, names of `METHODS`.
        measure: the method that measures source use, see `source_measure`.
        tokens: attention maps show at most the first N tokens per side.
        judge: judges outputs, as from `Quality.of`; None for none.
        passes: context manager that wraps each analysis of an output, such as an `intervene`.
    """

    bundle: Bundle
    search: Search
    methods: Sequence[str]
    measure: str
    tokens: int
    passes: Callable[[], AbstractContextManager[None]] = nullcontext
    judge: Any = None
    score: ClassVar[str] = "chrF"
    """Name of an output's score."""

    @classmethod
    def of(
        cls, bundles: Sequence[Bundle], search: Search, methods: Sequence[str], tokens: int
    ) -> list["TextLook"]:
        """Return a look for each bundle, with the same measures for all. Args: as for the class."""
        measure = source_measure([bundle.model for bundle in bundles])
        names = dict.fromkeys([*methods, measure])  # for the shares of source and output
        return [cls(bundle, search, list(names), measure, tokens) for bundle in bundles]

    def document(self, text: str, references: Sequence[str], context: str = "") -> LookDocument:
        """Return the document of a text. Args: references: correct outputs, possibly none."""
        return self.inspected(text, self.searched(text), references)

    def searched(self, text: str) -> Searched:
        """Decode a text."""
        windows = self.bundle.encode([text])[0]
        results = [self._searched(window, len(windows)) for window in windows]
        return max(results, key=lambda result: result.hypotheses[0].score)

    def inspected(self, text: str, searched: Searched, references: Sequence[str]) -> LookDocument:
        """Return the document of a text's best output."""
        source, hypotheses, nodes, windows = searched
        best, tokenizer = hypotheses[0], self.bundle.tokenizer
        outputs = tokenizer.decode_target([hypothesis.ids for hypothesis in hypotheses])
        target = self.bundle.with_end_mark(best.ids)
        read = tokenizer.source_pieces(source, text if windows == 1 else None)
        pieces = tokenizer.target_pieces(target)
        document: LookDocument = {
            "source": read,
            "target": pieces,
            "output": outputs[0],
            "score": sentence_chrf(outputs[0], references) if references else None,
            "source_use": None,
            "notes": self._notes(windows, len(source), len(target)),
            "attentions": [],
            "explanations": [],
            "lens": None,
            "beam": tree_document(nodes, best, tokenizer.target_pieces),
            "hypotheses": [
                {
                    "text": output,
                    "score": round(hypothesis.score, 4),
                    "log_probability": round(hypothesis.log_probability, 4),
                }
                for output, hypothesis in zip(outputs, hypotheses, strict=True)
            ],
            "copied": copied_document(read, pieces),
            "quality": None,
        }
        if source:
            self._look(document, source, target)
        return document

    def _searched(self, source: list[int], windows: int) -> Searched:
        search = self.search
        if isinstance(search, BeamSearch):
            search = TracedBeamSearch.of(search)
        hypotheses = Generator(self.bundle.model, search).generate([source])[0]
        nodes = search.nodes if isinstance(search, TracedBeamSearch) else []
        return Searched(source, hypotheses, nodes, windows)

    def _look(self, document: LookDocument, source: list[int], target: list[int]) -> None:
        model, pair = self.bundle.model, Pair(source, target)
        device = next(model.parameters()).device
        read, ids, output = (
            torch.tensor([row], device=device) for row in (source, pair.read, target)
        )
        with self.passes():
            document["copied"]["pointer"] = copy_probabilities(model, read, ids)
        for name in self.methods:
            explanation: Explanation | str | None = METHODS[name].why_not(model)
            if explanation is None:
                with self.passes():
                    explanation = explain(model, read, output, method=name)
            document["explanations"].append(explanation_document(METHODS[name], explanation))
            if name == self.measure and isinstance(explanation, Explanation):
                document["source_use"] = source_use(explanation)
        pieces = self.bundle.tokenizer.target_pieces
        with self.passes():
            contrast = contrast_document(model, read, output, pieces, 2 * self.tokens)
            document["explanations"].append(contrast)
            document["lens"] = lens_document(model, read, output, pieces)
        with self.passes():
            document["attentions"] = list(attention_documents(observed(model, pair), self.tokens))
            if self.judge is not None:
                document["quality"] = self._quality(document, source, target)

    def _quality(
        self, document: LookDocument, source: list[int], target: list[int]
    ) -> QualityDocument:
        one = self.judge.judge_ids(source, target)
        marked = [
            [
                index
                for (_, indices), (_, bad) in zip(words_of(side), words)
                if bad
                for index in indices
            ]
            for side, words in ((document["target"], one.output), (document["source"], one.source))
        ]
        return {
            "score": self.judge.calibration.score,
            "expected": round(one.expected, 2),
            "label": one.label,
            "signals": {name: round(value, 4) for name, value in one.signals.items()},
            "unsupported": marked[0],
            "left_out": marked[1],
        }

    def _notes(self, windows: int, *lengths: int) -> list[str]:
        notes = []
        if windows > 1:
            notes.append(f"read in {windows} windows; showing the one with the best output")
        if max(lengths) > self.tokens:
            notes.append(f"attention maps show the first {self.tokens} tokens of each side")
        return notes
