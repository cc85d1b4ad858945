from collections import Counter

import pytest

from seqattn.bundle.files import write_bundle
from seqattn.bundle.load import load_bundle
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.tokens import EOS
from tests.builders import randomised
from tests.bundle.conftest import configuration, untrained
from tests.bundle.conftest import corpus as words


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
