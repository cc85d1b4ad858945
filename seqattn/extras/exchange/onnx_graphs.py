"""Graphs of a Transformer in ONNX, with the names and axes of Hugging Face's Optimum."""

import copy
import importlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from seqattn import positions
from seqattn.attention.cache import KeysValues
from seqattn.attention.kernels.features import PerformerKernel
from seqattn.attention.kernels.linear import LinearKernel
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.attention.kernels.window import SlidingWindowKernel
from seqattn.attention.masks import Mask
from seqattn.errors import UserError
from seqattn.extras.exchange.export_checks import Supported
from seqattn.installation import install
from seqattn.models.head import DecoderOutput
from seqattn.models.stack import LayerStack
from seqattn.models.transformer import Transformer
from seqattn.positions import Position
from seqattn.positions.base import LayeredPosition
from seqattn.positions.relative import HeadwisePosition

ENCODER, DECODER, STEP = "encoder_model", "decoder_model", "decoder_with_past_model"
"""Names of the graphs: of sources, of the first tokens of outputs, and of each later token."""
_KERNELS = SoftmaxKernel, SlidingWindowKernel, LinearKernel, PerformerKernel
_POSITIONS = tuple(getattr(positions, name) for name in positions.__all__)
_OPSET = 20


def packages(*names: str) -> list[Any]:
    """Import packages of the extra `onnx`.

    Raises:
        UserError: one is not installed.
    """
    try:
        return [importlib.import_module(name) for name in names]
    except ImportError as error:
        raise UserError(f"export to=onnx needs {error.name}; {install('onnx')}") from error


def write_graphs(model: nn.Module, directory: Path) -> None:
    """Write the encoder, the decoder without past, and the decoder with past.

    Args:
        model: a `Transformer` with attention mha, gqa, mqa, sliding_window, linear or performer,
            and no copying.
        directory: an existing directory.

    Raises:
        UserError: the model is of another kind, or a package is missing.
    """
    model = _SUPPORTED.check(model)
    packages("onnx", "onnxscript")
    model = copy.deepcopy(model).float().cpu().eval()
    for part in model.modules():
        if isinstance(part, _KERNELS) and type(part) is not SoftmaxKernel:
            # an edit materializes the weights, in place of blocks whose number depends on lengths
            part.edits = (lambda weights, _: weights,)
    for stack in (model.encoder, model.decoder):
        if isinstance(stack.position, HeadwisePosition):
            stack.position = _with_parts(stack)
    # equal sizes would be traced as one axis, and a tensor that is given twice as one input
    ids, mask, tokens = torch.full((2, 3), 4), torch.ones(2, 3).long(), torch.full((2, 5), 4)
    batch, past_length = Dim("batch_size"), Dim("past_decoder_sequence_length")
    source_length = Dim("encoder_sequence_length", max=model.max_source_length)
    target_length = Dim("decoder_sequence_length", max=model.max_target_length)
    source, target = {0: batch, 1: source_length}, {0: batch, 1: target_length}
    encode, first, later = _Encoder(model), _Decoder(model), _DecoderWithPast(model)
    _write(
        encode, (ids, mask), (source, source), ["input_ids", "attention_mask"],
        ["last_hidden_state"], directory / ENCODER,
    )  # fmt: skip
    with torch.no_grad():
        memory = encode(ids, mask)
        past = first(mask, tokens, memory)[1:]
    sides = ("decoder", past_length), ("encoder", source_length)
    layers = range(len(model.decoder.layers))
    axes = {
        f"{layer}.{side}.{part}": {0: batch, 2: length}
        for layer in layers for side, length in sides for part in ("key", "value")
    }  # fmt: skip
    _write(
        first, (mask, tokens, memory), (source, target, source),
        ["encoder_attention_mask", "input_ids", "encoder_hidden_states"],
        ["logits", *(f"present.{name}" for name in axes)], directory / DECODER,
    )  # fmt: skip
    _write(
        later, (mask, tokens[:, :1], past), (source, {0: batch}, tuple(axes.values())),
        ["encoder_attention_mask", "input_ids", *(f"past_key_values.{name}" for name in axes)],
        ["logits", *(f"present.{name}" for name in axes if "decoder" in name)], directory / STEP,
    )  # fmt: skip


_SUPPORTED = Supported(
    "to=onnx",
    _POSITIONS,
    "position=rope or another of seqattn's own",
    _KERNELS,
    "attention=mha, gqa, mqa, sliding_window, linear or performer",
)


