"""Line breaks as pieces of a vocabulary."""

from collections.abc import Mapping

from seqattn.bundle.bundle import Bundle
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError

NO_LINE_BREAKS = (
    "data.documents joins pairs by line breaks, which must be pieces of the vocabulary; "
    "use one trained with tokenizer=documents"
)
"""Message for a vocabulary without them."""


def line_breaks(tokenizer: Tokenizer) -> list[int]:
    """Return the id of a line break in sources and in targets, where texts keep their own ids."""
    pieces = []
    for encode in (tokenizer.encode_source, tokenizer.encode_target):
        line, lines = encode(["a", "a\na"])
        piece = lines[len(line) - 1]
        if lines != [*line[:-1], piece, *line]:
            raise UserError(NO_LINE_BREAKS)
        pieces.append(piece)
    return pieces


def learned_documents(bundle: Bundle) -> bool:
    """Return True if a bundle translates texts of several lines, which it learned as documents."""
    data = bundle.config.get("data")
    learned = isinstance(data, Mapping) and bool(data.get("documents"))
    return learned and bundle.unit == Bundle.unit and not bundle.reads_lines
