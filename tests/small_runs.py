"""Small runs, each trained once a session for all tests that leave it as it is."""

from pathlib import Path
from typing import NamedTuple

import pytest

# Imports are those of a test that asks for a run: others begin without them.


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    from tests.cli.small import write_corpus

    return write_corpus(tmp_path_factory.mktemp("cli") / "corpus")


@pytest.fixture(scope="session")
def trained(corpus):
    """A run of four steps; its bundle is RUN/model. Tests leave it as it is."""
    from tests.cli.small import train, train_arguments

    run_dir = corpus.parent / "run"
    train(train_arguments(corpus, f"run_dir={run_dir}"))
    return run_dir


@pytest.fixture(scope="session")
def answering(tmp_path_factory):
    """A run of two steps on questions; its bundle is RUN/model."""
    from tests.cli.small import train, write_questions

    home = tmp_path_factory.mktemp("questions")
    write_questions(home / "squad")
    data = ("task=qa", "data=squad", f"data.root={home}/squad", f"cache_dir={home}/cache")
    length = ("trainer=cpu", "trainer.max_steps=2", "trainer.max_epochs=-1", "model.dim=16")
    train([*data, *length, "schedule.warmup_steps=1", f"run_dir={home}/run"])
    return home / "run"


@pytest.fixture(scope="session")
def scored(trained, corpus):
    """A directory of scores."""
    from seqattn.cli.main import run_subcommand

    assert (
        run_subcommand("evaluate", [f"bundle={trained}/model", f"output={corpus.parent}/scores"])
        == 0
    )
    return corpus.parent / "scores"


class Places(NamedTuple):
    """What commands are given, and the empty folder in which they run."""

    folder: Path
    corpus: Path
    run: Path
    answering: Path
    scored: Path

    def usual(self, subcommand):
        """A subcommand that works, with its arguments; `answer` is `generate` for questions."""
        from tests.cli.small import data_of, train_arguments

        bundle = f"bundle={self.run}/model"
        if subcommand == "answer":
            questions = self.answering.parent / "squad" / "train.json"
            given = [f"bundle={self.answering}/model", f"input={questions}", "output=out"]
            return "generate", given
        return subcommand, {
            "train": train_arguments(self.corpus, "run_dir=run", draws=True),
            "generate": [bundle, f"input={self.corpus}/test.en", "output=out"],
            "evaluate": [bundle, "output=out"],
            "distil": [bundle, "output=out"],
            "backtranslate": [bundle, f"input={self.corpus}/test.de", "output=out"],
            "retrieve": [*data_of(self.corpus), "output=out"],
            "convert": [bundle, "output=out", "heads=mqa", "scores=false"],
            "export": [bundle, "output=out"],
            "analyze": [bundle, "text=a dog", "output=out"],
            "report": [bundle, "output=out.html"],
            "serve": [bundle, "port=0"],
            "walkthrough": [bundle, "output=out.html"],
            "patterns": ["output=out", "attention=mha", "length=4"],
            "heads": [bundle, "output=out", "sentences=4", "points=2"],
            "probe": [bundle, "word=dog", "output=out.json"],
            "explain": [bundle, "sentences=2", "methods=[]", "replaced=[]", "output=out"],
            "compare": [f"runs=[{self.scored}]"],
            "search": train_arguments(self.corpus, "run_dir=out", draws=True),
            "prepare": [
                *data_of(self.corpus),
                "tokenizer.vocab_size=60",
                "workers=1",
                "output=out",
            ],
        }[subcommand]


@pytest.fixture
def places(tmp_path, corpus, trained, answering, scored):
    import datasets  # noqa: F401  so that they are there in every forked command
    import matplotlib.pyplot  # noqa: F401

    folder = tmp_path / "here"
    folder.mkdir()
    return Places(folder, corpus, trained, answering, scored)
