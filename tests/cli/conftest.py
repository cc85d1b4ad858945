"""One small bundle, trained once for each file of tests."""

import pytest

from seqattn.cli.train import train
from tests.cli.small import train_arguments, write_corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("cli") / "corpus")


@pytest.fixture(scope="session")
def trained(corpus):
    """A run of four steps; its bundle is RUN/model. Tests leave it as it is."""
    run_dir = corpus.parent / "run"
    train(train_arguments(corpus, f"run_dir={run_dir}"))
    return run_dir
