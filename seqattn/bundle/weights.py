"""A model's weights in a file, without pickle and checked against the model before reading."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from seqattn.errors import UserError
from seqattn.ops.int8 import Rounded, matrices
from seqattn.settings.assembly import Architecture, Vocabularies
from seqattn.settings.meta_device import on_meta_device

_SCALE = ".int8_scale"
"""Suffix of the name of a rounded matrix's scales."""
_LONGEST_HEADER = 1 << 24
_SPARE = 1 << 30
"""Bytes that a model may take beyond its weights, for tables that are not stored."""


class _Wrong(Exception):
    """Reason why a file does not hold the model's weights."""


def save_weights(model: nn.Module, file: Path, form: str, rounded: bool) -> None:
    """Write a model's weights without pickle, each shared one once, with the format name `form`.

    Equal weights give equal files, byte for byte.

    Args:
        rounded: True if `round_weights` rounded the model; its matrices are then written as int8,
            each with the scales of its rows.
    """
    rounded_ids = {id(table) for table in matrices(model)} if rounded else set()
    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) in rounded_ids - seen:
            tensors[name], tensors[name + _SCALE] = Rounded.of(tensor.data)
        elif id(tensor) not in seen:
            tensors[name] = tensor.data.contiguous()
        seen.add(id(tensor))
    save_file(tensors, str(file), metadata={"format": form})


def load_model(file: Path, architecture: Architecture, vocabulary: Vocabularies) -> nn.Module:
    """Build the model of an architecture and load the weights of a file.

    Names, shapes and memory are compared before any tensor is allocated.

    Raises:
        UserError: if the file is missing or damaged, or holds another model's weights or values
            that are not finite.
    """
    if not file.is_file():
        raise UserError(f"{file} does not exist: the bundle is incomplete; retrain")
    try:
        with file.open("rb") as content:
            start = content.read(8)
        if len(start) < 8 or struct.unpack("<Q", start)[0] > _LONGEST_HEADER:
            raise _Wrong("its header is damaged")
        with safe_open(str(file), framework="pt") as tensors:
            stored = set(tensors.keys())
            scales = {name for name in stored if name.removesuffix(_SCALE) in stored - {name}}
            shapes = {n: tuple(tensors.get_slice(n).get_shape()) or (1,) for n in stored - scales}
            size = file.stat().st_size * (4 if scales else 1)  # bytes in float32
            _check(architecture, vocabulary, shapes, size)
            read = {name: _read(tensors, name, scales) for name in shapes}
    except (SafetensorError, OSError, _Wrong) as error:
        reason = str(error).split("\n")[0]
        raise UserError(f"cannot read {file} ({reason}); copy it again or retrain") from error
    for name, tensor in sorted(read.items()):
        if not is_finite(tensor):
            raise UserError(f"{file} has values in {name} that are not finite numbers; retrain")
    model = architecture.build(vocabulary)
    model.load_state_dict(read, strict=False)  # a shared table is stored once
    return model


def is_finite(tensor: Tensor) -> bool:
    """Return True for floating-point numbers that are finite in float32, without copying them all.

    Float8 has no `isfinite`, and float64 may overflow float32.
    """
    ends = tensor.float().aminmax() if tensor.numel() else ()
    return tensor.is_floating_point() and all(end.isfinite() for end in ends)


def _read(tensors: Any, name: str, scales: set[str]) -> Tensor:
    """Return a tensor of the file; a rounded matrix is multiplied by its scales."""
    tensor: Tensor = tensors.get_tensor(name)
    if name + _SCALE not in scales:
        return torch.atleast_1d(tensor)  # `load_state_dict` takes it for a scalar, too
    scale = tensors.get_tensor(name + _SCALE)
    if tensor.dtype != torch.int8 or tensor.dim() != 2 or scale.shape != (len(tensor), 1):
        raise _Wrong(f"{name} and {name}{_SCALE} are not an int8 matrix with row scales")
    return Rounded(tensor, scale).matrix


def _check(
    architecture: Architecture,
    vocabulary: Vocabularies,
    shapes: Mapping[str, tuple[int, ...]],
    size: int,
) -> None:
    """Compare a file's tensors with those of the model, on the meta device.

    Args:
        architecture, vocabulary: those of the model.
        shapes: shapes of the file's tensors, by name.
        size: size of the file, in bytes.

    Raises:
        _Wrong: if they differ.
    """
    if sum(architecture.model.attentions.values()) > len(shapes):
        raise _Wrong(f"it has {len(shapes)} tensors, fewer than the model has layers")
    try:
        with on_meta_device():
            sketch = architecture.build(vocabulary)
    except RuntimeError as error:  # a size that overflows an integer
        raise _Wrong(f"cannot build the model: {error}") from error
    tables = [*sketch.parameters(), *sketch.buffers()]
    needed = sum(tensor.numel() * tensor.element_size() for tensor in tables)
    if needed > 2 * size + _SPARE:
        raise _Wrong(f"the model needs {needed:,} bytes, but the file holds {size:,}")
    state: dict[str, Tensor] = sketch.state_dict(keep_vars=True)
    for name in shapes.keys() - state.keys():
        raise _Wrong(f"unexpected tensor {name}")
    held = {id(state[name]) for name in shapes}
    for name, tensor in state.items():
        if id(tensor) not in held:
            raise _Wrong(f"missing tensor {name}")
        own = tuple(tensor.shape) or (1,)
        shape = shapes.get(name, own)
        if shape != own:
            raise _Wrong(f"{name} is {shape}, but {own} in the model")
