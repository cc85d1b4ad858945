"""The `baselines` suite of `benchmark`: what can be had without a model, by the task's scorer."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqattn.cli.build import make
from seqattn.cli.evaluation import plain_scores, score_rows
from seqattn.cli.summary import print_table

if TYPE_CHECKING:
    from seqattn.data.span_batch import Questions
    from seqattn.data.texts import Texts
    from seqattn.metrics.text import TextScore

Config = dict[str, Any]


def baselines_suite(config: Config) -> list[Config]:
    """Scores and prints each; gives the rows."""
    from seqattn.data.span_batch import Questions  # `datasets` takes seconds to import
    from seqattn.data.texts import Texts

    source = make(config["data"])
    cache = Path(config["cache_dir"]) if config["cache_dir"] else None
    split = config["baselines"]["split"]
    table = source.load(split, cache)
    if "context" in table.column_names:
        found = _of_questions(Questions.of(table))
    else:
        found = _of_documents(Texts.of(table), Texts.of(source.load("train", cache)))
    results: list[Config] = []
    for name, scores in found.items():
        print_table(f"{split} by {name}", score_rows(scores))
        results.append({"name": name, "split": split, "scores": plain_scores(scores)})
    return results


def _of_questions(asked: "Questions") -> "dict[str, list[TextScore]]":
    from seqattn.benchmarks.qa_baselines import best_sentences, random_spans
    from seqattn.metrics.qa import QaScorer

    answered = {
        "a random span of the right length": random_spans(asked.contexts, asked.answers),
        "the sentence that shares most words": best_sentences(asked.questions, asked.contexts),
    }
    gold = dict(zip(asked.ids, asked.answers, strict=True))
    return {
        name: QaScorer().score(dict(zip(asked.ids, texts, strict=True)), gold)
        for name, texts in answered.items()
    }


def _of_documents(texts: "Texts", known: "Texts") -> "dict[str, list[TextScore]]":
    from seqattn.benchmarks.summary_baselines import first_sentences, nearest_summaries
    from seqattn.metrics.rouge import RougeScorer

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
