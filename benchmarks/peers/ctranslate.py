"""CTranslate2, the C++ engine, running a Transformer with random weights."""

import tempfile
from typing import Any

import numpy as np
from ctranslate2 import Translator
from ctranslate2.specs import TransformerSpec

_COMPUTES = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}
_MARKS = ["<blank>", "<unk>", "<s>", "</s>"]
_CHANCE = np.random.default_rng(0)


class Contestant:
    """Translator with its own workers. Args: as `Worker.make`."""

    def __init__(self, shape: dict[str, Any], precision: str, threads: int, workers: int) -> None:
        self.words = [*_MARKS, *map(str, range(len(_MARKS), shape["vocabulary"]))]
        spec = _model(shape)
        spec.register_source_vocabulary(self.words)
        spec.register_target_vocabulary(self.words)
        tables = {id(table): table for table in spec.variables().values()}.values()
        self.parameters = sum(t.size for t in tables if getattr(t, "dtype", None) == np.float32)
        spec.validate()
        spec.optimize()
        with tempfile.TemporaryDirectory() as directory:
            spec.save(directory)
            self.translator = Translator(
                directory, compute_type=_COMPUTES[precision], inter_threads=workers,
                intra_threads=threads,
            )  # fmt: skip

    def decode_all(self, rows: list[list[int]], beams: int, length: int, batch_size: int) -> int:
        """Decode `length` tokens for every source and return the total."""
        results = self.translator.translate_batch(
            [[self.words[number] for number in row] for row in rows], beam_size=beams,
            max_batch_size=batch_size, min_decoding_length=length,
            max_decoding_length=length, return_scores=True,
        )  # fmt: skip
        return sum(len(one.hypotheses[0]) for one in results)


def _model(shape: dict[str, Any]) -> Any:
    """Build a pre-norm model with one table for source, target and output, as in all others."""
    dim = shape["dim"]
    spec = TransformerSpec.from_config(shape["layers"], shape["heads"])
    table = _random(shape["vocabulary"], dim)
    encoder, decoder = spec.encoder, spec.decoder
    encoder.embeddings[0].weight = decoder.embeddings.weight = decoder.projection.weight = table
    for stack in (encoder, decoder):
        _norm(stack.layer_norm, dim)
        for layer in stack.layer:
            parts = {"self_attention": (3, 1), "attention": (1, 2, 1)}
            for name, widths in parts.items():
                attention = getattr(layer, name, None)
                for linear, width in zip(attention.linear if attention else (), widths):
                    _linear(linear, width * dim, dim)
                if attention:
                    _norm(attention.layer_norm, dim)
            _norm(layer.ffn.layer_norm, dim)
            _linear(layer.ffn.linear_0, shape["ffn_dim"], dim)
            _linear(layer.ffn.linear_1, dim, shape["ffn_dim"])
    return spec


def _random(rows: int, columns: int) -> Any:
    return _CHANCE.normal(0, columns**-0.5, (rows, columns)).astype(np.float32)


def _linear(spec: Any, rows: int, columns: int) -> None:
    spec.weight, spec.bias = _random(rows, columns), np.zeros(rows, np.float32)


def _norm(spec: Any, dim: int) -> None:
    spec.gamma, spec.beta = np.ones(dim, np.float32), np.zeros(dim, np.float32)
