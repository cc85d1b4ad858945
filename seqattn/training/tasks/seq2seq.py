"""Training and validation of any encoder-decoder on pairs of texts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from torch import Tensor

from seqattn.attention.masks import padded_right
from seqattn.data.batch import Batch
from seqattn.errors import UserError
from seqattn.generation import Generator
from seqattn.metrics.means import TokenScores
from seqattn.models.base import Seq2SeqModel
from seqattn.ops.cross_entropy import LossTerms, TokenLoss
from seqattn.tokens import PAD
from seqattn.training.step import BatchLoss
from seqattn.training.tasks.base import SummedTask
from seqattn.training.tasks.settings import Choose, Optimization, Validation


def generated(
    generator: Generator,
    decode: Callable[[Sequence[Sequence[int]]], list[str]],
    batch: Batch,
    choose: Choose,
) -> Iterator[tuple[int, str]]:
    """Yield the row of each chosen source of a batch, and the best text for it."""
    rows = batch.index.tolist()  # a row repeats for each window of its source
    chosen = set(choose(rows))
    read = [pair for pair in zip(rows, batch.source.tolist(), strict=True) if pair[0] in chosen]
    sources = [[token for token in ids if token != PAD] for _, ids in read]
    hypotheses = generator.generate(sources)
    texts = decode([best.ids for best, *_ in hypotheses])
    yield from zip([row for row, _ in read], texts, strict=True)


class Seq2SeqTask(SummedTask):
    """Minimize the loss per real target token over the effective batch.

    Args:
        validation: generation and scoring of outputs; None for the loss only.

    Raises:
        UserError: for teacher forcing below 1 with a model that cannot read its own outputs.
    """

    model: Seq2SeqModel

    def __init__(
        self,
        model: Seq2SeqModel,
        optimization: Optimization,
        validation: Validation | None = None,
    ) -> None:
        super().__init__(model, optimization, TokenScores(), validation)
        terms = optimization.terms
        self._one_pass = replace(terms, r_drop=0.0, simcut=0.0)
        for embedding in (model.source_embedding, model.target_embedding):
            embedding.cutoff = terms.simcut_cutoff if terms.simcut else 0.0
        if not (model.feeds_itself or optimization.teacher_forcing.whole):
            raise UserError(
                "task.teacher_forcing below 1 needs a recurrent model, such as model=rnn; set "
                "task.teacher_forcing.schedule=constant task.teacher_forcing.start=1"
            )

    def loss(
        self, batch: Batch, teacher_forcing: float = 1.0, terms: LossTerms | None = None
    ) -> TokenLoss:
        """Return sums over a batch's real target tokens. Args: terms: None for one-pass terms."""
        full = batch.source_tokens == batch.source.numel()
        with padded_right("full" if full else "filled"):  # each row has its end mark
            return self.model.loss(
                batch.source, batch.target_input, batch.target_output, terms or self._one_pass,
                teacher_forcing, batch.target_tokens,
            )  # fmt: skip

    def units(self, batch: Batch) -> int:
        return batch.target_tokens

    def training_loss(self, batch: Batch) -> BatchLoss:
        forcing = self.optimization.teacher_forcing(self.global_step)
        terms, number = self.optimization.terms, batch.target_tokens
        passes = 2 if terms.r_drop else 1
        if terms.divergence_weight:
            batch = batch.twice()
        sums = self.loss(batch, forcing, terms)
        means = {"nll": sums.nll / sums.tokens}
        if terms.divergence_weight:
            means["divergence"] = sums.divergence / sums.tokens
        if not self.optimization.teacher_forcing.whole:
            means["teacher_forcing"] = sums.nll.new_full((), forcing)  # filled on the device
        return BatchLoss(sums.smoothed / passes, number, means)

    def validation_sums(self, batch: Batch) -> tuple[Tensor, ...]:
        return self.loss(batch)[:4]
