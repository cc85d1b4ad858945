"""Searches of any number of sources by CTranslate2."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch

from seqattn.bundle.bundle import Bundle
from seqattn.errors import UserError
from seqattn.extras.exchange.ctranslate_spec import ctranslate2, longest
from seqattn.generation.base import Hypothesis, Progress, listed
from seqattn.generation.constraints import Constraints
from seqattn.generation.generator import Batch, Generator, Hypotheses, too_large
from seqattn.generation.processors import ForcedPrefix
from seqattn.models.transformer import Transformer
from seqattn.tokens import EOS, PAD

_NO_OUTPUT = -1e8
"""Log-probability of the beams beside one that its first tokens fill."""
_TOGETHER = 32
"""Sources that CTranslate2 searches together on a CPU; larger batches are slower."""


class Translators:
    """Translators of one export, for any number of threads.

    Args:
        directory: the export.
        bundle: its bundle.
        compute_type: as `CTranslate2`.
    """

    def __init__(self, directory: Path, bundle: Bundle, compute_type: str) -> None:
        self.package = ctranslate2()
        self.directory, self.compute_type = directory, compute_type
        self.device = next(bundle.model.parameters()).device
        self.source_pieces = bundle.tokenizer.source_vocabulary()
        self.target_pieces = bundle.tokenizer.target_vocabulary()
        self.target_ids = {piece: number for number, piece in enumerate(self.target_pieces)}
        self.of_threads = cache(self._translator)
        self.of_threads(1)  # raises the errors of the export and of the compute type

    def __str__(self) -> str:
        return f"CTranslate2 {self.package.__version__} ({self.compute_type})"

    def _translator(self, threads: int) -> Any:
        torch_threads = torch.get_num_threads()
        try:
            return self.package.Translator(
                str(self.directory),
                device=self.device.type,
                device_index=self.device.index or 0,
                compute_type=self.compute_type,
                inter_threads=threads,
                intra_threads=1,
                max_queued_batches=-1,
            )
        except (RuntimeError, ValueError) as error:
            raise UserError(f"CTranslate2 cannot load {self.directory}: {error}") from error
        finally:
            torch.set_num_threads(torch_threads)  # both use one setting of OpenMP


class _Output(NamedTuple):
    """An output of CTranslate2."""

    ids: list[int]
    """With the end, if it was reached."""
    log_probability: float


class _Repeat(NamedTuple):
    """A search that is repeated for one source of a batch."""

    row: int
    job: Any
    without_padding: bool


@contextmanager
def _in_memory(batch: Batch) -> Iterator[None]:
    """Raise UserError if CTranslate2 runs out of memory on a batch."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, MemoryError) or "out of memory" in str(error):
            raise UserError(too_large(batch)) from error
        raise


