"""What the methods say of one sentence."""

from collections.abc import Sequence
from typing import Any

import torch

from seqattn.bundle.text_bundle import TextBundle
from seqattn.extras.explain.explanations import METHODS, Explanation, explain
from seqattn.generation.base import Search

_TOP = 4
"""Source tokens that are printed of each target token."""


def explain_text(
    bundle: TextBundle,
    methods: Sequence[str],
    text: str,
    target: str | None = None,
    search: Search | None = None,
) -> dict[str, Any]:
    """Prints and returns what each method says of a text and its output.

    Args:
        bundle: which explains.
        methods: names of `METHODS`.
        text: as written; of one in several windows that is explained in which the output was found.
        target: the output, of the first window; None for what the bundle says.
        search: how it is found; None for the bundle's own.
    """
    if target is None:  # as it was said: text may be cut into other pieces again
        best, window = bundle.best(text, search)
        said = bundle.ended(best.ids)
        [output] = bundle.tokenizer.decode_target([said])
    else:
        [said], output, window = bundle.tokenizer.encode_target([target]), target, 0
    windows = bundle.encode([text])[0]
    source = windows[window]
    read = bundle.tokenizer.source_pieces(source, text if window == 0 else None)
    predicted = bundle.tokenizer.target_pieces(said, target)
    print(f"source:  {text}\noutput:  {output}")
    if len(windows) > 1:
        print(f"windows: {len(windows)}, of which number {window + 1} is explained")
    device = next(bundle.model.parameters()).device
    ids = (torch.tensor([source], device=device), torch.tensor([said], device=device))
    found: dict[str, Any] = {"source": read, "output": predicted, "methods": {}}
    for method in methods:
        reason = METHODS[method].why_not(bundle.model)
        if reason is not None:
            print(f"\n{method} cannot be had: {reason}")
            continue
        one = Explanation(*(part[0].detach().cpu() for part in explain(bundle.model, *ids, method)))
        print(f"\n{method} ({METHODS[method].cites})")
        _print(one, read, predicted)
        found["methods"][method] = {name: part.tolist() for name, part in one._asdict().items()}
    return found


def _print(found: Explanation, read: Sequence[str], predicted: Sequence[str]) -> None:
    """A line for each target token: what most came from, from the target so far and elsewhere."""
    wide = max(map(len, predicted))
    for piece, row, prefix, rest in zip(predicted, *found, strict=True):
        top = row.abs().argsort(descending=True, stable=True)[:_TOP].tolist()
        words = "  ".join(f"{read[place]} {float(row[place]):.2f}" for place in top)
        others = f"output so far {float(prefix.sum()):.2f}, rest {float(rest):.2f}"
        print(f"  {piece:<{wide}} ← {words}  | {others}")
