"""Two outputs, compared at the first token in which they differ."""

from typing import NamedTuple

from seqattn.bundle.bundle import Bundle
from seqattn.errors import UserError
from seqattn.tokens import UNK


class Contrast(NamedTuple):
    """Ids up to the first token in which two outputs differ; both have the same before it."""

    target: list[int]
    instead: list[int]

    @classmethod
    def of(cls, bundle: Bundle, output: str, instead: str) -> "Contrast":
        """Compare two texts.

        Raises:
            UserError: if they have the same tokens, or the model does not know the other token.
        """
        own, other = bundle.tokenizer.encode_target([output, instead])
        pairs = enumerate(zip(own, other, strict=False))
        place = next((place for place, (one, two) in pairs if one != two), None)
        if place is None:
            raise UserError(f"instead={instead} has the tokens of the output; give another text")
        if other[place] == UNK:
            raise UserError(f"instead={instead} differs in a word that the model does not know")
        return cls(own[: place + 1], [*own[:place], other[place]])
