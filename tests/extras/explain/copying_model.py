"""A Transformer with weights set by hand: target token t is source token pi(t)."""

from functools import partial

import torch

from seqattn.models.transformer import Slots, TransformerConfig
from seqattn.positions import LearnedPosition
from tests.builders import VOCABULARY, heads

PLACES = 10
DIM = 2 * VOCABULARY + PLACES
TOKEN = slice(0, VOCABULARY)
PLACE = slice(VOCABULARY, VOCABULARY + PLACES)
COPIED = slice(VOCABULARY + PLACES, DIM)
"""Where a vector of the model says which token it is, where it stands and what was copied."""
PI = (1, 0, 3, 2, 5, 4, 7, 6, 9, 8)
"""Neighbors change places, so that sources of every even length, end included, can be copied."""


@torch.no_grad()
def copying_model(order=PI, attention=None, **config):
    """A Transformer of one layer a side in eval mode, whose cross-attention looks at pi(t) alone.

    Self-attention looks at the token itself and adds nothing. All other weights are exactly 0.

    Args:
        order: pi(t) for each target place t, at most `PLACES` of them.
        attention: of all slots, two heads wide; None for multi-head attention.
        config: of the Transformer.
    """
    factory = attention or heads(2, 2)
    shape = TransformerConfig(
        **{"dim": DIM, "ffn_dim": 4, "dropout": 0.0, "share_embeddings": "none", **config}
    )
    position = partial(LearnedPosition, max_length=PLACES)
    slots = Slots([factory], [factory], [factory], position)
    model = shape.build(VOCABULARY, VOCABULARY, True, slots).eval()
    for stack, embedding in (
        (model.encoder, model.source_embedding),
        (model.decoder, model.target_embedding),
    ):
        embedding.table.weight.zero_()[:, TOKEN] = torch.eye(VOCABULARY) / embedding.scale
        stack.position.table.weight.zero_()[:, PLACE] = torch.eye(PLACES)
        for parameter in stack.layers[0].feedforward.parameters():
            parameter.zero_()
        _look(stack.layers[0].self_attention, torch.eye(PLACES))
    seen = torch.eye(PLACES)
    seen[: len(order)] = torch.eye(PLACES)[list(order)]
    cross = model.decoder.layers[0].cross_attention
    _look(cross, seen)
    for head in cross.value.weight.unflatten(0, (cross.num_kv_heads, -1)):
        head[:VOCABULARY, TOKEN] = torch.eye(VOCABULARY)
    for head in cross.output.weight.unflatten(1, (cross.num_heads, -1)).unbind(1):
        head[COPIED, :VOCABULARY] = torch.eye(VOCABULARY)
    model.head.linear.weight.zero_()[:, COPIED] = 10 * torch.eye(VOCABULARY)
    return model


def _look(attention, places, sharpness=800.0):
    """All heads of `attention` look at the place that `places` (T, S) says, and read nothing."""
    for parameter in attention.parameters():
        parameter.zero_()
    for head in attention.query.weight.unflatten(0, (attention.num_heads, -1)):
        head[:PLACES, PLACE] = sharpness * places.T
    for head in attention.key.weight.unflatten(0, (attention.num_kv_heads, -1)):
        head[:PLACES, PLACE] = torch.eye(PLACES)


def copied(source, order=PI):
    """The targets (B, T) that the model predicts of sources (B, S) without padding."""
    return source[:, list(order[: source.shape[1]])]
