"""What follows each hypothesis of a batch, asked of a model step by step."""

from collections.abc import Sequence

import torch
from torch import Tensor

from seqattn.generation.processors import Processor, coverage, forbid
from seqattn.models.base import PAD, Memory, Seq2SeqModel


class Asker:
    """Asks a model for one token after the other, and knows what each hypothesis has said.

    Args:
        model: in eval mode.
        memory: of B sources.
        beams: K hypotheses of each.
        made: what they may not say.
        looks: keep where in the source each has looked, for `coverage`.
    """

    def __init__(
        self,
        model: Seq2SeqModel,
        memory: Memory,
        beams: int = 1,
        made: Sequence[Processor] = (),
        looks: bool = False,
    ) -> None:
        self.model, self.made = model, made
        self.state = model.start(memory, beams=beams)
        self.real = memory.real
        rows, length = memory.ids.shape
        self.said: Tensor | None = None
        """(B, K, L) tokens of each hypothesis, begin left out, where something is forbidden."""
        self.looked: Tensor | None = None
        """(B, K, S) the sum of each hypothesis's weights on each source token, where it is kept."""
        if looks:
            self.looked = torch.zeros(rows, beams, length, device=memory.ids.device)

    def next(self, ids: Tensor) -> Tensor:
        """The model's log-probabilities (B, K, V) after one more token each, in float32.

        Padding is at -inf, and so is what is forbidden; the others stay the model's own.

        Args:
            ids: (B, K), the begin at first.
        """
        tokens = ids.flatten()[:, None]
        if self.looked is None:
            decoded = self.model.decode(tokens, self.state)
        else:
            decoded, weights = self.model.decode_with_weights(tokens, self.state)
            self.looked = self.looked + weights[:, -1].float().unflatten(0, ids.shape)
        scores = decoded[:, -1].float()
        if self.model.copying is None:
            torch.log_softmax(scores, dim=-1, out=scores)  # in place: fresh memory costs as much
        scores[:, PAD] = -torch.inf
        if self.made:
            forbid(self.made, scores, self._said(ids).flatten(0, 1))
        return scores.unflatten(0, ids.shape)

    def _said(self, ids: Tensor) -> Tensor:
        if self.said is None:  # the begin was given
            self.said = ids.new_empty(*ids.shape, 0)
        else:
            self.said = torch.cat((self.said, ids[..., None]), dim=2)
        return self.said

    def coverage(self) -> Tensor | None:
        """(B, K) as `processors.coverage`, of what each has said; None where it is not kept."""
        return None if self.looked is None else coverage(self.looked, self.real)

    def reorder(self, index: Tensor) -> None:
        """Beam k of sentence b goes on from its beam index[b, k]. Args: index: (B, K)."""
        self.state.reorder(index)
        for name in ("said", "looked"):
            part = getattr(self, name)
            if part is not None:
                rows = index[..., None].expand(-1, -1, part.shape[2])
                setattr(self, name, part.gather(1, rows))

    def keep(self, sentences: Tensor) -> None:
        """Only these sentences go on. Args: sentences: (B',) rows, in the order they keep."""
        self.state.keep(sentences)
        self.real = self.real.index_select(0, sentences)
        for name in ("said", "looked"):
            part = getattr(self, name)
            if part is not None:
                setattr(self, name, part.index_select(0, sentences))
