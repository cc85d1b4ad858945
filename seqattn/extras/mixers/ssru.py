"""Simpler simple recurrent unit, the self-attention of fast translation decoders."""

from torch import Tensor, nn

from seqattn.checking import Count
from seqattn.extras.mixers.base import RecurrentMixer, States, half_reversed, without_padding
from seqattn.extras.mixers.linear_scan import scan_by_token, scan_in_parallel
from seqattn.ops.layers import Linear
from seqattn.ops.precision import wide


class SSRU(RecurrentMixer):
    """c_t = f_t * c_{t-1} + (1 - f_t) * W x_t, f_t = sigmoid(W_f x_t + b_f), output relu(c_t).

    Kim et al. 2019 (From Research to Production and Back, aclanthology.org/D19-5632), as in the
    decoders of Marian's student models; there is no output projection. In an encoder, half of the
    channels read from right to left. Time T*D^2, memory T*D; the cache holds D numbers, independent
    of the length of the past. The recurrence is in at least float32.

    Args:
        query_dim: width D.
        memory_dim: the same width.
        num_heads: heads of the layer's cross-attention, unless that is set; it has none itself.
        chunk: tokens scanned together in training. It changes speed and memory, not the result.
    """

    def __init__(
        self, query_dim: int, memory_dim: int, num_heads: Count, chunk: Count = 16
    ) -> None:
        super().__init__()
        self.chunk = chunk
        self.forget = Linear(query_dim, query_dim)
        self.value = Linear(query_dim, query_dim, bias=False)
        for projection in (self.forget, self.value):
            nn.init.xavier_uniform_(projection.weight)
        nn.init.zeros_(self.forget.bias)

    def read(self, x: Tensor, real: Tensor | None, both_ways: bool, states: States) -> Tensor:
        value, gate = self.value(x), wide(self.forget(x))
        new = without_padding(wide(value) * (-gate).sigmoid(), real)
        forget = without_padding(gate.sigmoid(), real, 1.0)
        if both_ways:
            forget, new = half_reversed(forget), half_reversed(new)
        if x.shape[1] == 1:
            cells = scan_by_token(forget, new, states.get("cell"))
        else:
            cells = scan_in_parallel(forget, new, states.get("cell"), self.chunk)
        states["cell"] = cells[:, -1]
        if both_ways:
            cells = half_reversed(cells)
        return cells.relu().to(value.dtype)
