"""What a person waits for: the page of help, one sentence; and what a training run holds."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory

from seqattn.benchmarks.suite import Figures, Row, Spread, Suite
from seqattn.checking import Count, checked
from seqattn.errors import UserError

_TIMED = """
import resource, subprocess, sys, time
began = time.perf_counter()
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
seconds, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
print(code, seconds, used.ru_utime + used.ru_stime, used.ru_maxrss)
"""
"""In a small process of its own: Linux counts the memory of whoever starts a program as its."""
_ASKED = {"--help": 0.3, "generate": 3.0}
"""Seconds that a person is to wait at most."""


@checked
@dataclass(frozen=True, kw_only=True)
class StartupSuite(Suite):
    """Whole commands, each from return to its end: a training, the page of help, one sentence.

    Args:
        data: a bundled corpus to train on.
        steps: of the training, which is done once.
        rounds: of the others.
    """

    data: str = "demo_translation"
    steps: Count = 20
    rounds: Count = 5

    def measure(self) -> Iterator[Figures]:
        with TemporaryDirectory() as home:
            train = [
                "train", f"data={self.data}", "tokenizer.vocab_size=1000", "logger=[]",
                f"trainer.max_steps={self.steps}", f"run_dir={home}/run", f"cache_dir={home}/cache",
            ]  # fmt: skip
            translate = ["generate", f"bundle={home}/run/model", "text=A dog runs."]
            rows = [self.row(train, 1), self.row(["--help"], self.rounds)]
            yield Figures("What a person waits for", [*rows, self.row(translate, self.rounds)])

    def row(self, arguments: Sequence[str], rounds: int) -> Row:
        """What a command takes. Args: arguments: of `seqattn`; rounds: how often it is run."""
        command = [sys.executable, "-m", "seqattn", *arguments]
        taken = []
        for _ in range(rounds):
            done = subprocess.run(
                [sys.executable, "-c", _TIMED, *command], stdout=subprocess.PIPE, text=True,
                check=True,
            )  # fmt: skip
            code, *figures = map(float, done.stdout.split())
            if code:
                raise UserError(f"seqattn {arguments[0]} ended with {code:.0f}, see above")
            taken.append(figures)
        seconds, processor, kilobytes = zip(*taken, strict=True)
        return {
            "command": f"seqattn {arguments[0]}",
            "seconds": Spread.of(seconds),
            "asked": _ASKED.get(arguments[0]),
            "of processor": Spread.of(processor),
            "MB": round(max(kilobytes) / 1000),
        }
