"""The support table says what attentions declare, and stands between its marks."""

from functools import partial
from typing import ClassVar

import pytest

from benchmarks.support import BEGIN, END, support_table, write_support
from seqattn.attention.alignment import Bahdanau
from seqattn.attention.heads import MultiHeadAttention
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.attention.kernels.xca import XCAKernel
from seqattn.errors import UserError
from seqattn.positions import ALiBiPosition, Position, RotaryPosition, SinusoidalPosition


class Declared(SoftmaxKernel):
    exceptions: ClassVar = {"compile": "it branches"}


ATTENTIONS = {
    name: partial(MultiHeadAttention, num_heads=4, num_kv_heads=4, kernel=kernel)
    for name, kernel in (("mha", SoftmaxKernel), ("xca", XCAKernel), ("odd", Declared))
}
POSITIONS = {
    "none": Position,
    "sinusoidal": SinusoidalPosition,
    "rope": RotaryPosition,
    "alibi": ALiBiPosition,
}


def test_a_row_says_slots_positions_weights_dropout_and_exceptions():
    lines = support_table({**ATTENTIONS, "bahdanau": Bahdanau}, POSITIONS).splitlines()
    assert lines[2:6] == [
        "| `mha` | ✓ | ✓ | ✓ | all | ✓ | ✓ | all |",
        "| `xca` | ✓ |  |  | `none` `sinusoidal` |  |  | all |",
        "| `odd` | ✓ | ✓ | ✓ | all | ✓ | ✓ | all but compile (it branches) |",
        "",
    ]


def test_few_refused_positions_are_named_as_exceptions():
    positions = {name: POSITIONS[name] for name in ("none", "sinusoidal", "alibi")}
    lines = support_table(ATTENTIONS, positions).splitlines()
    assert "| all but `alibi` |" in lines[3]


def test_the_table_replaces_what_stands_between_the_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}old\n{END}\nafter\n")
    assert write_support(page, "new\n")
    assert page.read_text() == f"before\n{BEGIN}new\n{END}\nafter\n"
    assert not write_support(page, "new\n")


def test_a_page_without_the_marks_is_refused(tmp_path):
    (tmp_path / "page.md").write_text("nothing")
    for name in ("page.md", "none.md"):
        with pytest.raises(UserError, match=f"{name} is missing <!-- support"):
            write_support(tmp_path / name, "new")
