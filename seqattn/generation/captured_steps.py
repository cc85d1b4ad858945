"""Decoding steps as CUDA graphs."""

from typing import Any

import torch
from torch import Tensor, nn

from seqattn.attention.observation import Observable
from seqattn.generation.base import SearchModel

_TOKENS = 32
"""Room of the first graph; each later one has twice the room of the one before."""


def replays(model: SearchModel, device: torch.device) -> bool:
    """Return True if a model's steps can be captured: on a CUDA device, with unobserved weights."""
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return False
    assert isinstance(model, nn.Module)
    parts = model.modules()
    return not any(isinstance(part, Observable) and part.is_observed for part in parts)


class CapturedSteps:
    """Steps of a model, captured once and replayed: one launch instead of about 200.

    The first step is not captured, as it makes PyTorch prepare its kernels.

    Args:
        model: in eval mode.
        state: fixed, of the batch to decode.
    """

    def __init__(self, model: SearchModel, state: Any) -> None:
        self._model, self._state = model, state
        self._room, self._steps = _TOKENS, 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._ids = self._output = torch.empty(0)

    @classmethod
    def of(cls, model: SearchModel, state: Any) -> "CapturedSteps | None":
        """Fix a state and return its captured steps, or None if the state cannot be fixed."""
        fix = getattr(state, "fix", None)  # which an ensemble lacks
        return cls(model, state) if fix is not None and fix(_TOKENS) else None

    def __call__(self, ids: Tensor) -> Tensor:
        """Return log-probabilities (B*K, 1, V) after ids (B*K, 1), valid until the next call."""
        if self._steps == self._room:
            self.discard()
            self._room *= 2
            self._state.fix(self._room)
        self._steps += 1
        if self._steps == 1:
            return self._step(ids)
        if self._graph is None:
            self._graph = self._capture(ids)
        self._ids.copy_(ids)
        self._graph.replay()
        return self._output

    def discard(self) -> None:
        """Discard the graph, as the state's tensors have moved."""
        self._graph = None

    def _step(self, ids: Tensor) -> Tensor:
        scores: Tensor = self._model.log_probabilities(ids, self._state).log_probabilities
        return scores

    def _capture(self, ids: Tensor) -> torch.cuda.CUDAGraph:
        graph, self._ids = torch.cuda.CUDAGraph(), ids.clone()
        own, current = torch.cuda.Stream(), torch.cuda.current_stream()
        own.wait_stream(current)
        with torch.cuda.stream(own):
            graph.capture_begin(capture_error_mode="thread_local")  # other threads may go on
            try:
                self._output = self._step(self._ids)
            finally:
                graph.capture_end()
        current.wait_stream(own)
        return graph
