"""Export of a bundle to ONNX, which onnxruntime and others run without Python and PyTorch."""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from seqattn import __version__
from seqattn.bundle.bundle import Bundle
from seqattn.bundle.files import CARD
from seqattn.errors import UserError
from seqattn.extras.exchange.onnx_graphs import (
    DECODER,
    ENCODER,
    STEP,
    packages,
    quietly,
    write_graphs,
)
from seqattn.generation.base import inference
from seqattn.models.base import Seq2SeqModel
from seqattn.tokens import BOS, EOS, PAD, RESERVED, UNK

Array = np.ndarray[Any, Any]
GRAPHS = ENCODER, DECODER, STEP
MODEL = f"{DECODER}.onnx"
"""File with most of the weights."""
_PAIRS, _LONGEST = 8, 24
"""Random pairs scored by both engines, and their maximum number of tokens."""
_ROUNDING, _SPREAD = 1e-4, 10.0
"""Tolerance in nats between two float32 scores of a token, and the log-probability from which on
rounding grows with the largest one of a step."""


def write_onnx(bundle: Bundle, new: Path, quantize: str | None = None) -> dict[str, str]:
    """Write all files of an export, once onnxruntime reproduces the bundle's scores.

    Args:
        bundle: the bundle.
        new: an empty directory.
        quantize: int8 for weights rounded by onnxruntime; None for float32.

    Returns:
        What was written and checked, for display.

    Raises:
        UserError: the graphs lack a part of the bundle, or onnxruntime's scores differ.
    """
    if quantize not in (None, "int8"):
        raise UserError(f"to=onnx does not support quantize={quantize}; use quantize=int8")
    if bundle.tokenizer.file_names[0].endswith(".json"):
        raise UserError("to=onnx does not support byte-level vocabularies")
    packages("onnxruntime")
    graphs = new / "float32" if quantize else new
    graphs.mkdir(exist_ok=True)
    write_graphs(bundle.model, graphs)
    error = largest_difference(bundle.model, graphs)
    if not error.share < 1:
        raise UserError(
            f"onnxruntime's log-probabilities differ from the bundle's by {error.nats:.2g} nats; "
            "run pip install --upgrade onnxruntime"
        )
    if quantize:
        for name in GRAPHS:
            _quantize(graphs / f"{name}.onnx", new / f"{name}.onnx")
        shutil.rmtree(graphs)
    bundle.tokenizer.save(new)
    (new / CARD).write_text(_card(bundle), encoding="utf-8")
    return {
        "checked": f"{_PAIRS} random pairs: no log-probability differs by more than "
        f"{error.nats:.1g} nats in float32",
    }


class OnnxDecoder:
    """Decoding by the graphs of an export.

    Args:
        directory: the export.
        source: ids (B, S), 0 on padding.
    """

    def __init__(self, directory: Path, source: Array) -> None:
        (runtime,) = packages("onnxruntime")
        encoder, self._decoder, self._step = (
            runtime.InferenceSession(directory / f"{name}.onnx") for name in GRAPHS
        )
        mask = (source != PAD).astype(np.int64)
        (memory,) = encoder.run(None, {"input_ids": source, "attention_mask": mask})
        self._read = {"encoder_attention_mask": mask, "encoder_hidden_states": memory}

    def logits(self, ids: Array) -> Array:
        """Return logits (B, T, V) after more tokens (B, T), a single one in all calls but one."""
        step = "encoder_hidden_states" not in self._read
        session = self._step if step else self._decoder
        logits, *present = session.run(None, {**self._read, "input_ids": ids})
        names = [one.name.replace("present", "past_key_values") for one in session.get_outputs()]
        self._read.update(zip(names[1:], present, strict=True))
        self._read.pop("encoder_hidden_states", None)
        return logits


class Difference(NamedTuple):
    """The largest difference of two log-probabilities, in nats and as a share of the tolerance."""

    nats: float
    share: float


