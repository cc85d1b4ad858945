"""Training and validation of any encoder-decoder on pairs of texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from seqattn.attention.auxiliary import auxiliary_losses
from seqattn.data.batch import Batch
from seqattn.errors import UserError
from seqattn.generation import Generator
from seqattn.metrics.text import CorpusBleu, TextScorer
from seqattn.metrics.token import TokenScores
from seqattn.models.base import PAD, Seq2SeqModel
from seqattn.training.forcing import TeacherForcing
from seqattn.training.loss import TokenLoss, output_cross_entropy
from seqattn.training.schedules import Schedule

_TOKENS = 1000.0  # a batch's loss is given per thousand tokens until its gradient is normalised


@dataclass(frozen=True)
class Optimization:
    """How weights move.

    Args:
        optimizer: makes the optimizer from (model, fused).
        schedule: factor on the learning rate, by optimizer step.
        label_smoothing: share of a target's probability spread over the vocabulary, from 0 up to
            but not 1.
        teacher_forcing: share of target tokens that are given, by optimizer step.

    Raises:
        UserError: for a share out of its range.
    """

    optimizer: Callable[..., Optimizer]
    schedule: Schedule
    label_smoothing: float = 0.0
    teacher_forcing: TeacherForcing = field(default_factory=TeacherForcing)

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise UserError(
                f"task.label_smoothing must be at least 0 and below 1, got {self.label_smoothing}"
            )


@dataclass(frozen=True)
class Validation:
    """What is measured by real generation beside the loss.

    Args:
        generator: the model with its search.
        scorer: how BLEU compares texts.
        decode: ids of hypotheses to texts.
        references: texts of the validation split, by row.
        every: epochs from one generation to the next; 0 for never.
        sentences: the first rows that are generated; 0 for all.

    Raises:
        UserError: for a negative number.
    """

    generator: Generator
    scorer: TextScorer
    decode: Callable[[Sequence[Sequence[int]]], list[str]]
    references: Callable[[], Sequence[str]]
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


class Seq2SeqTask(LightningModule):
    """Minimises the loss per real token over the whole effective batch.

    Whatever batches an optimizer step is made of (accumulated, uneven, on several ranks), its
    gradient is that of one big batch: sums are accumulated, and divided once by all tokens. The
    auxiliary losses of attentions that have one are added per token; each is of one batch.

    Args:
        model: the encoder-decoder.
        optimization: optimizer, schedule, label smoothing.
        validation: what is generated; None for the loss alone.

    Raises:
        UserError: for teacher forcing below 1 of a model that cannot read its own words.
    """

    def __init__(
        self, model: Seq2SeqModel, optimization: Optimization, validation: Validation | None = None
    ) -> None:
        super().__init__()
        if not (model.feeds_itself or optimization.teacher_forcing.whole):
            raise UserError(
                "task.teacher_forcing below 1 needs a recurrent model, such as model=rnn; leave "
                "it at schedule=constant start=1"
            )
        self.model = model
        self.optimization = optimization
        self.validation = validation
        self.token_scores = TokenScores()
        self.bleu = CorpusBleu(validation.scorer) if validation else None
        self.samples: list[Sample] = []
        """Some hypotheses of the last validation that generated."""
        self.window_tokens = torch.zeros((), dtype=torch.long)
        """Real target tokens since the last optimizer step, on this rank."""
        self._random_state: Tensor | None = None
        self._cuda_random_state: Tensor | None = None

    def loss(self, batch: Batch, teacher_forcing: float = 1.0) -> TokenLoss:
        """Sums over the real target tokens of a batch."""
        state = self.model.start(self.model.encode(batch.source), cached=False)
        features = self.model.features(batch.target_input, state, teacher_forcing)
        smoothing = self.optimization.label_smoothing
        return output_cross_entropy(
            features, self.model.output, batch.target_output, smoothing, PAD
        )

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        forcing = self.optimization.teacher_forcing(self.global_step)
        if not self.optimization.teacher_forcing.whole:
            self.log("train/teacher_forcing", forcing, batch_size=1)
        with auxiliary_losses(self.model) as losses:
            sums = self.loss(batch, forcing)
        self.window_tokens = self.window_tokens.to(sums.tokens.device) + sums.tokens
        loss = (sums.smoothed / sums.tokens).detach()
        self.log_dict(
            {"train/loss": loss, "train/nll": sums.nll / sums.tokens},
            batch_size=batch.target_tokens,
        )
        self.log("loss", loss, prog_bar=True, logger=False, batch_size=1)
        total = sums.smoothed
        if losses:
            total = total + torch.stack([part.loss for part in losses]).sum() * sums.tokens
            balance = torch.stack([part.balance for part in losses]).mean()
            self.log("train/balance", balance, batch_size=batch.target_tokens)
        # Lightning divides by the number of accumulated batches, `on_before_optimizer_step` by the
        # tokens of all of them
        return total / _TOKENS * self.trainer.accumulate_grad_batches

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        tokens = self.window_tokens.double()
        if self.trainer.world_size > 1:
            tokens = self.trainer.strategy.reduce(tokens, reduce_op="sum")
        # gradients were averaged over the ranks, so their sum is world_size times that
        scale = _TOKENS * self.trainer.world_size / tokens
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        torch._foreach_mul_(gradients, float(scale))
        self.window_tokens = torch.zeros_like(self.window_tokens)

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        limit = float("inf") if not gradient_clip_val else float(gradient_clip_val)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        self.log("train/gradient_norm", norm, batch_size=1)

    def configure_optimizers(self) -> Any:
        fused = self.trainer.precision != "16-mixed"
        optimizer = self.optimization.optimizer(self.model, fused=fused)
        schedule = LambdaLR(optimizer, self.optimization.schedule)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step", "name": "lr"},
        }

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
        assert self.bleu is not None
        rows = batch.index.tolist()
        chosen = [n for n, row in enumerate(rows) if not plan.sentences or row < plan.sentences]
        sources = [[token for token in row if token != PAD] for row in batch.source.tolist()]
        found = plan.generator.generate([sources[n] for n in chosen])
        hypotheses = plan.decode([hypotheses[0].ids for hypotheses in found])
        everything = plan.references()
        references = [everything[rows[n]] for n in chosen]
        self.bleu.update(hypotheses, references)
        new = zip((rows[n] for n in chosen), hypotheses, references)
        self.samples = sorted(
            [*self.samples, *(Sample(*sample) for sample in new)], key=lambda sample: sample.row
        )[:8]

    def on_validation_epoch_end(self) -> None:
        scores = self.token_scores.compute()
        self.token_scores.reset()
        # equal on every rank already, since metrics sum over ranks; Lightning asks for sync_dist
        self.log_dict({f"val/{name}": value for name, value in scores.items()}, sync_dist=True)
        if self.generates_now and self.bleu is not None:
            self.log("val/bleu", self.bleu.compute().to(self.device), sync_dist=True)
            self.bleu.reset()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["random_state"] = torch.get_rng_state()
        if torch.cuda.is_available():
            checkpoint["cuda_random_state"] = torch.cuda.get_rng_state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._random_state = checkpoint.get("random_state")
        self._cuda_random_state = checkpoint.get("cuda_random_state")

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Draws go on where the checkpoint left them, whatever was drawn while resuming."""
        if self._random_state is not None:
            torch.set_rng_state(self._random_state.cpu())
            self._random_state = None
        if self._cuda_random_state is not None:
            torch.cuda.set_rng_state(self._cuda_random_state.cpu())
            self._cuda_random_state = None
