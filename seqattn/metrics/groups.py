"""Groups of rows that depend on each other, such as the forms of a lemma."""

import re
from collections.abc import Sequence


def labels_of(group: str | int, sources: Sequence[str]) -> list[str] | None:
    """Return a label for each row; rows with equal labels form a group.

    Args:
        group: `source`, `prefix:N` for the first N characters of the source, or else a column of
            the data, for which this returns None.
    """
    prefix = re.fullmatch(r"prefix:(\d{1,9})", str(group))
    if prefix is None:
        return list(sources) if group == "source" else None
    return [source[: int(prefix[1])] for source in sources]


def group_summary(group: str | int, labels: Sequence[str]) -> str:
    """Return the number of groups in a sentence, with a warning if they are few."""
    count = len({*labels})
    rough = "; with fewer than 40, they are rough and often too narrow" * (count < 40)
    return f"intervals and tests are over {count:,} groups of rows (group={group}){rough}"