def largest_difference(model: Seq2SeqModel, directory: Path) -> Difference:
    """Return the largest difference of a log-probability over random padded pairs."""
    chance, sizes = np.random.default_rng(0), []
    for limit in (model.max_source_length, model.max_target_length):
        sizes.append((_PAIRS, min(_LONGEST, limit or _LONGEST)))
    tables = model.source_embedding.table, model.target_embedding.table
    source, target = (
        chance.integers(RESERVED, table.num_embeddings, size)
        for table, size in zip(tables, sizes, strict=True)
    )
    ends = chance.integers(0, source.shape[1], _PAIRS)[:, None]
    indices = np.arange(source.shape[1])
    source = np.where(indices < ends, source, np.where(indices == ends, EOS, PAD))
    target[:, 0] = BOS
    first = -(-target.shape[1] // 2)
    decoder = OnnxDecoder(directory, source)
    parts = [target[:, :first], *(target[:, n : n + 1] for n in range(first, target.shape[1]))]
    logits = np.concatenate([decoder.logits(part) for part in parts], axis=1)
    with inference(model) as device:
        state = model.start(model.encode(torch.from_numpy(source).to(device)))
        expected = model.log_probabilities(torch.from_numpy(target).to(device), state)[0].cpu()
        difference = (expected - torch.from_numpy(logits).log_softmax(dim=-1)).abs()
        # tokens that imported models cannot output have -10,000, of less precision
        spoken = ~(expected <= -1_000)
        difference = difference.where(spoken, 0.0)
        spread = expected.where(spoken, 0.0).abs().amax(dim=-1, keepdim=True)
        share = difference / (_ROUNDING * (spread / _SPREAD).clamp(min=1))
        return Difference(float(difference.max()), float(share.max()))


def _quantize(old: Path, new: Path) -> None:
    (tools,) = packages("onnxruntime.quantization")
    with quietly("root"):
        tools.quantize_dynamic(
            old, new, use_external_data_format=old.with_suffix(".onnx.data").exists()
        )


def _card(bundle: Bundle) -> str:
    """Return instructions to run the model, as a Markdown page."""
    search: Any = bundle.search()
    tokenizer = bundle.tokenizer
    names = tokenizer.file_names[0], tokenizer.file_names[-1]
    prefix = "".join(f"{token}, " for token in tokenizer.source_begin)
    limit = f"max(1, int({search.limit.ratio:g} * len(ids)) + {search.limit.extra})"
    if bundle.model.max_target_length is not None:
        limit = f"min({bundle.model.max_target_length}, {limit})"
    return f"""# {bundle.config.get("name", "model")} for ONNX

Exported by seqattn {__version__}, in the layout of Optimum. Requires only `onnxruntime` and
`sentencepiece`; this program searches greedily:

```python
import numpy as np
from onnxruntime import InferenceSession
from sentencepiece import SentencePieceProcessor

encoder = InferenceSession("DIR/{ENCODER}.onnx")
session = InferenceSession("DIR/{DECODER}.onnx")
step = InferenceSession("DIR/{STEP}.onnx")
source = SentencePieceProcessor(model_file="DIR/{names[0]}")
target = SentencePieceProcessor(model_file="DIR/{names[1]}")

numbers = range({RESERVED}, {tokenizer.source_size})
known = {{source.id_to_piece(number): number for number in numbers}}
pieces = source.encode("TEXT", out_type=str)
ids = [{prefix}*(known.get(piece, {UNK}) for piece in pieces), {EOS}]
mask = np.ones((1, len(ids)), dtype=np.int64)
(memory,) = encoder.run(None, {{"input_ids": np.array([ids]), "attention_mask": mask}})

output = {[*tokenizer.target_begin]}
read = {{"encoder_attention_mask": mask, "encoder_hidden_states": memory}}
read["input_ids"] = np.array([[{BOS}, *output]])
while len(output) < {limit}:
    logits, *present = session.run(None, read)
    token = int(logits[0, -1, 1:].argmax()) + 1  # never padding
    if token == {EOS}:
        break
    output.append(token)
    names = [one.name.replace("present", "past_key_values") for one in session.get_outputs()[1:]]
    read.update(zip(names, present), input_ids=np.array([[token]]))
    read.pop("encoder_hidden_states", None)
    session = step
print(target.decode(output))
```

`{DECODER}` reads the first tokens of outputs, and `{STEP}` one more. Both take
batches: pad sources with {PAD}, and set their mask to 0 there. Output lengths are those of the
bundle's search. Set its other options yourself, such as beams, processors or a minimum length.
seqattn preprocesses line breaks and the characters U+2581 and U+2585 before sentencepiece, and
restores capital letters in outputs of a lower-cased vocabulary: `Tokenizer.load(Path("DIR"))` from
`seqattn.data.tokenizer` does both.
"""
