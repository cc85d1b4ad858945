"""Hugging Face's `MarianMTModel`, in a plain loop, and its `generate`.

It is post-norm, so it lacks the two final norms that the others have.
"""

import torch
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel

from benchmarks.loops import PlainLoop
from benchmarks.peers import own
from benchmarks.transformer_models import LONGEST, Shape
from seqattn.data.batch import pad_rows
from seqattn.tokens import BOS, EOS, PAD


class Marian(nn.Module):
    """Model from sources and target inputs to logits. Args: shape: shape of the model."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        config = MarianConfig(
            vocab_size=shape.vocabulary, d_model=shape.dim, encoder_layers=shape.layers,
            decoder_layers=shape.layers, encoder_attention_heads=shape.heads,
            decoder_attention_heads=shape.heads, encoder_ffn_dim=shape.ffn_dim,
            decoder_ffn_dim=shape.ffn_dim, activation_function="relu", scale_embedding=True,
            max_position_embeddings=LONGEST, share_encoder_decoder_embeddings=True,
            dropout=shape.dropout, pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS,
            forced_eos_token_id=None, decoder_start_token_id=BOS,
        )  # fmt: skip
        self.transformer = MarianMTModel(config)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return logits (B, T, V) of complete targets (B, T), begin first, given sources (B, S)."""
        logits: Tensor = self.transformer(
            source, attention_mask=(source != PAD).long(), decoder_input_ids=target, use_cache=False
        ).logits
        return logits


class Contestant(own.Trained):
    """Contestant. Args: as `Worker.make`."""

    def loop(self, shape: Shape, precision: str) -> PlainLoop:
        """Return the model in its training loop."""
        return PlainLoop(Marian(shape), precision)

    def decode(self, rows: own.Rows, beams: int, length: int) -> int:
        """Decode `length` tokens for every source and return the total."""
        ids, model = torch.from_numpy(pad_rows(rows)), self.model.eval().transformer
        if self.training.precision == "bf16":
            model.to(torch.bfloat16)
        out = model.generate(
            ids, attention_mask=(ids != PAD).long(), num_beams=beams, do_sample=False,
            min_new_tokens=length, max_new_tokens=length, length_penalty=1.0,
        )  # fmt: skip
        new = out[:, 1:]  # the begin mark comes first
        return int(((new != PAD) & (new != EOS)).sum())
