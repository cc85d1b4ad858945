"""From the last outputs of a recurrent encoder to the first state of a decoder."""

from torch import Tensor, nn

from seqattn.layers.recurrent import Hidden


class Bridge(nn.Module):
    """The decoder's first states from the encoder's last outputs, of all layers: tanh(W h + b).

    As Bahdanau et al. 2015 (arXiv 1409.0473, appendix A.2.2), with both directions; an LSTM's
    cells have a map of their own from the same outputs, without the tanh.

    Args:
        memory_dim: width of the encoder's last outputs, all layers together.
        dim: width of a decoder's state.
        layers: the decoder's depth.
        parts: of a state, 2 for an LSTM.
    """

    def __init__(self, memory_dim: int, dim: int, layers: int, parts: int) -> None:
        super().__init__()
        self.layers = layers
        self.maps = nn.ModuleList(nn.Linear(memory_dim, layers * dim) for _ in range(parts))

    def forward(self, last: Tensor) -> list[Hidden]:
        """The last outputs (B, layers * D) of the encoder -> a state for each layer."""
        made = [part(last) for part in self.maps]
        made[0] = made[0].tanh()
        return list(zip(*(part.chunk(self.layers, dim=1) for part in made), strict=True))
