"""The table of what each attention can do, made from what the attentions declare.

The conformance tests hold every attention to what it declares, so the table is what they found.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from seqattn.attention.base import LAWS, Attention, AttentionFactory
from seqattn.benchmarks.attention_work import is_attention
from seqattn.errors import UserError
from seqattn.models.transformer import PositionFactory
from seqattn.positions.base import Stack

BEGIN, END = "<!-- support: made by scripts/support.py -->\n", "<!-- support: end -->"
_DIM, _HEADS, _SLOTS = 48, 4, ("encoder", "decoder", "cross")


def support_table(
    attentions: Mapping[str, AttentionFactory], positions: Mapping[str, PositionFactory]
) -> str:
    """A row for every attention that fills a slot of a Transformer, as Markdown.

    Args:
        attentions: factories by name; those of recurrent models are left out.
        positions: factories by name.
    """
    schemes = {name: make(Stack(_DIM, _HEADS)).hooks for name, make in positions.items()}
    lines = [
        f"| `attention=` | {' | '.join(_SLOTS)} | positions | shows weights | drops them | laws |",
        "|---|:-:|:-:|:-:|---|:-:|:-:|---|",
    ]
    for name, make in attentions.items():
        attention = example(make)
        if attention is not None:
            lines.append(f"| `{name}` | {' | '.join(_cells(attention, schemes))} |")
    meanings = "; ".join(f"*{law}*: {text}" for law, text in LAWS.items())
    return "\n".join([*lines, "", f"The laws: {meanings}."]) + "\n"


def write_support(page: Path, table: str) -> bool:
    """Puts the table between the marks of a page.

    Returns:
        Whether that changed anything.

    Raises:
        UserError: where the page or its marks are not there.
    """
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    if not pattern.search(text):
        raise UserError(f"{page} lacks the line {BEGIN.strip()} or {END}; put them back")
    new = pattern.sub(lambda _: BEGIN + table + END, text)
    page.write_text(new, encoding="utf-8")
    return new != text


def example(make: AttentionFactory) -> Attention | None:
    """A small one, to be asked what it can do; None for an attention of recurrent models."""
    if not is_attention(make):
        return None
    logging.disable(logging.WARNING)  # what is built only to be asked has nothing to warn of
    try:
        return make(query_dim=_DIM, memory_dim=_DIM)
    finally:
        logging.disable(logging.NOTSET)


def _cells(attention: Attention, schemes: Mapping[str, frozenset[str]]) -> list[str]:
    abilities = attention.abilities
    taken = [name for name, hooks in schemes.items() if hooks <= abilities.hooks | {"embed"}]
    exceptions = "; ".join(f"{law} ({reason})" for law, reason in attention.exceptions.items())
    slots = [abilities.fits(slot) for slot in _SLOTS]
    marks = ["✓" if yes else "" for yes in (*slots, abilities.weights, abilities.dropout)]
    positions = _positions(taken, [name for name in schemes if name not in taken])
    return [*marks[:3], positions, *marks[3:], f"all but {exceptions}" if exceptions else "all"]


def _positions(taken: Sequence[str], refused: Sequence[str]) -> str:
    if not refused:
        return "all"
    few, words = (refused, "all but ") if len(refused) < len(taken) else (taken, "")
    return words + " ".join(f"`{name}`" for name in few)
