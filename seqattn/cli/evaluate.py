"""`evaluate`: a bundle's scores on a split."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seqattn.cli.build import build_source, make
from seqattn.cli.bundle import TextBundle, load_text_bundle
from seqattn.cli.carried import compose_with_bundle
from seqattn.cli.config import plain
from seqattn.cli.evaluate_spans import evaluate_spans
from seqattn.cli.evaluation import output_directory, plain_scores, score_rows, write_json
from seqattn.cli.fitting import learns
from seqattn.cli.kinds import check_kinds
from seqattn.cli.summary import print_table
from seqattn.cli.texts import in_one_line
from seqattn.data.texts import Texts
from seqattn.errors import UserError
from seqattn.metrics.text import Scorer
from seqattn.training.memory import keep_freed_memory

Config = dict[str, Any]


class Said(NamedTuple):
    """What a bundle made of some sources."""

    hypotheses: list[str]
    tokens: int
    """Target tokens said, ends counted."""
    seconds: float
    """Of generating."""


def evaluate(overrides: Sequence[str]) -> None:
    """Runs the verb on the user's overrides."""
    nodes = {"data": "data", "generation": "generation", "scorer": "task.scorer"}
    config, carried = compose_with_bundle("evaluate", overrides, nodes)
    settled = plain(config)
    check_kinds(settled)
    if learns(carried) == "spans":
        evaluate_spans(settled)
        return
    scorer: Scorer = make(settled["scorer"])
    split = read_split(settled, learns(carried))
    bins = _bins(settled["lengths"], split)
    keep_freed_memory()
    bundle = load_text_bundle(settled["bundle"], settled["device"], "evaluate")
    said = generated(bundle, split.sources, settled["generation"])
    scores = scorer.score(said.hypotheses, split.references, split.sources)
    results = {
        "bundle": str(settled["bundle"]),
        "split": settled["split"],
        "sentences": len(split.sources),
        "scores": plain_scores(scores),
        "sentences_per_second": len(split.sources) / said.seconds,
        "tokens_per_second": said.tokens / said.seconds,
        "generation": settled["generation"],
    }
    if bins:
        results["by_length"] = [_of_bin(scorer, part, split, said.hypotheses) for part in bins]
    output = output_directory(settled)
    lines = "".join(f"{in_one_line(h)}\n" for h in said.hypotheses)
    (output / "hypotheses.txt").write_text(lines, encoding="utf-8")
    if split.ids is not None:
        predictions = dict(zip(split.ids, said.hypotheses, strict=True))
        write_json(output / "predictions.json", predictions)
    write_json(output / "scores.json", results)
    rows = score_rows(scores)
    rows["sentences"] = (
        f"{len(split.sources):,} ({len(split.sources) / said.seconds:,.1f} a second)"
    )
    rows["target tokens"] = f"{said.tokens:,} ({said.tokens / said.seconds:,.0f} a second)"
    for part in results.get("by_length", ()):
        name, value = next(iter(part["scores"].items()))
        words = f"{part['words']} words"
        rows[words] = f"{name} {value['value']:.2f} ({part['sentences']:,} sentences)"
    rows["written to"] = str(output)
    print_table(f"{settled['split']} of {settled['bundle']}", rows)


def read_split(settled: Mapping[str, Any], kind: str) -> Texts:
    """The split that a verb's settings name.

    Args:
        settled: of the verb: data, split, cache_dir.
        kind: what the bundle learnt from, one of `LEARNS`.

    Raises:
        UserError: where it cannot be read, or has no references.
    """
    split, cache_dir = settled["split"], settled["cache_dir"]
    source = build_source(settled["data"], kind)
    texts = source.load(split, Path(cache_dir) if cache_dir else None)
    if "target" not in texts.column_names:
        raise UserError(f"the {split} split has no references to score against")
    return Texts.of(texts)


def generated(bundle: TextBundle, sources: Sequence[str], generation: Mapping[str, Any]) -> Said:
    """Generates from every source.

    Args:
        bundle: the model.
        sources: texts.
        generation: the node of the search.
    """
    began = time.perf_counter()
    found = bundle.hypotheses(sources, generation)
    seconds = time.perf_counter() - began
    hypotheses = bundle.tokenizer.decode_target([best[0].ids for best in found])
    return Said(hypotheses, sum(len(best[0].ids) + 1 for best in found), seconds)


def _bins(lengths: list[int] | None, split: Texts) -> list[Any]:
    if lengths is None:
        return []
    from seqattn.analysis.lengths import length_bins  # matplotlib takes a second to import

    return length_bins(split.sources, lengths)


def _of_bin(scorer: Scorer, part: Any, split: Texts, hypotheses: Sequence[str]) -> Config:
    rows = part.rows
    scores = scorer.score(
        [hypotheses[n] for n in rows],
        [split.references[n] for n in rows],
        [split.sources[n] for n in rows],
    )
    return {"words": part.words, "sentences": len(rows), "scores": plain_scores(scores)}
