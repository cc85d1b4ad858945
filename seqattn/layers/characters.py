"""Words by their characters."""

from torch import Tensor, nn

CODES = 512
"""Numbers of characters, 0 for none among them."""


class CharacterCNN(nn.Module):
    """The largest features of a word's runs of characters (Kim et al. 2016, arXiv 1508.06615,
    section 2.2), as BiDAF and QANet read words. Time W * L * D for W words of L characters.

    Args:
        dim: width D of what comes out.
        character_dim: width of a character's embedding.
        window: characters of a run; odd.
    """

    def __init__(self, dim: int, character_dim: int = 16, window: int = 5) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CODES, character_dim)
        self.convolution = nn.Conv1d(character_dim, dim, window, padding=window // 2)

    def forward(self, characters: Tensor) -> Tensor:
        """Characters (B, W, L), 0 beyond a word's end -> (B, W, D), zeros where there are none."""
        flat = characters.flatten(0, 1)  # (B, W, L) -> (B * W, L)
        real = (flat != 0)[:, None]  # (B * W, 1, L)
        x = self.embedding(flat).transpose(1, 2) * real
        largest = (self.convolution(x).relu() * real).amax(dim=2)  # at least 0, as is padding
        return largest.unflatten(0, characters.shape[:2])


def at_words(words: Tensor, numbers: Tensor) -> Tensor:
    """Vectors of words (B, W, D) where each token's is asked for, (B, S) -> (B, S, D)."""
    return words.gather(1, numbers[..., None].expand(-1, -1, words.shape[2]))
