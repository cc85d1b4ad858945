"""What a bundle makes of one text: its output, and where each token of it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from seqattn.analysis.capture import capture
from seqattn.analysis.explanations import METHODS
from seqattn.bundle.bundle import TextBundle
from seqattn.generation.base import Hypothesis, Search, inference
from seqattn.generation.beam import BeamSearch
from seqattn.metrics.text import sentence_chrf
from seqattn.report.attention_maps import attention_documents
from seqattn.report.beam_tree import Candidate, TracedBeamSearch, tree_document
from seqattn.report.contributions import (
    Read,
    explanation_document,
    explanations_of,
    source_use,
)
from seqattn.report.copying import copied_document, copy_probabilities
from seqattn.report.documents import AttentionDocument, LookDocument
from seqattn.tokens import EOS


@dataclass(frozen=True)
class TextLook:
    """Looks into a bundle's outputs, one text at a time.

    Args:
        bundle: of texts.
        search: how outputs are found; of a beam search the tree is shown.
        methods: of contributions, names of `METHODS`.
        measure: of source use, as `source_measure` gives it.
        tokens: tokens of a side that maps of weights show, the first ones.
    """

    bundle: TextBundle
    search: Search
    methods: Sequence[str]
    measure: str
    tokens: int

    def document(self, text: str, references: Sequence[str]) -> LookDocument:
        """What the bundle makes of a text. Args: references: right outputs, perhaps none."""
        windows = self.bundle.encode([text])[0]
        source, found, nodes = max(map(self._searched, windows), key=lambda one: one[1][0].score)
        best, tokenizer = found[0], self.bundle.tokenizer
        outputs = tokenizer.decode_target([one.ids for one in found])
        target = list(best.ids) if self._is_full(best) else [*best.ids, EOS]
        made: LookDocument = {
            "source": tokenizer.source_pieces(source, text if len(windows) == 1 else None),
            "target": tokenizer.target_pieces(target),
            "output": outputs[0],
            "score": sentence_chrf(outputs[0], references) if references else None,
            "source_use": None,
            "notes": self._notes(len(windows), len(source), len(target)),
            "attentions": [],
            "explanations": [],
            "beam": tree_document(nodes, best, tokenizer.target_pieces),
            "hypotheses": [
                {
                    "text": output,
                    "score": round(one.score, 4),
                    "log_probability": round(one.log_probability, 4),
                }
                for output, one in zip(outputs, found, strict=True)
            ],
            "copied": {"pieces": [], "coverage": 0.0, "density": 0.0, "pointer": None},
        }
        if source:
            self._look(made, source, target)
        return made

    def _searched(self, source: list[int]) -> tuple[list[int], list[Hypothesis], list[Candidate]]:
        """A window, its hypotheses, and the tree of a beam search."""
        if not isinstance(self.search, BeamSearch):
            found = self.search.over(self.bundle.model).generate([source])[0]
            return source, found, []
        traced = TracedBeamSearch.of(self.search)
        found = traced.over(self.bundle.model).generate([source])[0]
        return source, found, traced.trees[0].nodes if traced.trees else []

    def _is_full(self, best: Hypothesis) -> bool:
        return len(best.ids) == self.bundle.model.max_target_length

    def _look(self, made: LookDocument, source: list[int], target: list[int]) -> None:
        model = self.bundle.model
        device = next(model.parameters()).device
        read = Read(torch.tensor([source], device=device), torch.tensor([target], device=device))
        pointer = copy_probabilities(model, read.source, read.shifted)
        made["copied"] = copied_document(made["source"], made["target"], pointer)
        known = explanations_of(model, read, self.methods)
        made["source_use"] = source_use(model, read, self.measure, known)
        made["explanations"] = [
            explanation_document(METHODS[name], found) for name, found in known.items()
        ]
        made["attentions"] = self._weights(read)

    def _weights(self, read: Read) -> list[AttentionDocument]:
        with inference(self.bundle.model), capture(self.bundle.model) as maps:
            self.bundle.model(read.source, read.shifted)
        return list(attention_documents(maps, self.tokens))

    def _notes(self, windows: int, *lengths: int) -> list[str]:
        notes = []
        if windows > 1:
            notes.append(f"read in {windows} windows; shown is the one whose output is the best")
        if max(lengths) > self.tokens:
            notes.append(f"maps of weights show the first {self.tokens} tokens of a side")
        return notes
