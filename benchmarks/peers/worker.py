"""Process of one contestant: builds its model, and runs and times requested work.

`python worker.py FILE` runs in any Python that has the peer, so neither this nor a peer's file
imports anything from this package. FILE defines a class `Contestant`, constructed as in
`Worker.make`, with its number of `parameters`. To decode it has `decode(rows, beams, length)` for
one batch, or `decode_all`, which also takes a batch size, for any number of sources; to train,
`train(pairs)`, or a `model` and its `loss(source, target)`. Requests and answers are pickles of
plain values over pipes.
"""

import importlib.util
import logging
import os
import pickle
import resource
import sys
import time
import warnings
from pathlib import Path
from typing import Any

Pairs = list[tuple[list[list[int]], list[list[int]]]]
"""Batches: rows of source ids, and of target ids, each with its end mark."""
_BOS = 2


def main(file: str) -> None:
    """Respond to requests `(method, arguments)` until the pipe is closed, with `(value, None)`.

    The response to an unsupported request is `(None, why)`.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output printed by a peer is not a response
    logging.disable(logging.INFO)
    warnings.simplefilter("ignore")
    worker = Worker(file)
    while True:
        try:
            method, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        value = refusal = None
        try:
            value = getattr(worker, method)(*arguments)
        except (ImportError, ValueError) as error:
            refusal = " ".join(str(error).split())
        pickle.dump((value, refusal), answers)
        answers.flush()


class Worker:
    """Contestant at work. Args: file: file that defines its class."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.contestant: Any = None
        self.autocast = False
        self.optimizer: Any = None

    def make(
        self, shape: dict[str, Any], precision: str, threads: int, workers: int, seed: int
    ) -> int:
        """Build the model and return its number of parameters.

        Args:
            shape: the fields of a `Shape`.
            precision: fp32, bf16 or int8.
            threads: threads of each worker.
            workers: workers that share the sentences to decode.
            seed: seed of the weights.
        """
        spec: Any = importlib.util.spec_from_file_location("contestant", self.file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if "torch" in sys.modules:
            import torch

            torch.set_num_threads(threads)
            torch.manual_seed(seed)
        self.autocast = precision == "bf16"
        self.contestant = module.Contestant(shape, precision, threads, workers)
        return int(self.contestant.parameters)

    def train(self, pairs: Pairs) -> tuple[float, float, int]:
        """Train on batches; return seconds, CPU seconds, and real target tokens."""
        if hasattr(self.contestant, "train"):
            return tuple(self.contestant.train(pairs))
        import torch
        from torch.nn.utils.rnn import pad_sequence

        def padded(rows: list[list[int]]) -> Any:
            return pad_sequence([torch.tensor(row) for row in rows], batch_first=True)

        batches = [
            (padded(sources), padded([[_BOS, *row] for row in targets]))
            for sources, targets in pairs
        ]
        model = self.contestant.model
        if self.optimizer is None:
            self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        model.train()

        def steps() -> int:
            for source, target in batches:
                self.optimizer.zero_grad()
                with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
                    loss = self.contestant.loss(source, target)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                self.optimizer.step()
            return sum(len(row) for _, targets in pairs for row in targets)

        return _timed(steps)

    def decode(self, rows: list[list[int]], *options: int) -> tuple[float, float, int]:
        """Decode sources with the given beams, tokens per output and batch size.

        Returns seconds, CPU seconds, and tokens.
        """
        beams, length, size = options
        if hasattr(self.contestant, "decode_all"):
            return _timed(lambda: self.contestant.decode_all(rows, *options))
        batches = [rows[n : n + size] for n in range(0, len(rows), size)]
        return _timed(lambda: sum(self.contestant.decode(one, beams, length) for one in batches))

    def memory(self) -> float:
        """Return the peak memory of this process in MB; 0 if Linux does not report it."""
        file = Path("/proc/self/status")
        lines = file.read_text().splitlines() if file.is_file() else []
        return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1000


def _timed(work: Any) -> tuple[float, float, int]:
    wall, cpu = time.perf_counter(), _processor()
    units = work()
    return time.perf_counter() - wall, _processor() - cpu, int(units)


def _processor() -> float:
    """Return CPU seconds of this process and of its finished children."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


if __name__ == "__main__":
    main(sys.argv[1])
