"""Checks that an export to another engine has every part of a model."""

from collections.abc import Collection
from typing import Any, NamedTuple, cast

from torch import nn

from seqattn.attention.heads import MultiHeadAttention
from seqattn.errors import UserError
from seqattn.models.head import Head
from seqattn.models.stack import LayerStack
from seqattn.models.transformer import Transformer


class Supported(NamedTuple):
    """Parts that an engine has, and what to train with instead of others."""

    engine: str
    positions: Collection[type]
    other_position: str
    kernels: Collection[type]
    other_attention: str

    def check(self, model: nn.Module) -> Transformer:
        """Return the model.

        Raises:
            UserError: for a part that the engine lacks.
        """
        engine = self.engine
        if type(model) is not Transformer:
            kind = type(model).__name__
            raise UserError(f"{engine} supports only Transformers that generate text, got a {kind}")
        if type(model.head) is not Head:
            raise UserError(f"{engine} does not support copying; train with model.copy=false")
        for name, stack in {"encoder": model.encoder, "decoder": model.decoder}.items():
            if not len(stack.layers):
                raise UserError(
                    f"{engine} needs at least one {name} layer; train with model.{name}_layers=1"
                )
            if type(stack.position) not in self.positions:
                raise UserError(
                    f"{engine} does not support {type(stack.position).__name__}; train with "
                    f"{self.other_position}"
                )
            for part in attentions(stack):
                used = part.kernel if type(part) is MultiHeadAttention else part
                if type(used) not in self.kernels:
                    raise UserError(
                        f"{engine} does not support {type(used).__name__} in the {name}; train "
                        f"with {self.other_attention}"
                    )
                if part.key_norm is not None:
                    raise UserError(
                        f"{engine} does not support norms of queries and keys; train with "
                        "attention.qk_norm=false"
                    )
        return model


def attentions(stack: LayerStack) -> list[MultiHeadAttention]:
    """Return every attention of a stack's layers, of whatever kind where it is not checked."""
    names = "self_attention", "cross_attention"
    parts: list[Any] = [getattr(layer, name, None) for layer in stack.layers for name in names]
    return cast(list[MultiHeadAttention], [part for part in parts if part is not None])