def _with_parts(stack: LayerStack) -> Position:
    """Return a stack's position scheme with its layers' parts as modules, to be traced."""
    parts = iter(stack.positions())
    return LayeredPosition(stack.position.stack, lambda _: next(parts))


class _Graph(nn.Module):
    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model


class _Encoder(_Graph):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the encoder's output (B, S, D) of sources (B, S) and their mask, 0 on padding."""
        mask = Mask.full(attention_mask.bool())
        x = self.model.source_embedding(input_ids, mask.query_positions)
        return self.model.encoder(x, mask)


class _Decoder(_Graph):
    def forward(
        self, encoder_attention_mask: Tensor, input_ids: Tensor, encoder_hidden_states: Tensor
    ) -> tuple[Tensor, ...]:
        """Return the logits (B, T, V) of the first T tokens, and the past of `_DecoderWithPast`."""
        layers = self.model.decoder.layers
        source = [layer.cross_attention.project(encoder_hidden_states) for layer in layers]
        indices = torch.arange(input_ids.shape[1])
        mask = Mask(indices, indices, causal=True)
        past = [None] * len(layers)
        logits, own = _decoded(self.model, input_ids, mask, encoder_attention_mask, source, past)
        return logits, *(part for layer in zip(own, source) for pair in layer for part in pair)


class _DecoderWithPast(_Graph):
    def forward(
        self, encoder_attention_mask: Tensor, input_ids: Tensor, past: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """Return the logits (B, 1, V) after one more token, and the self-attentions' new past.

        Args:
            encoder_attention_mask: (B, S).
            input_ids: (B, 1).
            past: of each layer the keys and values of self-attention, (B, G, L, Dh), and those of
                cross-attention, (B, G, S, Dh).
        """
        pairs = [KeysValues(*two) for two in zip(past[::2], past[1::2])]
        indices = torch.arange(past[0].shape[2] + 1)
        mask = Mask(indices[-1:], indices)
        logits, present = _decoded(
            self.model, input_ids, mask, encoder_attention_mask, pairs[1::2], pairs[::2]
        )
        return logits, *(part for pair in present for part in pair)


def _decoded(
    model: Transformer,
    ids: Tensor,
    mask: Mask,
    real: Tensor,
    source: Sequence[KeysValues],
    past: Sequence[KeysValues | None],
) -> tuple[Tensor, list[KeysValues]]:
    """Return the logits, and the keys and values of all tokens so far, before any rotation.

    No cache is involved: an attention is given its past as more keys and values.
    """
    present: list[KeysValues] = []
    source_mask = Mask.full(real.bool()).seen_by(mask)

    def attend(h: Tensor, attention: Any, position: Position) -> Tensor:
        pair, previous = attention.project(h), past[len(present)]
        if previous is not None:
            pair = KeysValues(*(torch.cat(two, dim=2) for two in zip(previous, pair)))
        present.append(pair)
        output: Tensor = attention(h, pair, mask, position).output
        return output

    x = model.target_embedding(ids, mask.query_positions)
    for layer, position, pair in zip(model.decoder.layers, model.decoder.positions(), source):
        x = layer.attend(x, partial(attend, attention=layer.self_attention, position=position))
        query = layer.cross.enter(x)
        attended = layer.cross_attention(query, pair, source_mask, layer.no_position)
        x = layer.feed(layer.cross.leave(x, attended.output), layer.feedforward)
    return model.head.logits(DecoderOutput(model.decoder.norm(x)), None), present


def _write(
    graph: nn.Module,
    inputs: tuple[Any, ...],
    axes: tuple[Any, ...],
    input_names: list[str],
    output_names: list[str],
    path: Path,
) -> None:
    """Trace a module and write it; weights of 2 GB or more get a file beside it."""
    with quietly("torch.onnx"):
        # branches by length, which some operations have, give equal results
        traced = torch.export.export(
            graph.eval(), inputs, dynamic_shapes=axes,
            prefer_deferred_runtime_asserts_over_guards=True,
        )  # fmt: skip
        program = torch.onnx.export(
            traced, input_names=input_names, output_names=output_names, dynamic_shapes=axes,
            opset_version=_OPSET, verbose=False,
        )  # fmt: skip
    assert program is not None
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # lines of code with their paths
    program.save(path.with_suffix(".onnx"))


@contextmanager
def quietly(logs: str) -> Iterator[None]:
    """Hide warnings, which are not for users. Args: logs: name of a logger."""
    logger = logging.getLogger(logs)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
