"""Scores of a split under noise, and how they differ from those of its clean texts."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from seqattn.bundle.outputs import Outputs
from seqattn.data.base import Texts
from seqattn.data.lines import write_lines
from seqattn.data.word_links import Link, LinkedPair, linked_words
from seqattn.errors import UserError
from seqattn.extras.noise.kinds import Writing, Writings, noised
from seqattn.metrics.significance import SentenceCounts
from seqattn.screen import progress

Links = Collection[Link]
FILE, MIX = "noise.jsonl", "mix"
_SEED, _RESAMPLES = 1, 1000
_SHOWN = 200
"""Characters of a text in the table."""


def noisy_scores(
    kinds: Sequence[str], bundle: Any, outputs: Outputs, scorer: Any, split: str, directory: Path
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return scores of a split under each kind of noise and a mix of them, and their table.

    Writes noise.jsonl, with each row that a noise changes and its output.

    Args: outputs: of the clean texts, with `again`.
    """
    rows, figures, table, lines = outputs.rows, dict[str, Any](), dict[str, str](), list[Any]()
    targets = [references[0] for references in rows.references]
    writings = Writings(Writing.of(rows.sources), Writing.of(targets))
    links = links_of(bundle, rows.sources, targets)
    clean = scorer.sentences(outputs.texts, rows.references)
    listed = next((number for number, score in enumerate(clean) if score.name == "chrF"), 0)
    metric, clean_scores = clean[listed].name, clean[listed].each.tolist()
    for name in [*kinds, *[MIX] * (len(kinds) > 1)]:
        pairs = noisy_pairs(rows, kinds if name == MIX else [name], writings, links)
        noisy = noisy_rows(rows, pairs)
        numbers = [
            row
            for row, references in enumerate(noisy.references)
            if (noisy.sources[row], references) != (rows.sources[row], rows.references[row])
        ]
        if not numbers:
            table[name] = "changes no row"
            continue
        with progress(f"scoring {split} with {name}", outputs.unit) as advance:
            result = outputs.again(noisy, progress=advance)  # type: ignore[misc]
        counts = scorer.sentences(result.texts, noisy.references)
        differences = {
            before.name: _difference(before, after, rows.groups)
            for before, after in zip(clean, counts, strict=True)
        }
        scores = [
            {
                "name": score.name,
                "value": score.value,
                "signature": f"{score.signature}|noise:{name}|seed:{_SEED}",
                **differences.get(score.name, {}),
            }
            for score in result.scores(scorer)
        ]
        figures[name] = {"rows": len(numbers), "scores": scores}
        counted = f"{len(numbers):,} of {len(rows.sources):,} rows change"
        share = same_links(bundle, [pairs[row][0] for row in numbers])
        if share is not None:
            figures[name]["same_links"] = share
            counted += f", in which {share:.1%} of the target words keep their link"
        table[name] = f"{', '.join(map(_described, scores))}; {counted}"
        values = counts[listed].each.tolist()
        lines += [
            {
                "noise": name,
                "row": row + 1,
                "source": noisy.sources[row],
                "references": noisy.references[row],
                "output": result.texts[row],
                metric: values[row],
                "clean": clean_scores[row],
            }
            for row in numbers
        ]
    write_lines(map(json.dumps, lines), str(directory / FILE))
    sign = -1 if clean[listed].lower else 1
    lines.sort(key=lambda line: sign * (line["clean"] - line[metric]))
    worst = {line["noise"]: line for line in lines if line["noise"] != MIX}  # the last of each
    for name, line in worst.items():
        table[f"worst of {name}"] = (
            f"{line['source']:.{_SHOWN}} -> {line['output']:.{_SHOWN}} "
            f"({metric} {line[metric]:.1f}, clean {line['clean']:.1f})"
        )
    return figures, table


def _described(score: Mapping[str, Any]) -> str:
    text = f"{score['name']} {score['value']:.2f}"
    if "difference" not in score:
        return text
    low, high = score["difference_interval"]
    return f"{text} ({score['difference']:+.2f}, {low:+.2f} to {high:+.2f})"


def links_of(bundle: Any, sources: Sequence[str], targets: Sequence[str]) -> list[Links | None]:
    """Return a model's links between the words of pairs; None where they cannot be read."""
    try:
        aligned = bundle.align(sources, targets)
    except UserError:  # a model without weights to read
        return [None] * len(sources)
    return [*map(linked_words, aligned, sources, targets)]


def same_links(bundle: Any, pairs: Sequence[LinkedPair]) -> float | None:
    """Return the share of linked target words that a model links as pairs do; None without any."""
    linked = [pair for pair in pairs if pair.links]
    found = links_of(bundle, [pair.source for pair in linked], [pair.target for pair in linked])
    same, total = 0, 0
    for pair, links in zip(linked, found, strict=True):
        total += len({target for _, target in pair.links or ()})
        same += len({target for _, target in {*(pair.links or ())} & {*(links or ())}})
    return same / total if total else None


def noisy_pairs(
    rows: Texts, kinds: Sequence[str], writings: Writings, links: Sequence[Links | None]
) -> list[list[LinkedPair]]:
    """Return each row's source with each of its references after one of some kinds of noise.

    Args: links: of each source with its first reference.
    """
    pairs = []
    for number, (source, texts) in enumerate(zip(rows.sources, rows.references, strict=True)):
        kind = Random(f"{MIX} {_SEED} {number}").choice(kinds)
        pairs.append(
            [
                noised(LinkedPair(source, text, own), [kind], writings, Random(f"{_SEED} {number}"))
                for text, own in zip(texts, chain([links[number]], repeat(None)))
            ]
        )
    return pairs


def noisy_rows(rows: Texts, pairs: Sequence[Sequence[LinkedPair]]) -> Texts:
    """Return rows with noise. Args: pairs: as `noisy_pairs` returns them."""
    references = [[pair.target for pair in each] for each in pairs]
    targets = [texts[0] for texts in references] if rows.targets else []
    sources = [each[0].source for each in pairs]
    return replace(rows, sources=sources, references=references, targets=targets)


def _difference(
    clean: SentenceCounts, noisy: SentenceCounts, groups: Sequence[str] | None
) -> dict[str, Any]:
    """Return how noise changes a score, and the 95% interval of that by paired bootstrap."""
    clean, noisy = clean.by_group(groups), noisy.by_group(groups)
    chance, count, samples = np.random.default_rng(_SEED), len(clean.counts), []
    for _ in range(_RESAMPLES):
        rows = chance.integers(count, size=count)
        sums = [scores.counts[rows].sum(0).tolist() for scores in (clean, noisy)]
        samples.append(noisy.compute(sums[1]) - clean.compute(sums[0]))
    return {
        "difference": noisy.score - clean.score,
        "difference_interval": np.percentile(samples, [2.5, 97.5]).tolist(),
    }
