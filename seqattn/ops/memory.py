"""Allocator settings, block sizes, and out-of-memory detection."""

import ctypes
import os
import platform

import torch
from torch import Tensor

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
_LARGE = 1 << 30
_PRODUCTS = "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "4096"
_NONE_LEFT = "can't allocate memory"  # on a CPU
_BLOCK = 1 << 27  # numbers of a block on a GPU: 512 MiB in float32


def block_numbers(x: Tensor, cached: int) -> int:
    """Return how many numbers to process at once on the device of x.

    A CPU is fastest with blocks that fit its caches. On a GPU each block costs about ten launches
    and a pass over shared data, so a few large blocks are faster.

    Args:
        cached: how many fit a CPU's caches.
    """
    return cached if x.device.type == "cpu" else _BLOCK


def keep_freed_memory() -> bool:
    """Keep glibc from returning large blocks to the system between steps.

    A training step frees and allocates the same tensors again; by default glibc returns blocks of
    more than a few MiB, and the system zeroes their pages every time.

    Returns:
        True if the allocator was set (Linux with glibc).
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    done = libc.mallopt(_MMAP_THRESHOLD, _LARGE) and libc.mallopt(_TRIM_THRESHOLD, _LARGE)
    return bool(done)


def keep_prepared_products() -> None:
    """Raise oneDNN's limit of 1,024 cached product shapes, unless the environment sets it.

    In half precision on a CPU each new shape takes about a millisecond to prepare, and batches of
    texts have many. Call it before the first product.
    """
    os.environ.setdefault(*_PRODUCTS)


def ran_out(error: RuntimeError) -> bool:
    """Return True if a PyTorch error means out of memory."""
    return isinstance(error, torch.OutOfMemoryError) or _NONE_LEFT in str(error)


def free_cached() -> None:
    """Release PyTorch's cached GPU memory, if there is a GPU."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """Return a copy of a CPU tensor on a device, without waiting for a GPU."""
    if device.type == "cuda":
        x = x.pin_memory()  # makes the copy asynchronous
    return x.to(device, non_blocking=device.type != "mps")  # MPS may read the copy too early
