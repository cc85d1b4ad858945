"""Export of a bundle to CTranslate2, which runs without Python and PyTorch."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqattn import __version__
from seqattn.bundle.bundle import Bundle
from seqattn.bundle.files import CARD
from seqattn.errors import UserError
from seqattn.extras.exchange.ctranslate_spec import ctranslate_spec
from seqattn.generation.base import inference
from seqattn.tokens import BOS, EOS, PAD, RESERVED

MODEL = "model.bin"
"""File of CTranslate2 with the weights."""
_PAIRS, _LONGEST = 8, 24
"""Random pairs scored by both engines, and their maximum number of tokens."""
_ROUNDING = 0.01
"""Tolerance in nats between two float32 scores of a token; a wrong part differs by more."""


def write_ctranslate2(bundle: Bundle, new: Path, quantize: str | None = None) -> dict[str, str]:
    """Write all files of an export, once CTranslate2 reproduces the bundle's scores.

    Args:
        bundle: the bundle.
        new: an empty directory.
        quantize: type of the saved weights; None for float32.

    Returns:
        What was written and checked, for display.

    Raises:
        UserError: CTranslate2 lacks a part of the bundle, or its scores differ.
    """
    if bundle.tokenizer.file_names[0].endswith(".json"):
        raise UserError("CTranslate2 exports do not support byte-level vocabularies")
    pieces = bundle.tokenizer.source_vocabulary(), bundle.tokenizer.target_vocabulary()
    for kind in (None, quantize) if quantize else (None,):
        spec = ctranslate_spec(bundle.model, *pieces)
        spec.optimize(quantization=kind)
        spec.save(str(new))
        if kind is None:
            error = _difference(bundle, new, *pieces)
    if not error < _ROUNDING:
        raise UserError(
            f"CTranslate2's log-probabilities differ from the bundle's by {error:.2g} nats; "
            "run pip install --upgrade ctranslate2"
        )
    bundle.tokenizer.save(new)
    (new / CARD).write_text(_card(bundle), encoding="utf-8")
    return {
        "checked": f"{_PAIRS} random pairs: no token's log-probability differs by more than "
        f"{error:.1g} nats in float32",
    }


def _difference(
    bundle: Bundle, directory: Path, source_pieces: list[str], target_pieces: list[str]
) -> float:
    """Return the largest difference, in nats, of a token's log-probability over random pairs."""
    import ctranslate2

    model, chance = bundle.model, np.random.default_rng(0)
    translator = ctranslate2.Translator(str(directory), compute_type="float32")

    def random_ids(pieces: list[str], limit: int | None) -> list[int]:
        length = chance.integers(1, min(_LONGEST, limit or _LONGEST), endpoint=True)
        return [int(token) for token in chance.integers(RESERVED, len(pieces), length - 1)]

    largest = 0.0
    with inference(model) as device:
        for _ in range(_PAIRS):
            source = random_ids(source_pieces, model.max_source_length)
            target = random_ids(target_pieces, model.max_target_length)
            state = model.start(model.encode(torch.tensor([[*source, EOS]], device=device)))
            scores = model.log_probabilities(torch.tensor([[BOS, *target]], device=device), state)
            following = torch.tensor([*target, EOS])[:, None]
            expected = scores.log_probabilities[0].cpu().gather(1, following)[:, 0]
            scored = translator.score_batch(
                [[source_pieces[one] for one in source]], [[target_pieces[one] for one in target]]
            )[0]
            difference = (expected - torch.tensor(scored.log_probs)).abs().max()
            largest = max(largest, float(difference))
    return largest


def _card(bundle: Bundle) -> str:
    """Return instructions to run the model, as a Markdown page."""
    search: Any = bundle.search()
    tokenizer = bundle.tokenizer
    names = tokenizer.file_names[0], tokenizer.file_names[-1]
    options = f"beam_size={getattr(search, 'beam_size', 1)}"
    if hasattr(search, "length_penalty"):
        options += f", length_penalty={search.length_penalty:g}"
    options += f", min_decoding_length={search.limit.minimum}"
    options += f", suppress_sequences=[[{tokenizer.target_vocabulary()[PAD]!r}]]"
    if tokenizer.target_begin:
        options += f", target_prefix=[{tokenizer.target_pieces(tokenizer.target_begin)}]"
    prefix = "".join(f"{piece!r}, " for piece in tokenizer.source_pieces(tokenizer.source_begin))
    note = " Its beams do not count `target_prefix`." if tokenizer.target_begin else ""
    encoded = 'source.encode("TEXT", out_type=str)'
    encoded = f"[{prefix}*{encoded}]" if prefix else encoded
    limit = f"max(1, int({search.limit.ratio:g} * (len(pieces) + 1)) + {search.limit.extra})"
    return f"""# {bundle.config.get("name", "model")} for CTranslate2

Exported by seqattn {__version__}. Requires only `ctranslate2` and `sentencepiece`:

```python
import ctranslate2
from sentencepiece import SentencePieceProcessor

translator = ctranslate2.Translator("DIR")  # device="cuda", compute_type="int8", ...
source = SentencePieceProcessor(model_file="DIR/{names[0]}")
target = SentencePieceProcessor(model_file="DIR/{names[1]}")

pieces = {encoded}
max_length = {limit}
options = dict(
    {options}
)
result = translator.translate_batch([pieces], **options, max_decoding_length=max_length)[0]
print(target.decode(result.hypotheses[0]))
```

Beam size, length penalty and output lengths are those of the bundle's search. Set its other
options yourself, such as processors, sampling or a coverage penalty. CTranslate2 adds the end token
to each source. seqattn preprocesses line breaks and the characters U+2581 and U+2585 before
sentencepiece, and restores capital letters in outputs of a lower-cased vocabulary:
`Tokenizer.load(Path("DIR"))` from `seqattn.data.tokenizer` does both.{note}
"""
