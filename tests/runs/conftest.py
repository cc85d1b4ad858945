from collections import Counter

import pytest

from seqattn.bundle.files import write_bundle
from seqattn.bundle.loading import load_bundle
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.runs.fitting import TextFitting
from seqattn.tokens import EOS
from tests.builders import randomised
from tests.bundle.conftest import configuration, untrained
from tests.bundle.conftest import corpus as words
from tests.cli.small import write_corpus


@pytest.fixture(autouse=True, scope="module")
def _without_pictures():
    """Drawing is most of so small a run's time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TextFitting, "draw", lambda fitting: None)
        yield


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("runs") / "corpus")


@pytest.fixture(scope="session")
def writers(tmp_path_factory):
    """A folder with bundles `transformer` and `rnn` of one vocabulary, which nobody trained."""
    home = tmp_path_factory.mktemp("writers")
    options = TokenizerConfig(vocab_size=36)
    tokenizer = train_tokenizer(words(), words(), options, home / "vocabulary")
    for name in ("transformer", "rnn"):
        bundle = load_bundle(untrained(home / name, tokenizer, configuration(name)))
        model, weight = randomised(bundle.model, scale=0.5), bundle.model.head.linear.weight.data
        said = Counter(token for (best,) in bundle.hypotheses(words()) for token in best.ids)
        weight[EOS] = 0.6 * weight[said.most_common(1)[0][0]]  # or no text would end
        write_bundle(home / name, bundle.config, model, tokenizer, {})
    return home
