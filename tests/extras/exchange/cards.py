"""Pages of exports, and a bundle that they must begin texts for."""

import re

import seqattn
from seqattn.bundle.files import write_bundle
from seqattn.data.foreign_models import ForeignModel
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.tokenizer_side import Begin
from seqattn.tokens import RESERVED


def program(directory, text):
    """The program of the page, for a text."""
    page = (directory / "README.md").read_text(encoding="utf-8")
    code = re.search("```python\n(.*)```", page, re.DOTALL)[1]
    return code.replace('"DIR', f'"{directory}').replace('"TEXT"', repr(text))


def write_beginning(bundle, directory):
    """Write a bundle whose texts begin with marks; return those of sources and of targets."""
    plain, old = seqattn.load(bundle), bundle / "joint.model"
    *names, target, source = plain.tokenizer.source_vocabulary()[RESERVED:]
    model = ForeignModel.read(old.read_bytes(), old).adopted(
        [*names, target, source], [target, source]
    )
    tokenizer = Tokenizer(model, model, joint=True, begin=Begin((source,), (target,)))
    write_bundle(directory, plain.config, plain.model, tokenizer, {})
    return source, target
