"""How the process holds on to memory, how much of it a block takes, and when none is left."""

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
    """Numbers worked on at once on the device of x.

    A CPU is quickest with blocks that its caches hold. Each block costs a GPU some ten launches
    and a pass over what the blocks share, so that few large ones are quicker there.

    Args:
        cached: as many as a CPU's caches hold.
    """
    return cached if x.device.type == "cpu" else _BLOCK


def keep_freed_memory() -> bool:
    """Keeps glibc from giving large blocks back to the system between steps.

    A training step frees and takes the same tensors again; by default glibc returns each of more
    than a few MiB, and the system clears its pages anew every time.

    Returns:
        Whether it was done: on Linux with glibc.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    done = libc.mallopt(_MMAP_THRESHOLD, _LARGE) and libc.mallopt(_TRIM_THRESHOLD, _LARGE)
    return bool(done)


def keep_prepared_products() -> None:
    """Lets oneDNN remember more shapes of products than its 1,024, unless the environment says how
    many.

    In half precision on a CPU each new shape takes about a millisecond to prepare, and batches of
    texts have many. To be called before the first product.
    """
    os.environ.setdefault(*_PRODUCTS)


def ran_out(error: RuntimeError) -> bool:
    """Whether an error of PyTorch's says that there was no memory left."""
    return isinstance(error, torch.OutOfMemoryError) or _NONE_LEFT in str(error)


def free_cached() -> None:
    """Gives memory that PyTorch keeps of freed tensors back to the GPU, if there is one."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """A copy of a CPU's tensor on a device; a GPU's work is not waited for."""
    if device.type == "cuda":
        x = x.pin_memory()  # else the copy waits
    return x.to(device, non_blocking=device.type != "mps")  # where what is not there yet is read
