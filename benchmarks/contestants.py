"""Contestants, each in a process of its own, so that memory and allocator are its own, too."""

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
from seqattn.storage import user_path

ContestantName = Literal["seqattn", "lightning", "plain", "marian", "joey", "eole", "ctranslate2"]
Precision = Literal["fp32", "bf16", "int8"]
Allocator = Literal["default", "keeps"]
FOLDER = Path(__file__).parent / "peers"
_KEPT = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
"""What `ops.memory` does, for processes that know nothing of it."""


class Peer(NamedTuple):
    """A kind of contestant: what tables call it, its file, what it does, where it comes from."""

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
"""Those that have workers; the others get the threads of all."""
_HINTS = {
    "": "",
    "bench": "; pip install -e .[bench], in the checkout",
    "peers": "; give suite.peer_python=PATH, a Python that has it",
}
"""What to do where a package is not there."""


class Entry(NamedTuple):
    """A contestant: its name, its precision, and whether its process keeps freed memory."""

    name: str
    precision: str = "fp32"
    allocator: str = "default"


LIMIT = "limit"
"""The name of the entries that stand for the arithmetic alone."""


def entries(
    work: str, names: Sequence[str], precisions: Sequence[str], allocators: Sequence[str]
) -> list[Entry]:
    """All that take part in `work`, training or decoding; our own keep memory, as our runs do."""
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
    """What all contestants have in common.

    Args:
        shape: of their models.
        threads: of each worker.
        workers: that share out the sentences that are decoded.
        seed: of the weights.
        peer_python: the Python that has other toolkits; None for this one.
    """

    shape: Shape
    threads: int
    workers: int = 1
    seed: int = 0
    peer_python: str | None = None


class Refused(Exception):
    """Why a contestant cannot do what it is asked."""


class Contestant:
    """A process that trains or decodes when it is told to.

    Raises:
        ModuleNotFoundError: where what it needs is not installed.
        Refused: where it cannot do with the precision.
        UserError: where its process ends, or does not start.
    """

    def __init__(self, entry: Entry, setting: Setting) -> None:
        peer, began = PEERS[entry.name], time.perf_counter()
        self.peer = peer
        python, home = sys.executable, {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        if peer.extra == "peers" and setting.peer_python is not None:
            python, home = str(user_path(setting.peer_python)), {"PYTHONPATH": ""}
        kept = _KEPT if entry.allocator == "keeps" else {}
        workers = setting.workers if entry.name in _SHARING else 1
        threads = setting.threads * setting.workers // workers
        environment = os.environ | home | kept | {"OMP_NUM_THREADS": str(threads)}
        try:
            self.process = Popen(
                [python, str(FOLDER / "worker.py"), str(FOLDER / peer.file)],
                stdin=PIPE, stdout=PIPE, env=environment,
            )  # fmt: skip
        except OSError as error:
            raise UserError(f"peer_python={python} cannot be run: {error.strerror}") from error
        shape, spread = asdict(setting.shape), (threads, workers, setting.seed)
        self.parameters: int = self.ask("make", shape, entry.precision, *spread)
        self.start = time.perf_counter() - began

    def ask(self, method: str, *arguments: Any) -> Any:
        """What a method of the process's `Worker` returns."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            pickle.dump((method, arguments), self.process.stdin)
            self.process.stdin.flush()
            value, refusal = pickle.load(self.process.stdout)
        except (EOFError, BrokenPipeError):
            self.close()
            raise UserError(f"the process of {self.peer.title} has ended; see above") from None
        if refusal is not None:
            self.close()
            raise (ModuleNotFoundError if refusal.startswith("No module") else Refused)(refusal)
        return value

    def close(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.communicate()


@contextmanager
def started(wanted: Sequence[Entry], setting: Setting) -> Iterator[dict[Entry, Contestant]]:
    """Starts one after another; of those that cannot take part a line says why.

    Raises:
        UserError: where none takes part.
    """
    found: dict[Entry, Contestant] = {}
    absent: set[str] = set()
    with ExitStack() as stack:
        for entry in wanted:
            if entry.name in absent:
                continue
            peer = PEERS[entry.name]
            try:
                found[entry] = Contestant(entry, setting)
                stack.callback(found[entry].close)
            except Refused as reason:
                print(f"{peer.title} in {entry.precision} is left out: {reason}", file=sys.stderr)
            except ModuleNotFoundError as error:
                absent.add(entry.name)
                print(f"{peer.title} is left out: {error}{_HINTS[peer.extra]}", file=sys.stderr)
        if not found:
            raise UserError(
                "no contestant of those asked for takes part; see contestants, precisions"
            )
        yield found


def compared(
    running: Mapping[Entry, Contestant], samples: Mapping[Entry, Sequence[Sample]], unit: str
) -> list[Row]:
    """A row for every entry: how fast it is, its share of the limit, how fast ours is beside it."""
    rows: list[Row] = []
    for entry, found in samples.items():
        limit = samples.get(Entry(LIMIT, entry.precision))
        ours = [samples.get(Entry("seqattn", kind, "keeps")) for kind in (entry.precision, "fp32")]
        own = ours[0] or ours[1]
        one = running.get(entry)
        cells: Row = {
            "contestant": one.peer.title if one else "the arithmetic alone",
            "precision": entry.precision,
            "freed memory": "kept" if entry.allocator == "keeps" else "",
            f"{unit}/s": rates(found),
            "of the arithmetic's": ratios(found, limit).median if limit else None,
            "seqattn / it": ratios(own, found) if own else None,
            "by CPU time": ratios(own, found, cpu=True) if own else None,
            "parameters": one.parameters if one else None,
            "MB": round(one.ask("memory")) if one else None,
            "start, s": one.start if one else None,
        }
        rows.append(cells)
    return rows
