"""What generators of demo corpora share: random draws, and files written or checked."""

import argparse
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class Draws:
    """Random draws.

    Args:
        seed: The same seed gives the same draws in the same order.
    """

    def __init__(self, seed: int) -> None:
        # Of all the methods only random() promises one sequence in every Python version.
        self.random = random.Random(seed).random

    def chance(self, probability: float) -> bool:
        """Be true with this probability."""
        return self.random() < probability

    def pick(self, items: Sequence[T]) -> T:
        """Pick one item, each as likely as the next."""
        return items[int(self.random() * len(items))]

    def draw(self, items: Sequence[T], count: int) -> list[T]:
        """Pick different items, in random order."""
        left = list(items)
        return [left.pop(int(self.random() * len(left))) for _ in range(count)]


def write(description: str, folder: Path, corpus: Callable[[], Mapping[str, str]]) -> int:
    """Write a corpus, or with ``--check`` compare it with the files on disk.

    Args:
        description: What ``--help`` says.
        folder: Where the files are.
        corpus: Gives the text of each file by its name.

    Returns:
        The exit code: 1 if a file on disk differs.
    """
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit 1 if a file on disk differs")
    check = parser.parse_args().check
    for name, text in corpus().items():
        path, content = folder / name, text.encode()
        if not check:
            path.write_bytes(content)
        elif not path.is_file() or path.read_bytes() != content:
            print(f"{path} differs from what the generator writes", file=sys.stderr)
            return 1
    return 0
