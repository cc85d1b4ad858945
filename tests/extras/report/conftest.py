"""Tiny bundles of each kind, and a report on two of them."""

import pytest

from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.settings.choices import choices
from tests.bundle.conftest import configuration, corpus, tokenizer, untrained  # noqa: F401
from tests.extras.report.samples import documents, measured, report


@pytest.fixture(scope="session")
def homes(tmp_path_factory, tokenizer):  # noqa: F811
    """RUN of a Transformer, of one with another vocabulary, a recurrent one and one of spans."""
    home = tmp_path_factory.mktemp("report")
    other = train_tokenizer(corpus(), corpus(), TokenizerConfig(vocab_size=30), home / "vocabulary")
    rnn, spans = configuration("rnn"), configuration("span_rnn")
    untrained(home / "mha" / "model", tokenizer, configuration())
    measured(home / "mha")
    mixed = {**configuration(), "encoder_attention": choices("attention")["xca"]}
    untrained(home / "other" / "model", other, mixed)
    untrained(home / "rnn" / "model", tokenizer, rnn)
    untrained(home / "spans" / "model", tokenizer, spans)
    return home


@pytest.fixture(scope="session")
def page(homes):
    """A report on two bundles with different vocabularies."""
    others = [str(homes / "other" / "model")]
    return report(homes / "mha" / "model", homes / "two.html", bundles=others).run()


@pytest.fixture(scope="session")
def shown(page):
    """The documents of that report."""
    return documents(page)
