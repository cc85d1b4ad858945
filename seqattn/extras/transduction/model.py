"""Transformer that reads all features of a word at one position."""

from dataclasses import replace

import torch
from torch import Tensor

from seqattn.attention.masks import Mask
from seqattn.models.base import Memory
from seqattn.models.head import check_joint
from seqattn.models.stack import Slots
from seqattn.models.transformer import Transformer, TransformerConfig
from seqattn.tokens import PAD


class FeatureTransformerConfig(TransformerConfig):
    """Settings of a `FeatureTransformer`, as `TransformerConfig`."""

    def build(
        self, source_size: int, target_size: int, joint: bool, slots: Slots
    ) -> "FeatureTransformer":
        check_joint(self.share_embeddings, self.copy, joint)
        return FeatureTransformer(self, source_size, target_size, slots)


class FeatureTransformer(Transformer):
    """Transformer whose encoder gives all features position 0, and counts characters from 1.

    Their order then has no effect (Wu, Cotterell and Hulden 2021, arXiv 2005.10213, section 3.2).
    Features have vectors of their own, and so no further embedding of their kind. A source without
    features is read as by a `Transformer`.

    Args: as `Transformer`.

    Attributes:
        is_feature: (source_size,) 1 for pieces that are features, else 0; saved with the weights.
    """

    is_feature: Tensor

    def __init__(
        self, config: TransformerConfig, source_size: int, target_size: int, slots: Slots
    ) -> None:
        super().__init__(config, source_size, target_size, slots)
        self.register_buffer("is_feature", torch.zeros(source_size))

    def encode(self, ids: Tensor) -> Memory:
        real = ids != PAD
        feature = real & (self.is_feature[ids] > 0)
        counted = real & ~feature
        begin = feature.any(dim=1, keepdim=True).long() - 1
        positions = (counted.long().cumsum(dim=1) + begin) * counted  # (B, S)
        mask = replace(Mask.full(real), query_positions=positions, key_positions=positions)
        return Memory(self.encoder(self.source_embedding(ids, positions), mask), real, ids)
