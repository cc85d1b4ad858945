"""References of texts: one for each row, or several."""

from collections.abc import Sequence

from seqattn.errors import UserError

References = Sequence[str] | Sequence[Sequence[str]]
"""One text for each row, or a list of texts for each row."""


def reference_lists(references: References, count: int) -> list[list[str]]:
    """Return each row's references as a list.

    Raises:
        UserError: there are not `count` rows, or one has no references.
    """
    rows = [[row] if isinstance(row, str) else list(row) for row in references]
    if len(rows) != count:
        raise UserError(
            f"references must have one entry per text, got {len(rows):,} for {count:,} texts"
        )
    if [] in rows:
        raise UserError(f"each text must have a reference, but row {rows.index([]) + 1} has none")
    return rows
