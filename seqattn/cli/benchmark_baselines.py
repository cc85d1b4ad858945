"""The `baselines` suite of `benchmark`: what can be had without a model, by the task's scorer."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqattn.cli.build import make
from seqattn.cli.evaluation import plain_scores, score_rows
from seqattn.cli.summary import print_table

if TYPE_CHECKING:
    from datasets import Dataset

    from seqattn.metrics.text import TextScore

Config = dict[str, Any]


def baselines_suite(config: Config) -> list[Config]:
    """Scores and prints each; gives the rows."""
    source = make(config["data"])
    cache_dir = config["cache_dir"]
    cache = Path(cache_dir) if cache_dir else None
    split = config["baselines"]["split"]
    table = source.load(split, cache)
    if "context" in table.column_names:
        found = _of_questions(table)
    else:
        found = _of_documents(table, source.load("train", cache))
    results: list[Config] = []
    for name, scores in found.items():
        print_table(f"{split} by {name}", score_rows(scores))
        results.append({"name": name, "split": split, "scores": plain_scores(scores)})
    return results


def _of_questions(table: "Dataset") -> "dict[str, list[TextScore]]":
    from seqattn.benchmarks.qa_baselines import best_sentences, random_spans
    from seqattn.metrics.qa import QaScorer

    ids, answers, contexts = list(table["id"]), list(table["answers"]), list(table["context"])
    answered = {
        "a random span of the right length": random_spans(contexts, answers),
        "the sentence that shares most words": best_sentences(list(table["question"]), contexts),
    }
    gold = dict(zip(ids, answers, strict=True))
    return {
        name: QaScorer().score(dict(zip(ids, texts, strict=True)), gold)
        for name, texts in answered.items()
    }


def _of_documents(table: "Dataset", train: "Dataset") -> "dict[str, list[TextScore]]":
    from seqattn.benchmarks.summary_baselines import first_sentences, nearest_summaries
    from seqattn.data.texts import Texts
    from seqattn.metrics.rouge import RougeScorer

    texts, known = Texts.of(table), Texts.of(train)
    said = {
        "the first sentence": first_sentences(texts.sources),
        "the summary of the most similar training document": nearest_summaries(
            texts.sources, known.sources, known.targets
        ),
    }
    return {
        name: RougeScorer().score(summaries, texts.references, texts.sources)
        for name, summaries in said.items()
    }
