"""The README's table of what each attention can do, made from what the attentions declare.

The conformance tests hold every attention to what it declares, so the table is what they found.
"""

import logging
import re
from pathlib import Path

from omegaconf import OmegaConf

from seqattn.attention.base import LAWS, Attention
from seqattn.cli.build import make
from seqattn.cli.config import CONF, groups
from seqattn.errors import UserError
from seqattn.positions.base import Position, Stack

BEGIN, END = "<!-- support: made by scripts/support.py -->\n", "<!-- support: end -->"
_DIM, _SLOTS = 48, ("encoder", "decoder", "cross")


def support_table() -> str:
    """A row for every choice of conf/attention that fills a slot of a Transformer, as Markdown."""
    schemes = {name: _position(name).hooks for name in groups()["position"]}
    lines = [
        f"| `attention=` | {' | '.join(_SLOTS)} | positions | shows weights | drops them | laws |",
        "|---|:-:|:-:|:-:|---|:-:|:-:|---|",
    ]
    for name in groups()["attention"]:
        attention = attention_of(name)
        if attention is None:
            continue
        abilities = attention.abilities
        refused = [
            scheme for scheme, hooks in schemes.items() if hooks - abilities.hooks - {"embed"}
        ]
        cells = [
            *(_mark(abilities.fits(slot)) for slot in _SLOTS),
            _positions(list(schemes), refused),
            _mark(abilities.weights),
            _mark(abilities.dropout),
            _laws(attention),
        ]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    meanings = "; ".join(f"*{law}*: {text}" for law, text in LAWS.items())
    return "\n".join([*lines, "", f"The laws: {meanings}."]) + "\n"


def write_support(readme: Path) -> bool:
    """Puts the table between the marks of a README; says whether it changed anything.

    Raises:
        UserError: where the marks are not there.
    """
    text = readme.read_text(encoding="utf-8")
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    if not pattern.search(text):
        raise UserError(f"{readme} lacks the line {BEGIN.strip()} or {END}; put them back")
    new = pattern.sub(lambda _: BEGIN + support_table() + END, text)
    readme.write_text(new, encoding="utf-8")
    return new != text


def attention_of(name: str) -> Attention | None:
    """A small attention of a name in conf/attention; None for those of recurrent models."""
    factory = make(OmegaConf.load(CONF / "attention" / f"{name}.yaml"))
    target = getattr(factory, "func", factory)
    if not (isinstance(target, type) and issubclass(target, Attention)):
        return None
    logging.disable(logging.WARNING)  # one that is built only to be asked tells nothing
    try:
        attention: Attention = factory(query_dim=_DIM, memory_dim=_DIM)
    finally:
        logging.disable(logging.NOTSET)
    return attention


def _position(name: str) -> Position:
    scheme: Position = make(OmegaConf.load(CONF / "position" / f"{name}.yaml"))(Stack(_DIM, 4))
    return scheme


def _mark(yes: bool) -> str:
    return "✓" if yes else ""


def _positions(everything: list[str], refused: list[str]) -> str:
    if not refused:
        return "all"
    taken = [name for name in everything if name not in refused]
    few, words = (refused, "all but ") if len(refused) < len(taken) else (taken, "")
    return words + " ".join(f"`{name}`" for name in few)


def _laws(attention: Attention) -> str:
    reasons = [f"{law} ({reason})" for law, reason in attention.exceptions.items()]
    return "all but " + "; ".join(reasons) if reasons else "all"
