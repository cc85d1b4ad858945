"""What kernels share that serve an encoder's self-attention alone."""

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from seqattn.attention.base import Attended, Kernel
from seqattn.attention.cache import Cache, KeysValues
from seqattn.attention.masks import Mask
from seqattn.errors import UserError
from seqattn.positions.base import Position


class EncoderKernel(Kernel):
    """Every token may see every other, at once: neither causal, nor cross, nor incremental."""

    only_padding: ClassVar[bool] = True
    """Whether padding is all that it can hide, since tokens meet in sums over all of them."""

    @abstractmethod
    def context(self, query: Tensor, new: KeysValues, mask: Mask, position: Position) -> Tensor:
        """The context (B, H, T, Dh). Args: as `forward`."""

    def forward(
        self,
        query: Tensor,
        new: KeysValues,
        mask: Mask,
        position: Position,
        cache: Cache | None = None,
        need_weights: bool = False,
    ) -> Attended:
        name = type(self).__name__
        if self.only_padding and (mask.causal or mask.extra is not None):
            raise UserError(f"{name} takes no mask but padding: its tokens meet in sums over all")
        if mask.causal:
            raise UserError(f"{name} cannot be causal; it fits an encoder's self-attention")
        return Attended(self.context(query, new, mask, position))
