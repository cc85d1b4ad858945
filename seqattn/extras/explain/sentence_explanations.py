"""Explanations of one sentence."""

from collections.abc import Sequence
from typing import Any

import torch

from seqattn.bundle.bundle import Bundle
from seqattn.extras.explain.explanations import METHODS, Explanation, explain
from seqattn.extras.explain.explanations.contrast import Contrast
from seqattn.extras.explain.explanations.predictions import decoder_input, log_probabilities
from seqattn.generation.base import Search

_TOP = 4
"""Number of source tokens printed for each target token."""


def explain_text(
    bundle: Bundle,
    methods: Sequence[str],
    text: str,
    target: str | None = None,
    search: Search | None = None,
    instead: str | None = None,
) -> dict[str, Any]:
    """Print and return each method's explanation of a text and its output.

    Args:
        bundle: the bundle to explain.
        methods: names of `METHODS`.
        text: raw text; of several windows, the one that produced the output is explained.
        target: output of the first window; None for the bundle's own output.
        search: search of the output; None for the bundle's own.
        instead: another output to compare with, where the two first differ; None for none.
    """
    if target is None:  # the generated ids: re-encoding the text may give other pieces
        best, window = bundle.best(text, search)
        output_ids = bundle.with_end_mark(best.ids)
        [output] = bundle.tokenizer.decode_target([output_ids])
    else:
        [output_ids], output, window = bundle.tokenizer.encode_target([target]), target, 0
    windows = bundle.encode([text])[0]
    source = windows[window]
    read = bundle.tokenizer.source_pieces(source, text if window == 0 else None)
    contrast = None if instead is None else Contrast.of(bundle, output, instead)
    if contrast:
        output_ids = contrast.target
    predicted = bundle.tokenizer.target_pieces(output_ids, None if contrast else target)
    print(f"source:  {text}\noutput:  {output}")
    if len(windows) > 1:
        print(f"windows: {len(windows)} (explaining number {window + 1})")
    device = next(bundle.model.parameters()).device
    ids = (torch.tensor([source], device=device), torch.tensor([output_ids], device=device))
    results: dict[str, Any] = {"source": read, "output": predicted, "methods": {}}
    labels, instead_ids = predicted, None
    if contrast:
        instead_ids = torch.tensor([contrast.instead], device=device)
        [*_, own], [*_, other] = predicted, bundle.tokenizer.target_pieces(contrast.instead)
        nats = log_probabilities(bundle.model, ids[0], decoder_input(ids[1]), ids[1], instead_ids)
        print(f"instead: {instead}\n{own} is {float(nats[0, -1]):.2f} nats likelier than {other}")
        results["instead"], labels = other, [f"{own} and not {other}"]
    for method in methods:
        reason = METHODS[method].why_not(bundle.model)
        if reason is not None:
            print(f"\n{method} is not available: {reason}")
            continue
        batch = explain(bundle.model, *ids, method, instead_ids)
        one = Explanation(*(part[0].detach().cpu() for part in batch))
        print(f"\n{method} ({METHODS[method].cites})")
        _print(Explanation(*(part[-len(labels) :] for part in one)), read, labels)
        results["methods"][method] = {name: part.tolist() for name, part in one._asdict().items()}
    return results


def _print(explanation: Explanation, read: Sequence[str], predicted: Sequence[str]) -> None:
    """Print a line per target token: its top contributions, then those of prefix and rest."""
    width = max(map(len, predicted))
    for piece, row, prefix, rest in zip(predicted, *explanation, strict=True):
        top = row.abs().argsort(descending=True, stable=True)[:_TOP].tolist()
        words = "  ".join(f"{read[index]} {float(row[index]):.2f}" for index in top)
        others = f"output so far {float(prefix.sum()):.2f}, rest {float(rest):.2f}"
        print(f"  {piece:<{width}} ← {words}  | {others}")
