"""Table of the abilities of each attention, from what the attentions declare.

Conformance tests check these declarations, so the table is correct.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from benchmarks.attention_work import is_attention
from seqattn.attention.base import LAWS, AttentionFactory, Mixer
from seqattn.errors import UserError
from seqattn.models.transformer import PositionFactory
from seqattn.positions.base import Stack
from seqattn.settings.choices import SLOTS

BEGIN, END = "<!-- support: made by scripts/support.py -->\n", "<!-- support: end -->"
_DIM, _HEADS = 48, 4


def support_table(
    attentions: Mapping[str, AttentionFactory], positions: Mapping[str, PositionFactory]
) -> str:
    """Return a Markdown row for every attention of a Transformer.

    Both arguments are factories by name; attentions of recurrent models are skipped.
    """
    schemes = {name: make(Stack(_DIM, _HEADS)).hooks for name, make in positions.items()}
    lines = [
        f"| `attention=` | {' | '.join(SLOTS)} | positions | returns weights | dropout | laws |",
        "|---|:-:|:-:|:-:|---|:-:|:-:|---|",
    ]
    logging.disable(logging.WARNING)  # no warnings from modules built only for inspection
    for name, make in attentions.items():
        if is_attention(make):
            cells = _cells(make(query_dim=_DIM, memory_dim=_DIM), schemes)
            lines.append(f"| `{name}` | {' | '.join(cells)} |")
    logging.disable(logging.NOTSET)
    meanings = "; ".join(f"*{law}*: {text}" for law, text in LAWS.items())
    return "\n".join([*lines, "", f"The laws: {meanings}."]) + "\n"


def _cells(attention: Mixer, schemes: Mapping[str, frozenset[str]]) -> list[str]:
    abilities = attention.abilities
    slots = [abilities.fits(slot) for slot in SLOTS]
    marks = ["✓" if yes else "" for yes in (*slots, abilities.weights, abilities.dropout)]
    supported = [name for name, hooks in schemes.items() if hooks <= abilities.hooks | {"embed"}]
    refused = [name for name in schemes if name not in supported]
    few, words = (refused, "all but ") if len(refused) < len(supported) else (supported, "")
    positions = words + " ".join(f"`{name}`" for name in few) if refused else "all"
    laws = getattr(attention, "exceptions", {})
    exceptions = "; ".join(f"{law} ({reason})" for law, reason in laws.items())
    return [*marks[:3], positions, *marks[3:], f"all but {exceptions}" if exceptions else "all"]


def write_support(page: Path, table: str) -> bool:
    """Write the table between the marks of a page, and return True if the page changed.

    Raises:
        UserError: if the page or its marks are missing.
    """
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UserError(f"{page} is missing {BEGIN.strip()} or {END}; restore both lines")
    new = before + begin + table + end + after
    page.write_text(new, encoding="utf-8")
    return new != text