@dataclass(frozen=True)
class CTranslateGenerator(Generator):
    """A generator that searches its batches by CTranslate2.

    Args:
        model, search: as in `Generator`.
        translators: translators of the export.
        otherwise: returns the generator for what CTranslate2 lacks, by its name, or raises
            UserError.
    """

    translators: Translators = field(kw_only=True)
    otherwise: Callable[[str], Generator] = field(kw_only=True)

    def generate(
        self,
        sources: Sequence[Sequence[int]],
        indices: Sequence[int] | None = None,
        progress: Progress | None = None,
        constraints: Sequence[Constraints] | None = None,
    ) -> Hypotheses:
        limit, sizes = longest(cast(Transformer, self.model)), [len(source) for source in sources]
        if limit is not None and max([*sizes, *self._limits(sources)], default=0) > limit:
            raise UserError(
                f"CTranslate2 supports sources and outputs of at most {limit:,} tokens here; use "
                "engine=torch, or lower generation.limit"
            )
        for processor in listed(self.search.processors):
            if constraints is None and isinstance(processor, ForcedPrefix):
                constraints = [Constraints(tuple(processor.ids))] * len(sources)
        lacking = {
            "prefixes that end within a word" if constraint.processor is None else "terms"
            for constraint in constraints or ()
            if constraint.processor is not None or not constraint.whole
        }
        if lacking:
            generator = self.otherwise(" and ".join(sorted(lacking)))
            return generator.generate(sources, indices, progress, constraints)
        return super().generate(sources, indices, progress, constraints)

    @contextmanager
    def open(self) -> Iterator[Generator]:
        yield self

    @contextmanager
    def _searched(self, batches: Sequence[Batch]) -> Iterator[Iterator[tuple[int, Hypotheses]]]:
        yield self._results(batches)

    def _results(self, batches: Sequence[Batch]) -> Iterator[tuple[int, Hypotheses]]:
        translator = self.translators.of_threads(max(1, min(self._count(), len(batches))))
        if any(batch.constraints is not None for batch in batches):
            yield from enumerate(self._with_prefixes(translator, batch) for batch in batches)
            return
        waiting = [self._submit(translator, batch.sources) for batch in batches]
        repeated: list[tuple[int, list[list[_Output]], list[_Repeat]]] = []
        for number, (jobs, batch) in enumerate(zip(waiting, batches, strict=True)):
            with _in_memory(batch):
                outputs = [self._outputs(job) for job in jobs]
                repeats = self._repeats(translator, batch.sources, outputs)
                if not repeats:
                    yield number, self._hypotheses(translator, batch.sources, outputs, [])
                    continue
            repeated.append((number, outputs, repeats))
        for number, outputs, repeats in repeated:
            with _in_memory(batches[number]):
                sources = batches[number].sources
                yield number, self._hypotheses(translator, sources, outputs, repeats)

    def _with_prefixes(self, translator: Any, batch: Batch) -> Hypotheses:
        """Return the hypotheses of a batch with first tokens, which CTranslate2 does not score.

        It searches sources with as many first tokens and the same limit together, and cannot forbid
        what continues the last word: where that occurs, PyTorch searches.
        """
        sources, each = batch.sources, batch.constraints or ()
        groups: dict[tuple[int, int], list[int]] = {}
        for row, limit in enumerate(self._limits(sources)):
            groups.setdefault((limit, len(each[row].ids)), []).append(row)
        results: Hypotheses = [[] for _ in sources]
        with _in_memory(batch):
            jobs = [
                self._submit(translator, [sources[n] for n in rows], True, [each[n] for n in rows])
                for rows in groups.values()
            ]
            for row, job in zip(chain(*groups.values()), chain(*jobs), strict=True):
                prefix = each[row]
                outputs = [one for one in self._outputs(job) if one.log_probability > _NO_OUTPUT]
                follows = {token for one in outputs for token in one.ids[len(prefix.ids) :][:1]}
                if prefix.ends and not follows <= {*prefix.ends[0]}:
                    torch_search = Generator(self.model, replace(self.search, workers=1))
                    arguments = [sources[row]], [batch.indices[row]], None, [prefix]
                    results[row] = torch_search.generate(*arguments)[0]
                else:
                    results[row] = self._ranked(self._rescored(translator, sources[row], outputs))
        return results

    def _submit(
        self,
        translator: Any,
        sources: Sequence[Sequence[int]],
        without_padding: bool = False,
        constraints: Sequence[Constraints] | None = None,
    ) -> list[Any]:
        """Start a search whose outputs are as long as the longest that any of the sources allows.

        Args:
            translator: of CTranslate2.
            sources: ids of each source.
            without_padding: forbid padding in outputs.
            constraints: of each source, its first tokens.
        """
        target_pieces, beams = self.translators.target_pieces, self.search.beams
        begins = [[target_pieces[n] for n in one.ids] for one in constraints or ()] or None
        jobs: list[Any] = translator.translate_batch(
            self._pieces(sources),
            target_prefix=begins,
            asynchronous=True,
            max_batch_size=_TOGETHER if self.device.type == "cpu" else 0,
            beam_size=beams,
            num_hypotheses=beams,
            length_penalty=self._penalty,
            suppress_sequences=[[target_pieces[PAD]]] if without_padding else None,
            return_end_token=True,
            max_input_length=0,
            max_decoding_length=max(self._limits(sources)),
            min_decoding_length=self.search.limit.minimum,
            return_scores=True,
        )
        return jobs

    def _pieces(self, sources: Sequence[Sequence[int]]) -> list[list[str]]:
        pieces = self.translators.source_pieces
        return [[pieces[token] for token in source[:-1]] for source in sources]

    def _limits(self, sources: Sequence[Sequence[int]]) -> list[int]:
        sizes = torch.tensor([len(source) for source in sources])
        limits: list[int] = self.search.limit.of(sizes, self.model.max_target_length).tolist()
        return limits

    @property
    def _penalty(self) -> float:
        return getattr(self.search, "length_penalty", 1.0)

    def _repeats(
        self,
        translator: Any,
        sources: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[_Output]],
    ) -> list[_Repeat]:
        """Start the searches again that the options did not fit.

        These are searches that reached the limit of their own source, where outputs that still grow
        compete with ended ones, and outputs with padding, which a trained model does not generate.
        """
        limits = self._limits(sources)
        again: dict[tuple[int, bool], list[int]] = {}
        for row, (beam, limit) in enumerate(zip(outputs, limits, strict=True)):
            padded = any(PAD in output.ids for output in beam)
            beyond = limit < max(limits) and any(len(output.ids) >= limit for output in beam)
            if padded or beyond:
                again.setdefault((limit, padded), []).append(row)
        return [
            _Repeat(row, job, padded)
            for (_, padded), rows in again.items()
            for row, job in zip(
                rows, self._submit(translator, [sources[row] for row in rows], padded), strict=True
            )
        ]

    def _hypotheses(
        self,
        translator: Any,
        sources: Sequence[Sequence[int]],
        outputs: list[list[_Output]],
        repeats: Sequence[_Repeat],
    ) -> Hypotheses:
        """Return the hypotheses of sources, once the repeated searches are done."""
        for row, job, padded in repeats:
            outputs[row] = self._outputs(job)
            if padded and not self.search.limit.minimum:
                outputs[row] = self._rescored(translator, sources[row], outputs[row])
        if self.search.limit.minimum:
            outputs = [self._rescored(translator, *row) for row in zip(sources, outputs)]
        return [self._ranked(beam) for beam in outputs]

    def _outputs(self, job: Any) -> list[_Output]:
        result, ids = job.result(), self.translators.target_ids
        return [
            _Output([ids[piece] for piece in pieces], score * len(pieces) ** self._penalty)
            for pieces, score in zip(result.hypotheses, result.scores, strict=True)
        ]

    def _rescored(
        self, translator: Any, source: Sequence[int], outputs: Sequence[_Output]
    ) -> list[_Output]:
        """Replace the probabilities of a search with forbidden tokens by those of the model."""
        pieces = self.translators.target_pieces
        targets = [[pieces[token] for token in output.ids if token != EOS] for output in outputs]
        scored = translator.score_batch(
            self._pieces([source] * len(targets)), targets, max_input_length=0
        )
        return [
            _Output(output.ids, sum(score.log_probs[: len(output.ids)]))
            for output, score in zip(outputs, scored, strict=True)
        ]

    def _ranked(self, outputs: Sequence[_Output]) -> list[Hypothesis]:
        """Return the n_best hypotheses of a source, best first."""
        hypotheses = [
            Hypothesis(
                tuple(token for token in ids if token != EOS),
                log_probability / len(ids) ** self._penalty,
                log_probability,
            )
            for ids, log_probability in outputs
        ]
        hypotheses.sort(key=lambda hypothesis: -hypothesis.score)
        return hypotheses[: getattr(self.search, "n_best", 1)]
