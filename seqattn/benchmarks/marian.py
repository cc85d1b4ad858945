"""Hugging Face's MarianMTModel of our shape, with random weights."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from seqattn.benchmarks.shape import Shape
from seqattn.errors import UserError
from seqattn.models.base import BOS, EOS, PAD


def marian_model(shape: Shape) -> nn.Module:
    """A `MarianMTModel` in eval mode: as many layers, heads and widths, sinusoidal positions.

    It normalises after the sublayers, so it lacks the two final norms of ours.

    Raises:
        UserError: where `transformers` is not installed.
    """
    try:
        from transformers import MarianConfig, MarianMTModel
    except ImportError as error:
        raise UserError(
            "suite=decoding compares with Hugging Face transformers, which is not installed: "
            "pip install seqattn[bench]"
        ) from error
    config = MarianConfig(
        vocab_size=shape.vocabulary,
        d_model=shape.dim,
        encoder_layers=shape.layers,
        decoder_layers=shape.layers,
        encoder_attention_heads=shape.heads,
        decoder_attention_heads=shape.heads,
        encoder_ffn_dim=shape.ffn_dim,
        decoder_ffn_dim=shape.ffn_dim,
        activation_function="relu",
        max_position_embeddings=512,
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        forced_eos_token_id=None,
        decoder_start_token_id=BOS,
    )
    model: nn.Module = MarianMTModel(config)
    return model.eval()


def marian_decode(model: nn.Module, rows: Sequence[Sequence[int]], beams: int, length: int) -> int:
    """Generates exactly `length` tokens for each source with `generate`; gives their number.

    Args:
        model: of `marian_model`.
        rows: source ids, one batch.
        beams: 1 for greedy search.
        length: tokens of every output.
    """
    longest = max(len(row) for row in rows)
    ids = torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])
    out: Tensor = model.generate(  # type: ignore[operator]
        ids,
        attention_mask=(ids != PAD).long(),
        num_beams=beams,
        do_sample=False,
        min_new_tokens=length,
        max_new_tokens=length,
        length_penalty=1.0,
    )
    new = out[:, 1:]  # what comes first is the begin mark
    return int(((new != PAD) & (new != EOS)).sum())
