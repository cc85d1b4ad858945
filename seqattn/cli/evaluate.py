"""`evaluate`: a bundle's scores on a split."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seqattn.cli.build import make
from seqattn.cli.bundle import Bundle, load_bundle
from seqattn.cli.carried import compose_with_bundle
from seqattn.cli.config import plain
from seqattn.cli.kinds import check_kinds
from seqattn.cli.summary import print_table
from seqattn.errors import UserError
from seqattn.metrics.text import TextScore, TextScorer
from seqattn.training.memory import keep_freed_memory


class Scored(NamedTuple):
    """What a bundle made of some sources, and how good that is."""

    scores: list[TextScore]
    hypotheses: list[str]
    tokens: int
    """Target tokens said, ends counted."""
    seconds: float
    """Of generating."""


def evaluate(overrides: Sequence[str]) -> None:
    """Runs the verb on the user's overrides."""
    nodes = {"data": "data", "generation": "generation", "scorer": "task.scorer"}
    config, _ = compose_with_bundle("evaluate", overrides, nodes)
    settled = plain(config)
    check_kinds(settled)
    split = settled["split"]
    scorer = TextScorer(settled["scorer"]["tokenize"], settled["scorer"]["lowercase"])
    sources, references = read_split(settled)
    keep_freed_memory()
    bundle = load_bundle(settled["bundle"], settled["device"])
    scores, hypotheses, tokens, seconds = score(
        bundle, sources, references, settled["generation"], scorer
    )
    results = {
        "split": split,
        "sentences": len(sources),
        "scores": {s.name: {"value": s.value, "signature": s.signature} for s in scores},
        "sentences_per_second": len(sources) / seconds,
        "tokens_per_second": tokens / seconds,
        "generation": settled["generation"],
    }
    output = Path(settled["output"] or Path(settled["bundle"]).parent / "evaluation" / split)
    output = output.expanduser()
    output.mkdir(parents=True, exist_ok=True)
    (output / "hypotheses.txt").write_text("".join(f"{h}\n" for h in hypotheses), encoding="utf-8")
    (output / "scores.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    rows = {s.name: f"{s.value:.2f}   {s.signature}" for s in scores}
    rows["sentences"] = f"{len(sources):,} ({len(sources) / seconds:,.1f} a second)"
    rows["target tokens"] = f"{tokens:,} ({tokens / seconds:,.0f} a second)"
    rows["written to"] = str(output)
    print_table(f"{split} of {settled['bundle']}", rows)


def read_split(settled: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Sources and references of the split that a verb's settings name.

    Raises:
        UserError: where it cannot be read, or has no references.
    """
    split, cache_dir = settled["split"], settled["cache_dir"]
    texts = make(settled["data"]).load(split, Path(cache_dir) if cache_dir else None)
    if "target" not in texts.column_names:
        raise UserError(f"the {split} split has no references to score against")
    return list(texts["source"]), list(texts["target"])


def score(
    bundle: Bundle,
    sources: Sequence[str],
    references: Sequence[str],
    generation: Mapping[str, Any],
    scorer: TextScorer,
) -> Scored:
    """Generates from every source and scores what came.

    Args:
        bundle: the model.
        sources: texts.
        references: a text for each.
        generation: the node of the search.
        scorer: how texts are compared.
    """
    generator = bundle.generator(generation)
    encoded = bundle.encode(sources)
    began = time.perf_counter()
    found = generator.generate(encoded)
    seconds = time.perf_counter() - began
    hypotheses = bundle.tokenizer.decode_target([best[0].ids for best in found])
    tokens = sum(len(best[0].ids) + 1 for best in found)
    return Scored(scorer.score(hypotheses, references), hypotheses, tokens, seconds)
