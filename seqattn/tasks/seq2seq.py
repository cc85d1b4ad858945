"""Training and validation of any encoder-decoder on pairs of texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from seqattn.attention.auxiliary import auxiliary_losses
from seqattn.data.batch import Batch
from seqattn.errors import UserError
from seqattn.generation import Generator
from seqattn.metrics.text import Scorer
from seqattn.metrics.token import TokenScores
from seqattn.models.base import PAD, Seq2SeqModel
from seqattn.tasks.base import Optimization, SummedTask
from seqattn.training.copy_loss import copying_cross_entropy
from seqattn.training.loss import TokenLoss, output_cross_entropy

__all__ = ["Optimization", "Sample", "Seq2SeqTask", "Validation"]


@dataclass(frozen=True)
class Validation:
    """What is measured by real generation beside the loss.

    Args:
        generator: the model with its search.
        scorer: how texts are compared; its scores are logged as `val/NAME`.
        decode: ids of hypotheses to texts.
        references: of the validation split, by row, one or more texts each.
        every: epochs from one generation to the next; 0 for never.
        sentences: the first rows that are generated; 0 for all.

    Raises:
        UserError: for a negative number.
    """

    generator: Generator
    scorer: Scorer
    decode: Callable[[Sequence[Sequence[int]]], list[str]]
    references: Callable[[], Sequence[Sequence[str]]]
    every: int = 1
    sentences: int = 0

    def __post_init__(self) -> None:
        for name in ("every", "sentences"):
            if getattr(self, name) < 0:
                raise UserError(
                    f"task.validation.{name} must be at least 0, got {getattr(self, name)}"
                )


@dataclass(frozen=True)
class Sample:
    """One validation sentence's place in its split, hypothesis and reference."""

    row: int
    hypothesis: str
    reference: str


class Seq2SeqTask(SummedTask):
    """Minimises the loss per real target token over the whole effective batch.

    Args:
        model: the encoder-decoder.
        optimization: optimizer, schedule, label smoothing.
        validation: what is generated; None for the loss alone.

    Raises:
        UserError: for teacher forcing below 1 of a model that cannot read its own words.
    """

    model: Seq2SeqModel

    def __init__(
        self, model: Seq2SeqModel, optimization: Optimization, validation: Validation | None = None
    ) -> None:
        super().__init__(model, optimization)
        if not (model.feeds_itself or optimization.teacher_forcing.whole):
            raise UserError(
                "task.teacher_forcing below 1 needs a recurrent model, such as model=rnn; leave "
                "it at schedule=constant start=1"
            )
        self.validation = validation
        self.token_scores = TokenScores()
        self.score = validation.scorer.corpus() if validation else None
        self.samples: list[Sample] = []
        """Some hypotheses of the last validation that generated."""

    def loss(self, batch: Batch, teacher_forcing: float = 1.0) -> TokenLoss:
        """Sums over the real target tokens of a batch."""
        model, smoothing = self.model, self.optimization.label_smoothing
        state = model.start(model.encode(batch.source), cached=False)
        if model.copying is None:
            features = model.features(batch.target_input, state, teacher_forcing)
            return output_cross_entropy(features, model.output, batch.target_output, smoothing, PAD)
        seen = model.features_with_weights(batch.target_input, state, teacher_forcing)
        mixture = model.mixture(seen, state)
        return copying_cross_entropy(
            seen.features, model.output, mixture, batch.target_output, smoothing, PAD
        )

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        forcing = self.optimization.teacher_forcing(self.global_step)
        if not self.optimization.teacher_forcing.whole:
            self.log("train/teacher_forcing", forcing, batch_size=1)
        with auxiliary_losses(self.model) as losses:
            sums = self.loss(batch, forcing)
        loss = (sums.smoothed / sums.tokens).detach()
        self.log_dict(
            {"train/loss": loss, "train/nll": sums.nll / sums.tokens},
            batch_size=batch.target_tokens,
        )
        self.log("loss", loss, prog_bar=True, logger=False, batch_size=1)
        return self.summed(sums.smoothed, sums.tokens, losses, batch.target_tokens)

    @property
    def generates_now(self) -> bool:
        """Whether this validation generates."""
        plan = self.validation
        if plan is None or plan.every == 0 or self.trainer.sanity_checking:
            return False
        return (self.current_epoch + 1) % plan.every == 0

    def on_validation_epoch_start(self) -> None:
        if self.generates_now:
            self.samples = []

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.token_scores.update(*self.loss(batch))
        if self.generates_now:
            self._generate(batch)

    def _generate(self, batch: Batch) -> None:
        plan = self.validation
        assert plan is not None
        assert self.score is not None
        rows = batch.index.tolist()
        chosen = [n for n, row in enumerate(rows) if not plan.sentences or row < plan.sentences]
        sources = [[token for token in row if token != PAD] for row in batch.source.tolist()]
        found = plan.generator.generate([sources[n] for n in chosen])
        hypotheses = plan.decode([hypotheses[0].ids for hypotheses in found])
        everything = plan.references()
        references = [everything[rows[n]] for n in chosen]
        self.score.update(hypotheses, references)
        new = zip((rows[n] for n in chosen), hypotheses, (said[0] for said in references))
        self.samples = sorted(
            [*self.samples, *(Sample(*sample) for sample in new)], key=lambda sample: sample.row
        )[:8]

    def on_validation_epoch_end(self) -> None:
        scores = self.token_scores.compute()
        self.token_scores.reset()
        # equal on every rank already, since metrics sum over ranks; Lightning asks for sync_dist
        self.log_dict({f"val/{name}": value for name, value in scores.items()}, sync_dist=True)
        if self.generates_now and self.score is not None:
            for name, value in self.score.compute().items():
                self.log(f"val/{name}", value.to(self.device), sync_dist=True)
            self.score.reset()
