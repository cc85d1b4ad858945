"""Applies each seeded fault to a copy of the tree and reports whether the tests catch it.

    python -m tests.mutation.run [--out FILE] [--only ID ...] [--tree DIR]

Each fault is run in a fork of one process that holds the third-party packages already, with `-x`.
A fault whose code was rewritten is anchored again by giving its `old` and `new` the words that the
code has now, under the same id and description.
"""

import argparse
import compileall
import contextlib
import os
import py_compile
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.faults import FAULTS, LAWS, Fault

ROOT = Path(__file__).parents[2]
COPIED = ("seqattn", "tests", "conf", "data", "scripts", "docs", "pyproject.toml", "train.py")
COPIED += ("README.md", "Makefile", "CHANGELOG.md", ".gitignore")
LIMIT = 900  # seconds for one fault


@dataclass
class Verdict:
    """What became of a fault: caught, survived, or no text found for it."""

    fault: Fault
    word: str
    seconds: float = 0.0
    by: str = ""

    def __str__(self) -> str:
        return f"{self.fault.id:5} {self.word:9} {self.seconds:6.1f} {self.fault.what}  {self.by}"


def anchor(fault: Fault, package: Path) -> Path:
    """The one file that holds the fault's text once.

    Raises:
        LookupError: where none or several do.
    """
    files = sorted(package.rglob("*.py"))
    found = [path for path in files if fault.file in str(path) and fault.old in _text(path)]
    if len(found) != 1 or _text(found[0]).count(fault.old) != 1:
        raise LookupError(f"{fault.id}: in {len(found)} files: {fault.old!r}")
    return found[0]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def tried(fault: Fault, tree: Path) -> Verdict:
    """Applies one fault to `tree`, runs its tests, and takes it back."""
    try:
        path = anchor(fault, tree / "seqattn")
    except LookupError as error:
        return Verdict(fault, "unplaced", by=str(error))
    right, began = _text(path), time.perf_counter()
    path.write_text(right.replace(fault.old, fault.new), encoding="utf-8")
    try:
        code, log = forked(tree, fault.tests)
    finally:
        path.write_text(right, encoding="utf-8")
    word = {0: "survived", 1: "caught", 2: "caught"}.get(code, f"code {code}")
    failed = [line for line in log.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return Verdict(fault, word, time.perf_counter() - began, failed[0][:150] if failed else "")


def forked(tree: Path, tests: tuple[str, ...]) -> tuple[int, str]:
    """The exit code and output of pytest in a child that ends with it; 1 if it takes too long."""
    there = [name for name in dict.fromkeys(tests) if (tree / "tests" / name).exists()]
    there.sort(key=lambda name: name in LAWS)  # the longest last
    log = tree / "pytest.log"
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.setsid()
            signal.alarm(LIMIT)
            with log.open("w") as stream:
                os.dup2(stream.fileno(), 1)
                os.dup2(stream.fileno(), 2)
            os.chdir(tree)
            sys.path.insert(0, str(tree))
            import pytest

            words = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not exhaustive", "-rfE"]
            words += ["-k", "not compiles"]
            for name in there:  # one after the other, since all are collected before any is run
                code = int(pytest.main([*words, f"tests/{name}"]))
                if code not in (0, 5):
                    break
            code = 0 if code == 5 else code
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what its tests have left behind
    code = os.waitstatus_to_exitcode(status)
    return (1 if code == -signal.SIGALRM else code), _text(log)


def preloaded() -> None:
    """Imports what every test needs and no fault touches; this package's own modules go again."""
    import datasets
    import hydra
    import lightning
    import torch
    import transformers  # noqa: F401

    assert datasets
    assert hydra
    assert lightning
    torch.set_num_threads(1)
    for name in [name for name in sys.modules if name.split(".")[0] in ("seqattn", "tests")]:
        del sys.modules[name]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="where verdicts are written as they come")
    parser.add_argument("--only", nargs="*", help="ids of faults")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the tree to try them on")
    asked = parser.parse_args()
    chosen = [fault for fault in FAULTS if not asked.only or fault.id in asked.only]
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        tree.mkdir()
        skipped = shutil.ignore_patterns("__pycache__")
        for name in COPIED:
            part = asked.tree / name
            if part.is_dir():
                shutil.copytree(part, tree / name, ignore=skipped)
            elif part.is_file():
                shutil.copy(part, tree / name)
        os.environ["PYTHONPATH"] = str(tree)
        # by content, not by time: a fault may leave size and second as they were
        how = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(tree / "seqattn", quiet=2, invalidation_mode=how)
        preloaded()
        verdicts = []
        for fault in chosen:
            verdicts.append(tried(fault, tree))
            print(verdicts[-1], flush=True)
            if asked.out:
                asked.out.write_text("".join(f"{one}\n" for one in verdicts))
    words = sorted({one.word for one in verdicts})
    counts = ", ".join(f"{sum(one.word == word for one in verdicts)} {word}" for word in words)
    print(f"{len(verdicts)} faults: {counts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
