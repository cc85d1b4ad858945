"""Float32 products by oneDNN where MKL does not use AVX-512, and products of packed weights."""

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
"""Maximum rows for which the overhead of oneDNN outweighs its gain."""
_ROWS = 128  # approximate rows of a product in a search step


@cache
def mkl_lags() -> bool:
    """Return True if MKL, PyTorch's library for float32 products and exponentials, avoids AVX-512.

    On AMD CPUs it uses AVX2, at half the speed for products and a quarter for exponentials.
    """
    has_avx512 = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    return has_avx512 and torch.backends.mkl.is_available() and _is_amd()


def _is_amd() -> bool:
    system = Path("/proc/cpuinfo")
    text = system.read_text(encoding="utf-8") if system.is_file() else platform.processor()
    return "AuthenticAMD" in text


def bf16_is_native() -> bool:
    """Return True if this CPU has bfloat16 multiplication instructions."""
    check = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)  # a private name
    return bool(check())


def bf16_is_emulated() -> bool:
    """Return True if PyTorch reports that it emulates bfloat16 multiplication."""
    check = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)  # private, too
    return not check()


@contextmanager
def quick_products() -> Iterator[None]:
    """Use oneDNN for float32 matrix products within the block, where MKL lags.

    Results are just as exact: PyTorch uses oneDNN for float32 only if lower precision is allowed,
    but on such a CPU oneDNN does not lower it (`onednn_is_exact` checks). A call costs about 10 us,
    and 0.25 ms for a new shape, so this pays only for large products.
    """
    if torch.compiler.is_compiling() or not is_quicker():
        yield
        return
    with _less_allowed:
        yield


def is_quicker() -> bool:
    """Return True if oneDNN multiplies float32 faster than MKL on this CPU, and as precisely."""
    return mkl_lags() and onednn_is_exact()


def can_multiply(x: Tensor, y: Tensor) -> bool:
    """Return True if x and y are float32 on a CPU, so oneDNN can multiply them."""
    single = x.device.type == "cpu" and x.dtype == y.dtype == torch.float32
    return single and not torch.is_autocast_enabled("cpu")


def is_faster_for(x: Tensor, y: Tensor) -> bool:
    """Return True if oneDNN is faster for large products of x and y."""
    return can_multiply(x, y) and not torch.compiler.is_compiling() and is_quicker()


@cache
def onednn_is_exact() -> bool:
    """Return True if a test shows that oneDNN keeps float32 precision when allowed to lower it."""
    has_matmul = hasattr(torch.backends.mkldnn, "matmul")  # since PyTorch 2.9
    if not has_matmul or not torch.backends.mkldnn.is_available():
        return False
    source, shapes = torch.Generator().manual_seed(0), ((64, 32, 96), (3, 200, 17), (40, 600, 40))
    with torch.no_grad(), torch.autocast("cpu", enabled=False), _less_allowed:
        return all(_is_exact(source, *shape) for shape in shapes)


class _LessAllowed:
    """Thread-safe context manager that lets oneDNN use less than float32 precision."""

    def __init__(self) -> None:
        self.lock, self.blocks, self.saved_precision = Lock(), 0, ""

    def __enter__(self) -> None:
        with self.lock:
            if self.blocks == 0:
                self.saved_precision, _matmul().fp32_precision = _matmul().fp32_precision, "bf16"
            self.blocks += 1

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.blocks -= 1
            if self.blocks == 0:
                _matmul().fp32_precision = self.saved_precision


_less_allowed = _LessAllowed()


def _matmul() -> Any:
    return torch.backends.mkldnn.matmul  # type: ignore[attr-defined]


def _is_exact(source: torch.Generator, rows: int, inner: int, columns: int) -> bool:
    kind: dict[str, Any] = {"generator": source, "dtype": torch.float32, "device": "cpu"}
    x, y = torch.randn(2, rows, inner, **kind), torch.randn(2, columns, inner, **kind).mT
    expected = (x.double() @ y.double()).float()
    products = (x @ y, torch.stack([a @ b for a, b in zip(x, y)]))
    return all(torch.allclose(a, expected, rtol=1e-5, atol=1e-4) for a in products)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return `F.linear(x, weight, bias)` by oneDNN, for inputs that it `serves`."""
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
    """Return x @ y by oneDNN, for inputs that it `serves`."""
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
        if ctx.needs_input_grad[1]:  # in the memory layout of y
            rows = y.is_contiguous()
            of_y = _either(x.mT, gradient) if rows else _either(gradient.mT, x).mT
        return of_x, of_y


def _either(x: Tensor, y: Tensor) -> Tensor:
    return product(x, y) if x.shape[-2] > FEW_ROWS and is_faster_for(x, y) else x @ y


def _dense(x: Tensor) -> Tensor:
    """Return x with a dense layout: a contiguous matrix, or the transpose of one."""
    return x if x.is_contiguous() or x.mT.is_contiguous() else x.contiguous()


@cache
def can_pack() -> bool:
    """Return True if PyTorch has the operators that pack weights, which are undocumented."""
    names = "_reorder_linear_weight", "_linear_pointwise"
    built = torch.backends.mkldnn.is_available()
    return built and all(hasattr(torch.ops.mkldnn, name) for name in names)


def pack(weight: Tensor) -> Tensor:
    """Return a weight (O, I) packed for oneDNN, for about a hundred rows at a time."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _ROWS)
    return packed


def packed_linear(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    """Return `F.linear` with a weight packed by `pack`, without gradients."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return out
