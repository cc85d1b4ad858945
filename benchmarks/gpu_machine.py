"""Device under test, and its report."""

import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

_HERE = str(Path(__file__).parents[1])


class Machine:
    """GPU, or a CPU on which the checks run with tiny sizes.

    Args:
        tiny: True for the CPU.
    """

    def __init__(self, tiny: bool) -> None:
        self.tiny = tiny
        self.device = torch.device("cpu" if tiny else "cuda")
        self.name = "CPU, tiny" if tiny else torch.cuda.get_device_name()
        self.failed: list[str] = []
        self._began = time.perf_counter()

    def say(self, good: bool, name: str, text: str = "") -> None:
        """Print a check's result, and record a failure."""
        if not good:
            self.failed.append(name)
        word, seconds = "ok  " if good else "FAIL", time.perf_counter() - self._began
        print(f"{word} {seconds:5.0f}s {name} {text}", flush=True)

    def guarded(self, name: str, call: Callable[[], Any]) -> None:
        """Run a check, recording an exception as a failure of that name."""
        try:
            call()
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            own = [f"{x.filename}:{x.lineno}" for x in frames if x.filename.startswith(_HERE)]
            text = " ".join(str(error).split())[:250]
            self.say(False, name, f"{type(error).__name__}: {text} at {own[-1:]}")

    def wait(self) -> None:
        """Wait for the GPU to finish its work."""
        if not self.tiny:
            torch.cuda.synchronize()

    def seconds(self, call: Callable[[], object], times: int, warm: int) -> float:
        """Return the mean seconds of `times` calls, after `warm` calls to warm up."""
        for _ in range(warm):
            call()
        self.wait()
        began = time.perf_counter()
        for _ in range(times):
            call()
        self.wait()
        return (time.perf_counter() - began) / times

    def peak_memory(self) -> str:
        """Return the peak memory of tensors since the last call."""
        if self.tiny:
            return "memory not measured"
        gigabytes = torch.cuda.max_memory_allocated() / 1e9
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return f"{gigabytes:.1f} GB"
