"""Products of float32 by oneDNN, where MKL does without AVX-512, and of packed weights anywhere."""

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

FEW_ROWS = 8
"""Rows up to which the start of a product by oneDNN takes longer than it saves."""
_ROWS = 128  # that a step of a search multiplies, about


@cache
def mkl_lags() -> bool:
    """Whether MKL, by which PyTorch multiplies float32 and takes exponentials, leaves out AVX-512.

    It keeps to AVX2 on CPUs of AMD, at half of the rate of products and a quarter of that of
    exponentials.
    """
    wide = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    return wide and torch.backends.mkl.is_available() and _is_amd()


def _is_amd() -> bool:
    system = Path("/proc/cpuinfo")
    text = system.read_text(encoding="utf-8") if system.is_file() else platform.processor()
    return "AuthenticAMD" in text


def bf16_is_native() -> bool:
    """Whether this CPU multiplies bfloat16 by instructions of its own."""
    known = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)  # a private name
    return bool(known())


def bf16_is_emulated() -> bool:
    """Return True if PyTorch says that it multiplies bfloat16 without any such instructions."""
    known = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)  # private, too
    return not known()


@contextmanager
def quick_products() -> Iterator[None]:
    """Within the block products of matrices in float32 are oneDNN's, where MKL lags.

    They are as exact: PyTorch hands float32 to oneDNN only where less is allowed, but there is
    nothing less that oneDNN would do on such a CPU (`onednn_is_exact` has looked). Each takes some
    10 us to begin, and one of a new shape a quarter of a millisecond, so they are for large ones.
    """
    if torch.compiler.is_compiling() or not is_quicker():
        yield
        return
    with _less_allowed:
        yield


def is_quicker() -> bool:
    """Return True if oneDNN multiplies float32 faster than MKL on this CPU, and as exactly."""
    return mkl_lags() and onednn_is_exact()


def takes(x: Tensor, y: Tensor) -> bool:
    """Return True if x and y are multiplied as float32 on a CPU."""
    single = x.device.type == "cpu" and x.dtype == y.dtype == torch.float32
    return single and not torch.is_autocast_enabled("cpu")


def serves(x: Tensor, y: Tensor) -> bool:
    """Return True if oneDNN is the quicker one for large products of x and y."""
    return takes(x, y) and not torch.compiler.is_compiling() and is_quicker()


@cache
def onednn_is_exact() -> bool:
    """Whether oneDNN multiplies float32 in float32 though it may do less, tried on some shapes."""
    known = hasattr(torch.backends.mkldnn, "matmul")  # from PyTorch 2.9 on
    if not known or not torch.backends.mkldnn.is_available():
        return False
    source, shapes = torch.Generator().manual_seed(0), ((64, 32, 96), (3, 200, 17), (40, 600, 40))
    with torch.no_grad(), torch.autocast("cpu", enabled=False), _less_allowed:
        return all(_is_exact(source, *shape) for shape in shapes)


class _LessAllowed:
    """Within its blocks, which may be of several threads, PyTorch may multiply in less than float32
    by oneDNN."""

    def __init__(self) -> None:
        self.lock, self.blocks, self.before = Lock(), 0, ""

    def __enter__(self) -> None:
        with self.lock:
            if self.blocks == 0:
                self.before, _matmul().fp32_precision = _matmul().fp32_precision, "bf16"
            self.blocks += 1

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.blocks -= 1
            if self.blocks == 0:
                _matmul().fp32_precision = self.before


_less_allowed = _LessAllowed()


def _matmul() -> Any:
    return torch.backends.mkldnn.matmul  # type: ignore[attr-defined]


def _is_exact(source: torch.Generator, rows: int, inner: int, columns: int) -> bool:
    kind: dict[str, Any] = {"generator": source, "dtype": torch.float32, "device": "cpu"}
    x, y = torch.randn(2, rows, inner, **kind), torch.randn(2, columns, inner, **kind).mT
    wanted = (x.double() @ y.double()).float()
    found = (x @ y, torch.stack([one @ other for one, other in zip(x, y)]))
    return all(torch.allclose(one, wanted, rtol=1e-5, atol=1e-4) for one in found)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return `F.linear`, for what oneDNN `serves`."""
    out: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return out


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        with quick_products():
            return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        rows, inputs = (part.reshape(-1, part.shape[-1]) for part in (gradient, x))
        with quick_products():
            return (
                (rows @ weight).view_as(x) if of_x else None,
                rows.T @ inputs if of_weight else None,
                rows.sum(dim=0) if of_bias else None,
            )


def product(x: Tensor, y: Tensor) -> Tensor:
    """Return x @ y, for what oneDNN `serves`."""
    out: Tensor = _Product.apply(_dense(x), _dense(y))  # type: ignore[no-untyped-call]
    return out


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        with quick_products():
            return x @ y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, y = ctx.saved_tensors
        of_x = of_y = None
        if ctx.needs_input_grad[0]:
            of_x = _either(gradient, y.mT)
        if ctx.needs_input_grad[1]:  # in the order in which y lies
            rows = y.is_contiguous()
            of_y = _either(x.mT, gradient) if rows else _either(gradient.mT, x).mT
        return of_x, of_y


def _either(x: Tensor, y: Tensor) -> Tensor:
    return product(x, y) if x.shape[-2] > FEW_ROWS and serves(x, y) else x @ y


def _dense(x: Tensor) -> Tensor:
    """Return x without gaps: a matrix, or the transpose of one."""
    return x if x.is_contiguous() or x.mT.is_contiguous() else x.contiguous()


@cache
def can_pack() -> bool:
    """Return True if PyTorch has the operators that pack weights, which are undocumented."""
    names = "_reorder_linear_weight", "_linear_pointwise"
    built = torch.backends.mkldnn.is_available()
    return built and all(hasattr(torch.ops.mkldnn, name) for name in names)


def pack(weight: Tensor) -> Tensor:
    """Return a weight (O, I) as oneDNN reads it, for some hundred rows at a time."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _ROWS)
    return packed


def packed_linear(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    """Return `F.linear` of a weight by `pack`, without gradients."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return out
