"""The training loop that one writes by hand around `torch.nn.Transformer`."""

import math
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from seqattn.benchmarks.measure import Sample, timed
from seqattn.benchmarks.shape import RecurrentShape, Shape, parameters_of
from seqattn.data.batch import Batch
from seqattn.models.base import PAD


class PlainTransformer(nn.Module):
    """`torch.nn.Transformer` between shared embeddings and a tied output, as tutorials have it.

    Args:
        shape: as ours; `torch.nn.Transformer` drops attention weights and the inside of the
            feed-forward sublayers too, where ours drops embeddings and residual branches alone.
        longest: positions in the sinusoidal table.
    """

    table: Tensor

    def __init__(self, shape: Shape, longest: int = 512) -> None:
        super().__init__()
        self.dim = shape.dim
        self.embedding = nn.Embedding(shape.vocabulary, shape.dim)
        nn.init.normal_(self.embedding.weight, std=shape.dim**-0.5)
        warnings.filterwarnings("ignore", message="enable_nested_tensor is True")
        self.transformer = nn.Transformer(
            d_model=shape.dim,
            nhead=shape.heads,
            num_encoder_layers=shape.layers,
            num_decoder_layers=shape.layers,
            dim_feedforward=shape.ffn_dim,
            dropout=shape.dropout,
            batch_first=True,
            norm_first=True,
        )
        self.dropout = nn.Dropout(shape.dropout)
        self.output = nn.Linear(shape.dim, shape.vocabulary, bias=False)
        self.output.weight = self.embedding.weight
        self.register_buffer("table", sinusoids(longest, shape.dim), persistent=False)

    def embed(self, ids: Tensor) -> Tensor:
        """(B, T) -> (B, T, D)."""
        x = self.embedding(ids) * math.sqrt(self.dim) + self.table[: ids.shape[1]]
        out: Tensor = self.dropout(x)
        return out

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits (B, T, V) of whole targets (B, T), begin first, given sources (B, S)."""
        steps = target.shape[1]
        later = torch.triu(torch.ones(steps, steps, dtype=torch.bool, device=target.device), 1)
        features = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=later,
            src_key_padding_mask=source == PAD,
            tgt_key_padding_mask=target == PAD,
            memory_key_padding_mask=source == PAD,
        )
        logits: Tensor = self.output(features)
        return logits


def sinusoids(length: int, dim: int) -> Tensor:
    """The table of Vaswani et al. 2017 (arXiv 1706.03762), section 3.5: (length, dim)."""
    position = torch.arange(length)[:, None]
    frequency = torch.exp(torch.arange(0, dim, 2) * (-math.log(10000.0) / dim))
    table = torch.zeros(length, dim)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency)[:, : dim // 2]
    return table


class PlainLoop:
    """Forward, `nn.CrossEntropyLoss`, backward, clip, AdamW with its defaults, and again.

    Args:
        shape: the model's.
        precision: 32, or bf16-mixed for autocast.
        lr: learning rate.
        model: takes sources and targets to logits; None for a `PlainTransformer`.
    """

    def __init__(
        self,
        shape: Shape | RecurrentShape,
        precision: str = "32",
        lr: float = 1e-3,
        model: nn.Module | None = None,
    ) -> None:
        if model is None:
            assert isinstance(shape, Shape)
            model = PlainTransformer(shape)
        self.model = model
        self.criterion = nn.CrossEntropyLoss(label_smoothing=shape.smoothing, ignore_index=PAD)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)
        self.autocast = precision == "bf16-mixed"
        self.parameters = parameters_of(self.model)
        self.losses: list[float] = []
        """The mean loss per token of every step."""

    def run(self, batches: Sequence[Batch]) -> Sample:
        """Trains on the batches, a step each; the units are real target tokens."""
        self.model.train()
        return timed(lambda: sum(self._step(batch) for batch in batches))

    def _step(self, batch: Batch) -> int:
        self.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            logits = self.model(batch.source, batch.target_input)
            loss = self.criterion(logits.view(-1, logits.shape[-1]), batch.target_output.view(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.losses.append(loss.item())
        return batch.target_tokens
