"""`evaluate`: a bundle's scores on a split."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from seqattn.cli.build import make
from seqattn.cli.bundle import load_bundle
from seqattn.cli.carried import compose_with_bundle
from seqattn.cli.config import plain
from seqattn.cli.kinds import check_kinds
from seqattn.cli.summary import print_table
from seqattn.errors import UserError
from seqattn.metrics.text import TextScorer
from seqattn.training.memory import keep_freed_memory


def evaluate(overrides: Sequence[str]) -> None:
    """Runs the verb on the user's overrides."""
    nodes = {"data": "data", "generation": "generation", "scorer": "task.scorer"}
    config, _ = compose_with_bundle("evaluate", overrides, nodes)
    settled = plain(config)
    check_kinds(settled)
    split = settled["split"]
    scorer = TextScorer(settled["scorer"]["tokenize"], settled["scorer"]["lowercase"])
    source = make(settled["data"])
    texts = source.load(split, None if not settled["cache_dir"] else Path(settled["cache_dir"]))
    if "target" not in texts.column_names:
        raise UserError(f"the {split} split has no references to score against")
    sources, references = list(texts["source"]), list(texts["target"])
    keep_freed_memory()
    bundle = load_bundle(settled["bundle"], settled["device"])
    generator = bundle.generator(settled["generation"])
    encoded = bundle.encode(sources)
    began = time.perf_counter()
    found = generator.generate(encoded)
    seconds = time.perf_counter() - began
    hypotheses = bundle.tokenizer.decode_target([best[0].ids for best in found])
    tokens = sum(len(best[0].ids) + 1 for best in found)
    scores = scorer.score(hypotheses, references)
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
