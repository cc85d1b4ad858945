"""Word representations from characters."""

from torch import Tensor, nn

CODES = 512
"""Number of character codes, including 0 for padding."""


class CharacterCNN(nn.Module):
    """Convolution and max-pooling over a word's characters (Kim et al. 2016, arXiv 1508.06615,
    section 2.2), as in BiDAF and QANet. Time L * D for each distinct word of L characters.

    Args:
        dim: width D of the output.
        character_dim: width of a character's embedding.
        window: width of the convolution in characters; odd.
    """

    def __init__(self, dim: int, character_dim: int = 16, window: int = 5) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CODES, character_dim, padding_idx=0)
        self.convolution = nn.Conv1d(character_dim, dim, window, padding=window // 2)

    def forward(self, characters: Tensor) -> Tensor:
        """Map characters (B, W, L), padded with 0, to (B, W, D), zeros for empty words."""
        different, indices = characters.flatten(0, 1).unique(dim=0, return_inverse=True)  # (U, L)
        runs = self.convolution(self.embedding(different).transpose(1, 2))  # (U, D, L)
        largest = runs.masked_fill((different == 0)[:, None], 0.0).amax(dim=2).relu()
        return largest[indices].unflatten(0, characters.shape[:2])


def at_words(words: Tensor, numbers: Tensor) -> Tensor:
    """Gather word vectors (B, W, D) for each token's word number (B, S): (B, S, D)."""
    return words.take_along_dim(numbers[..., None], dim=1)
