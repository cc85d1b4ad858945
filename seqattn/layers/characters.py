"""Words by their characters."""

from torch import Tensor, nn

CODES = 512
"""Numbers of characters, 0 for none among them."""


class CharacterCNN(nn.Module):
    """The largest features of a word's runs of characters (Kim et al. 2016, arXiv 1508.06615,
    section 2.2), as BiDAF and QANet read words. Time L * D for each different word of L characters.

    Args:
        dim: width D of what comes out.
        character_dim: width of a character's embedding.
        window: characters of a run; odd.
    """

    def __init__(self, dim: int, character_dim: int = 16, window: int = 5) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CODES, character_dim, padding_idx=0)
        self.convolution = nn.Conv1d(character_dim, dim, window, padding=window // 2)

    def forward(self, characters: Tensor) -> Tensor:
        """Characters (B, W, L), 0 beyond a word's end -> (B, W, D), zeros where there are none."""
        different, places = characters.flatten(0, 1).unique(dim=0, return_inverse=True)  # (U, L)
        runs = self.convolution(self.embedding(different).transpose(1, 2))  # (U, D, L)
        largest = runs.masked_fill((different == 0)[:, None], 0.0).amax(dim=2).relu()
        return largest[places].unflatten(0, characters.shape[:2])


def at_words(words: Tensor, numbers: Tensor) -> Tensor:
    """Vectors of words (B, W, D) where each token's is asked for, (B, S) -> (B, S, D)."""
    return words.take_along_dim(numbers[..., None], dim=1)
