"""Bundles that nobody trained, sentences for them, and what a page holds."""

import base64
import gzip
import json
import re

import datasets
import numpy as np

import seqattn
from seqattn.bundle.files import store
from seqattn.data.base import Source
from seqattn.extras.report.report import Report
from seqattn.generation import BeamSearch, LengthLimit
from seqattn.metrics.text import TextScorer
from tests.absent import of_extra

NASTY = "a </script><!-- <b>dog</b> sees the cat"
SOURCES = ["a dog sees the cat", NASTY, "two birds hears some bread by the tree", ""]
TARGETS = ["the cat hears", "an old house", "some bread", "a dog"]


class Pairs(Source):
    """A few pairs in memory."""

    def __init__(self, count=4):
        self.count = count

    def load(self, split, cache_dir=None):
        columns = {"source": SOURCES[: self.count], "target": TARGETS[: self.count]}
        return datasets.Dataset.from_dict(columns)


class Asked(Source):
    """Three questions in memory, the last without an answer."""

    yields = "questions"

    def load(self, split, cache_dir=None):
        contexts = ["a dog sees the cat by the tree", f"{NASTY} and an old house", "two birds"]
        columns = {
            "id": ["1", "2", "3"],
            "question": ["a dog", "the cat </script>", "some bread"],
            "context": contexts,
            "answers": [["the cat"], ["an old house"], []],
            "starts": [[11], [46], []],
        }
        return datasets.Dataset.from_dict(columns)


def report(bundle, output, **settings):
    """A report on `Pairs`."""
    given = {
        "data": Pairs(),
        "generation": BeamSearch(LengthLimit(extra=3), beam_size=3),
        "scorer": TextScorer(),
        **settings,
    }
    return Report(bundle=str(bundle), output=str(output), **given)


def measured(run):
    """Writes what a logger wrote of a run: losses, the attention of two layers, a final score."""
    names = [f"attention/decoder.layers.{layer}.cross_attention/uniform_heads" for layer in (0, 1)]
    names += ["attention/encoder.layers.0.self_attention/dead_heads", "final/val/bleu"]
    rows = [
        ("step", "train/loss", "val/loss", *names),
        (9, 3.5, 4, 0.2, 0.4, 0, ""),
        (99, 2, 3, 0.1, 0, 0, ""),
        (100, "", "", "", "", "", 7.5),
    ]
    folder = run / "csv" / "version_0"
    folder.mkdir(parents=True)
    text = "".join(",".join(map(str, row)) + "\n" for row in rows)
    (folder / "metrics.csv").write_text(text)


def documents(path):
    """The documents of a page: the run's, and the sentences'."""
    text = path.read_text(encoding="utf-8")
    run = json.loads(re.search(r'id="run">(.*?)</script>', text, re.DOTALL)[1])
    found = re.findall(r'id="sentence-\d+">(.*?)</script>', text, re.DOTALL)
    return run, [json.loads(gzip.decompress(base64.b64decode(one))) for one in found]


def unpacked(document):
    """The numbers of an array's document."""
    whole = np.frombuffer(base64.b64decode(document["data"]), "<u2").reshape(document["shape"])
    return document["low"] + document["step"] * whole.astype(np.float64)


def calibrated(path):
    """Stores in a bundle a calibration that marks every word."""
    bundle = seqattn.load(path)
    numbers = {"score": "chrF", "bias": 0.5, "signals": {"log_probability": [-2.0, 1.0, 0.5]}}
    store(path, bundle.config, calibration={**numbers, "support": 1e9, "use": 1e9})


def of_questions():
    """Settings of a report on `Asked`."""
    search = of_extra("answers.span_search").SpanSearch(max_answer=3)
    return {
        "data": Asked(),
        "generation": search,
        "scorer": of_extra("answers.scorers").QaScorer(),
    }
