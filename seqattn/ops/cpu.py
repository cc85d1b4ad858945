"""Which of PyTorch's own parts are slow on this CPU."""

import platform
from functools import cache
from pathlib import Path

import torch


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
