"""`evaluate` for question answering by spans."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqattn.cli.build import make
from seqattn.cli.bundle import SpanBundle, load_bundle
from seqattn.cli.evaluation import output_directory, plain_scores, score_rows, write_json
from seqattn.cli.spans import best_texts, scored
from seqattn.cli.summary import print_table
from seqattn.data.span_batch import Questions
from seqattn.metrics.qa_files import write_predictions
from seqattn.training.memory import keep_freed_memory


def evaluate_spans(settled: Mapping[str, Any]) -> None:
    """Answers a split and scores what came.

    Writes `predictions.json` as the official scorer reads it, `no_answer.json` with the
    probabilities of no answer, and `answers.jsonl` with every answer that was asked for.
    """
    cache_dir = settled["cache_dir"]
    rows = make(settled["data"]).load(settled["split"], Path(cache_dir) if cache_dir else None)
    asked = Questions.of(rows)
    keep_freed_memory()
    bundle = load_bundle(settled["bundle"], settled["device"])
    assert isinstance(bundle, SpanBundle)
    began = time.perf_counter()
    found = bundle.answer(asked.questions, asked.contexts, settled["generation"])
    seconds = time.perf_counter() - began
    scores = scored(make(settled["scorer"]), asked, found)
    output = output_directory(settled)
    write_predictions(output / "predictions.json", best_texts(asked, found))
    none = {name: answered.no_answer for name, answered in zip(asked.ids, found, strict=True)}
    write_predictions(output / "no_answer.json", none)
    with (output / "answers.jsonl").open("w", encoding="utf-8") as file:
        for name, answered in zip(asked.ids, found, strict=True):
            row = {"id": name, "answers": [answer._asdict() for answer in answered.answers]}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    results = {
        "bundle": str(settled["bundle"]),
        "split": settled["split"],
        "questions": len(asked.ids),
        "scores": plain_scores(scores),
        "questions_per_second": len(asked.ids) / seconds,
        "generation": settled["generation"],
    }
    write_json(output / "scores.json", results)
    table = score_rows(scores)
    table["questions"] = f"{len(asked.ids):,} ({len(asked.ids) / seconds:,.1f} a second)"
    unanswered = sum(not answered.answers for answered in found)
    table["left unanswered"] = f"{unanswered:,}"
    table["written to"] = str(output)
    print_table(f"{settled['split']} of {settled['bundle']}", table)
