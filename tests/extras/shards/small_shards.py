"""Six hundred pairs, no two alike, and what `prepare` makes of them."""

import numpy as np

from seqattn.data.sources import ParallelText
from seqattn.data.vocabulary import TokenizerConfig
from seqattn.extras.shards.cleaning import Cleaning
from seqattn.settings.nodes import build_subcommand
from tests.data.source_helpers import write_text
from tests.nodes import node, node_of

CONFIG = TokenizerConfig(kind="bpe", vocab_size=60)
WORDS = ("sun", "moon", "sees", "the", "red", "a", "stone", "falls", "not", "tree")


def _pairs():
    chance = np.random.default_rng(2)
    for number in range(600):
        words = chance.choice(WORDS, 1 + number % 11).tolist()
        yield " ".join([*words, str(number)]), " ".join([str(number), *words[::-1]])


PAIRS = list(_pairs())


def preparation(folder, pairs=PAIRS, **changes):
    """Of two files of lines in a folder into `folder/shards`, 67 pairs to a shard."""
    write_text(folder / "text", "train", pairs)
    write_text(folder / "text", "val", PAIRS[::20])
    return again(folder, **changes)


def again(folder, **changes):
    """The preparation of a folder whose texts stay as they are."""
    own = {"shard_pairs": 67, "workers": 1, "tokenizer": CONFIG, "cache_dir": str(folder / "c")}
    own |= {
        "clean": Cleaning(),
        "seed": 1,
        "data": node_of(ParallelText, str(folder / "text"), "en", "de"),
        "output": str(folder / "shards"),
    }
    return build_subcommand("seqattn.extras.shards.prepare.Preparation", node({**own, **changes}))


def prepare(folder, pairs=PAIRS, **changes):
    """The same, made."""
    made = preparation(folder, pairs, **changes)
    made.run()
    return made
