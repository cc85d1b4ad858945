"""Forward and backward passes of training as CUDA graphs, a pair for each size of batches.

A small step takes as long as its thousand operations take to launch; a graph is one launch. The
loss over the vocabulary, whose rows are the real tokens and so differ from batch to batch, stays
between both passes, and the optimizer outside.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from seqattn.attention.experts import MixtureOfAttention
from seqattn.attention.masks import assumed_rows
from seqattn.models.base import Seq2SeqModel
from seqattn.models.stack import LayerStack
from seqattn.ops.gpu.graphs import Recorder, may_replay
from seqattn.ops.memory import ran_out
from seqattn.ops.second_derivatives import forbid_second_derivatives
from seqattn.screen import say

_PLAIN_BATCHES = 2
"""Batches of a size before it is captured: frequent sizes come first."""


class PlainPass:
    """The passes over a batch without a graph.

    Args:
        compute: returns the features (B, T, D) of targets for sources.
    """

    def __init__(self, compute: Callable[[Tensor, Tensor], Tensor]) -> None:
        self._compute = compute

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the features of targets (B, T) for sources (B, S)."""
        with torch.enable_grad():
            self._features = self._compute(source, target)
        return self._features.detach()

    def backward(self, gradient: Tensor) -> None:
        """Add the gradients of the weights. Args: gradient: that of the features."""
        features, self._features = self._features, self._features.detach()  # frees the graph
        torch.autograd.backward(features, gradient)


class GraphPass:
    """The passes over batches of one size as two graphs.

    Args:
        compute: as in `PlainPass`.
        collect: adds what a backward pass leaves elsewhere to the gradients of the weights.
        recorder: captures the graphs.
        source, target: a batch's.
    """

    def __init__(
        self,
        compute: Callable[[Tensor, Tensor], Tensor],
        collect: Callable[[], None],
        recorder: Recorder,
        source: Tensor,
        target: Tensor,
    ) -> None:
        plain = PlainPass(compute)
        self._inputs, self._gradient = (source.clone(), target.clone()), torch.empty(0)

        def forward() -> None:
            self._features = plain.forward(*self._inputs)

        def backward() -> None:
            if not self._gradient.numel():
                self._gradient = torch.zeros_like(self._features)  # which adds nothing yet
            plain.backward(self._gradient)
            collect()

        self._forward, self._backward = recorder.capture(forward, backward)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Compute as `PlainPass.forward`; the features are valid until the next call."""
        torch._foreach_copy_(self._inputs, (source, target))
        self._forward()
        return self._features.detach()

    def backward(self, gradient: Tensor) -> None:
        """Compute as `PlainPass.backward`."""
        self._gradient.copy_(gradient)
        self._backward()


class _Passes(torch.autograd.Function):
    """Passes as one operation; gradients of weights are added on the way."""

    @staticmethod
    def forward(ctx: Any, passes: Any, source: Tensor, target: Tensor, leaf: Tensor) -> Tensor:
        ctx.passes = passes
        features: Tensor = passes.forward(source, target)
        return features

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, ...]:
        forbid_second_derivatives("captured passes do not support second derivatives")
        ctx.passes.backward(gradients[0])
        return None, None, None, None


class CapturedPasses:
    """The passes of a model: graphs for the first sizes that come back, plain for the others.

    Both have the same results, to the bit: the gradient of the loss by an output table is added
    first, then those of the passes.

    Args:
        model: the model.
        limit: number of sizes that are captured.
        collect: as in `GraphPass`.
    """

    def __init__(self, model: Seq2SeqModel, limit: int, collect: Callable[[], None]) -> None:
        self._model, self._limit, self._collect = model, limit, collect
        self._counts = Counter[Any]()
        self._graphs = dict[Any, GraphPass]()
        self._gradients = dict[nn.Parameter, Tensor]()
        """The gradients that graphs add to."""
        self._recorder: Recorder | None = None
        self._weights: list[tuple[int, bool]] = []

    def __call__(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the features (B, T, D) of complete targets (B, T), begin first, for sources."""
        passes = self._graph(source, target) or PlainPass(self._model.target_features)
        leaf = torch.ones((), requires_grad=True)  # so that autograd calls `_Passes.backward`
        features: Tensor = _Passes.apply(passes, source, target, leaf)  # type: ignore[no-untyped-call]
        return features

    def __deepcopy__(self, memo: Any) -> None:
        """Return None, as a copy of the model has passes of its own."""

    @property
    def sizes(self) -> int:
        """Number of sizes that are captured now."""
        return len(self._graphs)

    def begin_step(self) -> None:
        """Zero the gradients; drop the graphs if weights have moved, been frozen or thawed."""
        weights = [(weight.data_ptr(), weight.requires_grad) for weight in self._model.parameters()]
        if weights != self._weights:
            self._drop()
            self._weights = weights
        self._model.zero_grad()
        for weight, gradient in self._gradients.items():
            weight.grad = gradient
        if self._gradients:
            torch._foreach_zero_([*self._gradients.values()])

    def stop(self, reason: str) -> None:
        """Drop the graphs, capture none anymore, and say so."""
        if self._limit:
            say(f"trainer.cuda_graphs: batches are no longer captured, so slower: {reason}")
        self._limit = 0
        self._drop()

    def _drop(self) -> None:
        self._graphs, self._recorder = {}, None
        self._counts.clear()
        self._gradients = {}

    def _graph(self, source: Tensor, target: Tensor) -> GraphPass | None:
        """Return the graphs of a batch's size, which are captured if it has come back."""
        size = source.shape, target.shape, assumed_rows()
        if size in self._graphs or not self._limit:
            return self._graphs.get(size)
        self._counts[size] += 1
        if self._counts[size] <= _PLAIN_BATCHES or len(self._graphs) == self._limit:
            return None
        try:
            with torch.random.fork_rng([source.device] if source.is_cuda else []):
                self._recorder = self._recorder or Recorder(source.device)
                self._graphs[size] = GraphPass(
                    self._model.target_features, self._collect, self._recorder, source, target
                )
        except RuntimeError as error:
            line = "out of memory" if ran_out(error) else " ".join(str(error).split())[:200]
            self.stop(line)
            return None
        weights = self._model.parameters()
        self._gradients = {part: part.grad for part in weights if part.grad is not None}
        return self._graphs[size]


def why_not(task: Any, device: torch.device) -> str:
    """Return why the passes of a task cannot be captured, "" if they can."""
    model = task.model
    if not may_replay(device):
        return "this device has no CUDA graphs"
    if not isinstance(model, Seq2SeqModel) or type(model).loss is not Seq2SeqModel.loss:
        return f"{type(model).__name__} computes its loss otherwise"
    parts = [*model.modules()]
    if model.head.needs_weights or task.reads_weights:
        return "its loss reads attention weights"
    if any(isinstance(part, MixtureOfAttention) for part in parts):
        return "its attention adds to the loss"
    if any(isinstance(part, LayerStack) and part.checkpointing for part in parts):
        return "model.checkpoint_activations=true computes layers again"
    if not task.optimization.teacher_forcing.whole:
        return "task.teacher_forcing changes from step to step"
    return ""
