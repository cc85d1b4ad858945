"""Tiny bundles of each kind, and a report on two of them."""

import shutil

import pytest

from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.settings.choices import choices
from tests.absent import of_extra
from tests.bundle.conftest import configuration, corpus, tokenizer, untrained  # noqa: F401
from tests.extras.report.samples import calibrated, documents, measured, report


@pytest.fixture(scope="session")
def homes(tmp_path_factory, tokenizer):  # noqa: F811
    """RUN of a Transformer, of one with another vocabulary, and of a recurrent one."""
    home = tmp_path_factory.mktemp("report")
    other = train_tokenizer(corpus(), corpus(), TokenizerConfig(vocab_size=30), home / "vocabulary")
    rnn = configuration("rnn")
    untrained(home / "mha" / "model", tokenizer, configuration())
    measured(home / "mha")
    mixed = {**configuration(), "encoder_attention": choices("attention")["xca"]}
    untrained(home / "other" / "model", other, mixed)
    untrained(home / "rnn" / "model", tokenizer, rnn)
    return home


@pytest.fixture(scope="session")
def answering(homes, tokenizer):  # noqa: F811
    """A bundle that answers with spans."""
    of_extra("answers")
    return untrained(homes / "spans" / "model", tokenizer, configuration("span_rnn"))


@pytest.fixture(scope="session")
def judged(homes):
    """A report whose outputs are judged, with every word marked."""
    quality = of_extra("quality.quality").Quality()
    shutil.copytree(homes / "mha", homes / "calibrated")
    calibrated(homes / "calibrated" / "model")
    return report(homes / "calibrated" / "model", homes / "judged.html", quality=quality).run()


@pytest.fixture(scope="session")
def page(homes):
    """A report on two bundles with different vocabularies."""
    others = [str(homes / "other" / "model")]
    return report(homes / "mha" / "model", homes / "two.html", bundles=others).run()


@pytest.fixture(scope="session")
def shown(page):
    """The documents of that report."""
    return documents(page)
