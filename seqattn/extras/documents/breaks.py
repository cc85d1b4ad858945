"""Line breaks as pieces of a vocabulary."""

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
