"""Evaluation of explanation methods on one bundle, and of its attention weights."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqattn.analysis.forced_alignment import aligning_pairs
from seqattn.analysis.intervene import EDITS, attention_groups, intervene
from seqattn.analysis.pairs import Pair
from seqattn.analysis.word_alignment import align
from seqattn.bundle.bundle import Bundle
from seqattn.data.base import Texts
from seqattn.data.word_links import WordLinks, linked_words
from seqattn.errors import UserError
from seqattn.extras.explain.alignment_error import AlignmentErrorRate
from seqattn.extras.explain.explanations import METHODS, explain
from seqattn.extras.explain.faithfulness import judge, random_contributions
from seqattn.generation.forced_decoding import batches, padded, target_log_probabilities
from seqattn.screen import progress

RANDOM = "random"
"""Name of the random baseline."""
READING = "alignment"
"""Name of the bundle's reading of word alignments, if one was chosen."""
_EXPLAINED_TOKENS = 1024


class Sample(NamedTuple):
    """Sentences of a split that fit one window, and their places in the split."""

    rows: list[int]
    """Indices of the texts."""
    pairs: list[Pair]
    """Ids of the sources, with references or the model's own outputs as targets."""


@dataclass(frozen=True)
class ExplainedBundle:
    """Explanations of a bundle's outputs for some texts.

    Args:
        name: name of the bundle.
        bundle: bundle of a text model.
        search: search of the outputs.
        texts: texts with references.
        links: word alignments of sources and references, if references are explained; None
            without alignments.
    """

    name: str
    bundle: Bundle
    search: Any
    texts: Texts
    links: Sequence[WordLinks] | None = None

    def sample(self, generated: bool = False) -> Sample:
        """Return the texts that fit one window and have words on both sides.

        Args:
            generated: explain the model's own outputs instead of the references.

        Raises:
            UserError: if there is none.
        """
        sources = self.bundle.encode(self.texts.sources)
        if generated:
            with progress(f"generating with {self.name}", "sentences") as advance:
                generator = self.bundle.generator(self.search)
                outputs = generator.generate_windows(sources, progress=advance)
            targets = [self.bundle.with_end_mark(best[0].ids) for best in outputs]
        else:
            targets = self.bundle.tokenizer.encode_target(self.texts.targets)
        limits = self.bundle.model.max_source_length, self.bundle.model.max_target_length
        rows = [
            row
            for row, (windows, target) in enumerate(zip(sources, targets, strict=True))
            if len(windows) == 1
            and all(
                len(ids) > 1 and (limit is None or len(ids) <= limit)
                for ids, limit in zip((windows[0], target), limits, strict=True)
            )
        ]
        if not rows:
            raise UserError(f"{self.name} cannot explain any sentence: all are empty or too long")
        return Sample(rows, [Pair(sources[row][0], targets[row]) for row in rows])

    def judged(self, names: Sequence[str], sample: Sample, seed: int) -> dict[str, Any]:
        """Return the faithfulness of methods and of chance, as written to explanations.json.

        Args:
            names: names of methods.
            sample: sentences with the targets to explain.
            seed: seed of the random baseline.
        """
        reasons = {name: METHODS[name].why_not(self.bundle.model) for name in names}
        contributions, seconds = {}, {}
        for name in names:
            if reasons[name] is None:
                contributions[name], seconds[name] = self._contributions(name, sample.pairs)
        if "alignment" in self.bundle.config:
            readings = aligning_pairs(self.bundle.model, sample.pairs, [self.bundle.reading])
            contributions[READING] = [weights.double() for [weights] in readings]
        contributions[RANDOM] = random_contributions(sample.pairs, seed)
        with progress(f"removing tokens for {self.name}", "reduced sources") as advance:
            judged = judge(self.bundle.model, sample.pairs, contributions, advance)
        rows: dict[str, dict[str, Any]] = {}
        for name, faithfulness in judged.methods.items():
            rows[name] = faithfulness._asdict()
            if self.links is not None:
                rows[name] |= self._alignment_error(contributions[name], sample, self.links)
            if name in seconds:
                rows[name]["seconds_per_sentence"] = seconds[name] / len(sample.pairs)
        return {
            "probability": judged.probability,
            "methods": rows,
            "cannot_be_had": {name: reason for name, reason in reasons.items() if reason},
        }

    def _contributions(self, method: str, pairs: Sequence[Pair]) -> tuple[list[Tensor], float]:
        """Return a method's source contributions for each pair, (T, S), and the seconds it took."""
        contributions = [torch.empty(0)] * len(pairs)
        seconds, done = 0.0, 0
        device = next(self.bundle.model.parameters()).device
        with progress(f"computing {method} for {self.name}", "sentences") as advance:
            for batch in batches(pairs, _EXPLAINED_TOKENS):
                sides = zip(*(pairs[row] for row in batch), strict=True)
                source, target = (padded(side).to(device) for side in sides)
                began = time.perf_counter()
                explained = explain(self.bundle.model, source, target, method).source
                seconds += time.perf_counter() - began
                for row, weights in zip(batch, explained.detach().double().cpu(), strict=True):
                    contributions[row] = weights[: len(pairs[row].target), : len(pairs[row].source)]
                done += len(batch)
                advance(done, len(pairs))
        return contributions, seconds

    def _alignment_error(
        self, contributions: Sequence[Tensor], sample: Sample, links: Sequence[WordLinks]
    ) -> dict[str, float]:
        """Return the alignment error rate against the gold links, and the number of sentences.

        Skips sentences whose words are not separated by spaces.
        """
        metric, count, tokenizer = AlignmentErrorRate(), 0, self.bundle.tokenizer
        for row, pair, weights in zip(sample.rows, sample.pairs, contributions, strict=True):
            source, target = self.texts.sources[row], self.texts.targets[row]
            pieces = (
                tokenizer.source_pieces(pair.source, source),
                tokenizer.target_pieces(pair.target, target),
            )
            predicted = linked_words(align(weights, *pieces), source, target)
            if predicted is None:
                continue
            metric.update(predicted, *links[row])
            count += 1
        rate = float(metric.compute()) if count else float("nan")
        return {"alignment_error_rate": rate, "aligned_sentences": count}

    def replaced(self, edits: Sequence[str], scorer: Any, seed: int) -> dict[str, Any]:
        """Return scores with replaced attention weights, by edit and part, and without edits.

        Returns:
            "without", the attentions that have no weights; if others exist, "as_trained" and for
            each edit each of `attention_groups`: the mean log-probability of a reference token,
            and the scores of decoded outputs by `scorer`.
        """
        try:
            parts, without = attention_groups(self.bundle.model)
        except UserError as reason:
            return {"cannot_be_had": str(reason)}
        sample = self.sample()
        jobs = [(edit, part) for edit in edits for part in parts]
        scores: dict[str, Any] = {edit: {} for edit in edits}
        with progress(f"replacing attention of {self.name}", "variants") as advance:
            scores["as_trained"] = self._scores(scorer, sample)
            advance(1, len(jobs) + 1)
            for number, (edit, part) in enumerate(jobs, 2):
                weights = {name: EDITS[edit](seed + at) for at, name in enumerate(parts[part])}
                with intervene(self.bundle.model, weights):
                    scores[edit][part] = self._scores(scorer, sample)
                advance(number, len(jobs) + 1)
        return scores | {"without": without}

    def _scores(self, scorer: Any, sample: Sample) -> dict[str, float]:
        said = torch.cat(target_log_probabilities(self.bundle.model, sample.pairs))
        search = replace(self.search, workers=1)  # draws in a fixed order
        scores = self.bundle.outputs(self.texts.at(sample.rows), search).scores(scorer)
        return {"log-probability": float(said.mean()), **{one.name: one.value for one in scores}}
