"""Which of PyTorch's own parts are slow on this CPU, and what it has in their place."""

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import Tensor


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


@contextmanager
def quick_products() -> Iterator[None]:
    """Within the block products of matrices in float32 are oneDNN's, where MKL lags.

    They are as exact: PyTorch hands float32 to oneDNN only where less is allowed, but there is
    nothing less that oneDNN would do on such a CPU (`onednn_is_exact` has looked). Each takes some
    10 us to begin, and one of a new shape a quarter of a millisecond, so they are for large ones.
    """
    if torch.compiler.is_compiling() or not onednn_multiplies():
        yield
        return
    with _less_allowed:
        yield


def onednn_multiplies(x: Tensor | None = None) -> bool:
    """Whether `quick_products` makes a difference, to products of x where it is given."""
    on_cpu = x is None or x.device.type == "cpu"
    return on_cpu and mkl_lags() and onednn_is_exact()


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
