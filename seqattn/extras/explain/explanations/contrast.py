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
        output_ids, instead_ids = bundle.tokenizer.encode_target([output, instead])
        pairs = enumerate(zip(output_ids, instead_ids, strict=False))
        index = next((index for index, (first, second) in pairs if first != second), None)
        if index is None:
            raise UserError(f"instead={instead} has the tokens of the output; give another text")
        if instead_ids[index] == UNK:
            raise UserError(f"instead={instead} differs in a word that the model does not know")
        return cls(output_ids[: index + 1], [*output_ids[:index], instead_ids[index]])
