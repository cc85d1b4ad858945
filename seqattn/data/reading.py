"""Texts as a model reads them when it generates."""

from __future__ import annotations

from collections.abc import Sequence

from seqattn.data.cutting import LongSources, cut
from seqattn.data.tokenizer import Tokenizer


def read_sources(
    texts: Sequence[str], tokenizer: Tokenizer, rule: LongSources
) -> list[list[list[int]]]:
    """Gives the ids of each text in the pieces in which it is read.

    Args:
        texts: sources as written.
        tokenizer: what encodes them.
        rule: of training; where it leaves long sources out, they are read whole here.

    Returns:
        For each text one piece, or its windows; a text of white space has one piece of no ids.
    """
    rows = tokenizer.encode_source(texts)
    read = []
    for row, text in zip(rows, texts, strict=True):
        ids = row if text.strip() else []
        read.append([ids] if rule.how == "drop" else cut(ids, rule))
    return read
