"""Word alignments made by people, or by a grammar, to compare others with."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from seqattn.data.text_files import read_lines
from seqattn.errors import UserError
from seqattn.storage import is_file

Link = tuple[int, int]
"""A word of the source and one of the target, from 0."""
_LINK = re.compile(r"(\d{1,9})([-p?])(\d{1,9})")


class WordLinks(NamedTuple):
    """Which words of a pair of sentences translate each other (Och & Ney 2003)."""

    sure: frozenset[Link]
    possible: frozenset[Link]
    """The sure ones among them."""


def read_links(path: Path, sources: Sequence[str], targets: Sequence[str]) -> list[WordLinks]:
    """Reads links between words, which are what stands between spaces.

    Args:
        path: a line for each of N pairs: links with spaces between them, `3-4` a sure one of
            source word 3 to target word 4, `3p4` or `3?4` a possible one; words count from 0.

    Raises:
        UserError: there are not N lines, or one holds something else, or leads to no word.
    """
    if not is_file(path):
        raise UserError(f"data.alignments={path} is not a file")
    lines = list(read_lines(path))
    if len(lines) != len(sources):
        raise UserError(
            f"data.alignments={path} must have a line for each pair of the split, it has "
            f"{len(lines):,} for {len(sources):,}"
        )
    return [
        _parsed(line, len(source.split()), len(target.split()), f"{path}, line {number:,}")
        for number, (line, source, target) in enumerate(
            zip(lines, sources, targets, strict=True), 1
        )
    ]


def _parsed(line: str, source_words: int, target_words: int, where: str) -> WordLinks:
    links: dict[str, set[Link]] = {"-": set(), "p": set(), "?": set()}
    for written in line.split():
        found = _LINK.fullmatch(written)
        if found is None:
            raise UserError(f"{where}: a link must be such as 0-0, or 0p0, got {written[:40]!r}")
        source, target = int(found[1]), int(found[3])
        for side, word, words in (
            ("source", source, source_words),
            ("target", target, target_words),
        ):
            if word >= words:
                raise UserError(
                    f"{where}: {written} leads to word {word:,} of the {side}, which has {words:,} "
                    "words; the first is 0"
                )
        links[found[2]].add((source, target))
    return WordLinks(frozenset(links["-"]), frozenset().union(*links.values()))
