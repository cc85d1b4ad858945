"""Guided alignment: a cross-attention is trained on links between words."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seqattn.analysis.capture import makers
from seqattn.analysis.forced_alignment import cross_attentions
from seqattn.analysis.word_alignment import AlignmentReading
from seqattn.attention.alignment import Alignment
from seqattn.attention.kernels.base import Kernel
from seqattn.checking import shown
from seqattn.data.batch import Batch
from seqattn.errors import UserError
from seqattn.extras.align.guided_data import LinkedBatch, LinkedData
from seqattn.metrics.means import Means, TokenScores
from seqattn.ops.precision import wide
from seqattn.training.settings import TrainingSettings
from seqattn.training.setup import Setup
from seqattn.training.step import BatchLoss
from seqattn.training.task_options import GuidedAlignment, TextGeneration
from seqattn.training.tasks.seq2seq import Seq2SeqTask


def guided_loss(weights: Tensor, links: Tensor) -> Tensor:
    """Return the sum of the cross-entropies of linked rows, in nats (Garg et al. 2019, eq. 4).

    Args:
        weights: (B, T, S) of a head, not negative; rows are normalized, those of zeros left out.
        links: (B, T, S) bool; the labels of a row are equal shares of its links.
    """
    weights = wide(weights)
    least = torch.finfo(weights.dtype).tiny
    totals = weights.sum(dim=-1, keepdim=True)
    shares = (links & (totals > 0)).to(weights.dtype)
    shares = shares / shares.sum(dim=-1, keepdim=True).clamp(min=1)
    return -(shares * (weights / totals.clamp(min=least)).clamp(min=least).log()).sum()


class GuidedTask(Seq2SeqTask):
    """Add the loss of one head against links, per real target token, to that of the tokens.

    The kernel is observed and so computes its weights, beside its output, which it computes as
    before. Of several passes over a batch (`r_drop`, `simcut`) the first is guided.

    Args:
        guide: settings.

    Raises:
        UserError: for a layer or a head that the model does not have, or whose weights may be
            negative.
    """

    def __init__(self, *args: Any, guide: GuidedAlignment) -> None:
        super().__init__(*args)
        self.guide = guide
        if guide.val_links is not None:
            self.loss_metric = GuidedScores()
        heads = getattr(self.guided, "num_heads", 1)
        if isinstance(self.guided, Kernel) and self.guided.abilities.signed:
            raise UserError(
                f"task.alignment cannot guide {type(self.guided).__name__}, whose weights may be "
                "negative; use attention@cross_attention=mha"
            )
        if guide.head is not None and guide.head >= heads:
            raise UserError(f"task.alignment.head must be below {heads}, got {guide.head}")

    reads_weights = True

    @property
    def guided(self) -> Kernel | Alignment:
        """The part of the model whose weights are guided."""
        names = cross_attentions(self.model)
        name = names[AlignmentReading(layer=self.guide.layer).layer_of(len(names))]
        return dict(makers(self.model))[name]

    def training_loss(self, batch: Batch) -> BatchLoss:
        if not isinstance(batch, LinkedBatch):  # of a source without links
            return super().training_loss(batch)
        shown: list[Tensor] = []
        self.guided.observers = (shown.append,)  # until `backward`, which may compute layers again
        loss = super().training_loss(batch)
        guided = self._loss_of(shown[0], batch.links)
        means = {**loss.means, "alignment": guided.detach() / loss.number}
        return loss._replace(total=loss.total + self.guide.weight * guided, means=means)

    def _loss_of(self, weights: Tensor, links: Tensor) -> Tensor:
        """Return the loss of weights (B, H, T, S), or of two passes (2*B, H, T, S)."""
        head = self.guide.head
        rows = weights[: len(links)]
        rows = rows.mean(dim=1) if head is None else rows[:, head]
        if self.guide.shifted:  # a word is read one step after it is predicted
            links = F.pad(links[:, :-1], (0, 0, 1, 0))
        return guided_loss(rows, links)

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        try:
            super().backward(loss, *args, **kwargs)
        finally:
            self.guided.observers = ()

    def validation_sums(self, batch: Batch) -> tuple[Tensor, ...]:
        if not isinstance(batch, LinkedBatch):
            return super().validation_sums(batch)
        shown: list[Tensor] = []
        self.guided.observers = (shown.append,)
        try:
            sums = super().validation_sums(batch)
        finally:
            self.guided.observers = ()
        return *sums, self._loss_of(shown[0], batch.links)


class GuidedScores(TokenScores):
    """Scores of tokens, and the loss of the guided head per token."""

    def __init__(self) -> None:
        Means.__init__(self, ("loss", "nll", "accuracy", "alignment"))

    def update(self, *sums: Tensor) -> None:  # type: ignore[override]
        *others, alignment = sums
        super().update(*others)
        self.add({"alignment": alignment}, others[-1])


class GuidedSetup(Setup):
    """Setup of guided training, whose bundle reads alignments from the guided head."""

    data_type, task_type = LinkedData, GuidedTask

    def __init__(self, run: TrainingSettings) -> None:
        if run.task.setup != TextGeneration.setup:
            raise UserError(f"task.alignment does not apply to task={run.task.name}")
        if run.trainer.compile:
            raise UserError("task.alignment does not support trainer.compile=true")
        super().__init__(run)
        guide, config = run.task.alignment, self.bundle.config
        reading = AlignmentReading(guide.shifted, guide.layer, guide.head, "training on links")
        config["alignment"] = asdict(reading)
        config["task"]["alignment"] |= {"links": None, "val_links": None}  # paths of this machine

    def data_settings(self) -> dict[str, Any]:
        guide, settings = self.run.task.alignment, super().data_settings()
        key = "task.alignment.links"
        links, sources = guide.links, getattr(self.run.data, "sources", {})
        files = links if isinstance(links, Mapping) else {}
        if links is True:
            files = {name: True for name, one in sources.items() if getattr(one, "has_links", 0)}
        if isinstance(links, str) == bool(sources) or not files.keys() <= sources.keys():
            raise UserError(
                f"{key} must be a file, or for data=mixture files by the names of sources, such as "
                f"{{{next(iter(sources), 'NAME')}:FILE}}, got {shown(links)}"
            )
        if links is True and not files:
            raise UserError(f"{key}=true needs data with links, as of data.opustrainer")
        for name, arguments in settings.get("parts", {}).items():
            arguments["links"] = {"train": (f"{key}.{name}", files.get(name))}
        of_splits = {
            "train": (key, None if sources else links),
            "val": ("task.alignment.val_links", guide.val_links),
        }
        return {**settings, "links": of_splits}

    def task_settings(self) -> dict[str, Any]:
        return {"guide": replace(self.run.task.alignment, val_links=self.data.links["val"][1])}
