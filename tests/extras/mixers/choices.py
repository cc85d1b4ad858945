"""The mixers of conf/attention, small."""

from functools import partial

import torch

from seqattn.extras.mixers.base import RecurrentMixer
from seqattn.settings.choices import choices
from seqattn.settings.nodes import TARGET, build, import_path
from tests.builders import DIM, randomised


def is_mixer(node):
    cls = import_path(node[TARGET])
    return isinstance(cls, type) and issubclass(cls, RecurrentMixer)


NAMES = [name for name, node in choices("attention").items() if is_mixer(node)]


def factory(name, **options):
    """The factory of a choice, with the options that it has of those given."""
    made = build(choices("attention")[name])
    return partial(made, **{key: value for key, value in options.items() if key in made.keywords})


def mixer(name, dim=DIM, seed=0, **options):
    """A randomised mixer in eval mode; it scans chunks of 3 tokens unless told otherwise."""
    torch.manual_seed(seed)
    made = factory(name, **{"chunk": 3, **options})(query_dim=dim, memory_dim=dim)
    return randomised(made, seed=seed).eval()
