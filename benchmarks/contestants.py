"""Contestants, each in its own process with separate memory and allocator."""

import os
import pickle
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, Literal, NamedTuple

from benchmarks.suite import Row, Sample, rates, ratios
from benchmarks.transformer_models import Shape
from seqattn.errors import UserError
from seqattn.installation import install
from seqattn.storage import user_path

ContestantName = Literal["seqattn", "lightning", "plain", "marian", "joey", "eole", "ctranslate2"]
Precision = Literal["fp32", "bf16", "int8"]
Allocator = Literal["default", "keeps"]
FOLDER = Path(__file__).parent / "peers"
_KEPT = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
"""Variables with the effect of `ops.memory`, for processes without this package."""


class Peer(NamedTuple):
    """Kind of contestant: name in tables, file, abilities, and source of installation."""

    title: str
    file: str
    does: str = "training decoding"
    extra: str = ""
    precisions: Sequence[str] = ("fp32", "bf16")


PEERS: dict[str, Peer] = {
    "seqattn": Peer("seqattn", "own.py", precisions=("fp32", "bf16", "int8")),
    "lightning": Peer("seqattn under Lightning", "own_lightning.py", "training"),
    "plain": Peer("torch.nn.Transformer", "plain.py", "training"),
    "marian": Peer("HF Marian", "hf_marian.py", extra="bench"),
    "joey": Peer("Joey NMT", "joey_nmt.py", extra="peers"),
    "eole": Peer("Eole", "eole_nmt.py", extra="peers"),
    "ctranslate2": Peer("CTranslate2", "ctranslate.py", "decoding", "peers", ("fp32", "int8")),
}
_OWN = ("seqattn", "lightning")
_SHARING = ("seqattn", "ctranslate2")
"""Contestants that have workers; the others use the threads of all workers."""
_HINTS = {
    "": "",
    "bench": "; " + install("bench"),
    "peers": "; set suite.peer_python=PATH to a Python that has it",
}
"""Installation hint for a missing package."""


class Entry(NamedTuple):
    """Contestant by name, precision, and whether its process keeps freed memory."""

    name: str
    precision: str = "fp32"
    allocator: str = "default"


LIMIT = "limit"
"""Name of the entries of pure arithmetic."""


def entries(
    work: str, names: Sequence[str], precisions: Sequence[str], allocators: Sequence[str]
) -> list[Entry]:
    """Return entries of `work`, training or decoding; ours keep freed memory, as our runs do."""
    return [
        Entry(name, precision, allocator)
        for name in names
        if work in PEERS[name].does
        for precision in precisions
        if precision in PEERS[name].precisions
        for allocator in (("keeps",) if name in _OWN else allocators)
    ]


@dataclass(frozen=True)
class Setting:
    """Settings shared by all contestants.

    Args:
        shape: shape of their models.
        threads: threads of each worker.
        workers: workers that share the sentences to decode.
        seed: seed of the weights.
        peer_python: Python with the other toolkits; None for this one.
    """

    shape: Shape
    threads: int
    workers: int = 1
    seed: int = 0
    peer_python: str | None = None


class Refused(Exception):
    """Raised with the reason if a contestant cannot do what is requested."""


class Contestant:
    """Process that trains or decodes on request.

    Raises:
        ModuleNotFoundError: if a package is not installed.
        Refused: if it does not support the precision.
        UserError: if its process ends, or does not start.
    """

    def __init__(self, entry: Entry, setting: Setting) -> None:
        peer, began = PEERS[entry.name], time.perf_counter()
        self.peer = peer
        python, packages = sys.executable, {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        if peer.extra == "peers" and setting.peer_python is not None:
            python, packages = str(user_path(setting.peer_python)), {"PYTHONPATH": ""}
        allocator = _KEPT if entry.allocator == "keeps" else {}
        workers = setting.workers if entry.name in _SHARING else 1
        threads = setting.threads * setting.workers // workers
        environment = os.environ | packages | allocator | {"OMP_NUM_THREADS": str(threads)}
        try:
            self.process = Popen(
                [python, str(FOLDER / "worker.py"), str(FOLDER / peer.file)],
                stdin=PIPE, stdout=PIPE, env=environment,
            )  # fmt: skip
        except OSError as error:
            raise UserError(f"cannot run suite.peer_python={python}: {error.strerror}") from error
        shape, spread = asdict(setting.shape), (threads, workers, setting.seed)
        self.parameters: int = self.ask("make", shape, entry.precision, *spread)
        self.start = time.perf_counter() - began

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the process's `Worker` and return its result."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            pickle.dump((method, arguments), self.process.stdin)
            self.process.stdin.flush()
            value, refusal = pickle.load(self.process.stdout)
        except (EOFError, BrokenPipeError):
            self.close()
            raise UserError(f"the process of {self.peer.title} exited (message above)") from None
        if refusal is not None:
            self.close()
            raise (ModuleNotFoundError if refusal.startswith("No module") else Refused)(refusal)
        return value

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()


@contextmanager
def started(wanted: Sequence[Entry], setting: Setting) -> Iterator[dict[Entry, Contestant]]:
    """Start one contestant after another; print why others are skipped.

    Raises:
        UserError: if none can run.
    """
    running: dict[Entry, Contestant] = {}
    absent: set[str] = set()
    with ExitStack() as stack:
        for entry in wanted:
            if entry.name in absent:
                continue
            peer = PEERS[entry.name]
            try:
                running[entry] = Contestant(entry, setting)
                stack.callback(running[entry].close)
            except Refused as reason:
                print(f"skipped {peer.title} in {entry.precision}: {reason}", file=sys.stderr)
            except ModuleNotFoundError as error:
                absent.add(entry.name)
                print(f"skipped {peer.title}: {error}{_HINTS[peer.extra]}", file=sys.stderr)
        if not running:
            raise UserError("no contestant can run; change suite.contestants or suite.precisions")
        yield running


def compared(
    running: Mapping[Entry, Contestant], samples: Mapping[Entry, Sequence[Sample]], unit: str
) -> list[Row]:
    """Return a row for every entry: speed, share of the limit, and our speed relative to it."""
    rows: list[Row] = []
    for entry, timed in samples.items():
        limit = samples.get(Entry(LIMIT, entry.precision))
        ours = [samples.get(Entry("seqattn", kind, "keeps")) for kind in (entry.precision, "fp32")]
        own = ours[0] or ours[1]
        one = running.get(entry)
        cells: Row = {
            "contestant": one.peer.title if one else "matrix products only",
            "precision": entry.precision,
            "freed memory": "kept" if entry.allocator == "keeps" else "",
            f"{unit}/s": rates(timed),
            "share of peak": ratios(timed, limit).median if limit else None,
            "seqattn speedup": ratios(own, timed) if own else None,
            "speedup (CPU time)": ratios(own, timed, cpu=True) if own else None,
            "parameters": one.parameters if one else None,
            "MB": round(one.ask("memory")) if one else None,
            "startup (s)": one.start if one else None,
        }
        rows.append(cells)
    return rows
