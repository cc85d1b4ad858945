"""Embeddings that begin with vectors of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from seqattn.data.tokenizer import Tokenizer
from seqattn.data.vectors import read_vectors
from seqattn.errors import UserError


def fill_embeddings(model: Any, tokenizer: Tokenizer, path: Path) -> list[str]:
    """Puts the vectors of a text file into the embedding tables of a model.

    They are scaled together to the mean square of the rows that are drawn at random, 1 / D, which
    a table that the output shares needs. Pieces that the file does not have keep their row.

    Args:
        model: new.
        tokenizer: of the model.
        path: of the file, as `read_vectors` takes it.

    Returns:
        For each table a line on how many rows were found.

    Raises:
        UserError: the file has none of the pieces, or vectors of another width than the model's.
    """
    source = getattr(model, "source_embedding", None) or model.embedding
    target = getattr(model, "target_embedding", source)
    tables = {"source": (source.table, tokenizer.source_size, tokenizer.source_pieces)}
    if target.table is not source.table:
        tables["target"] = (target.table, tokenizer.target_size, tokenizer.target_pieces)
    told = []
    for side, (table, size, pieces) in tables.items():
        rows, vectors = read_vectors(path, pieces(range(size)))
        if not rows:
            raise UserError(f"embeddings={path} has none of the {size:,} {side} pieces")
        if vectors.shape[1] != table.embedding_dim:
            raise UserError(
                f"embeddings={path} has vectors of {vectors.shape[1]} numbers, the {side} "
                f"embeddings have {table.embedding_dim}; set model.dim={vectors.shape[1]}"
            )
        found = torch.from_numpy(vectors)
        with torch.no_grad():
            table.weight[rows] = found * (table.embedding_dim * found.square().mean()).rsqrt()
        told.append(f"{path} gave {len(rows):,} of {size:,} {side} pieces their vectors")
    return told
