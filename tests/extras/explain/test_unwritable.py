"""Where nothing can be written, nothing is measured."""

import pytest

from seqattn.errors import UserError
from seqattn.extras.explain.explain import Explaining
from seqattn.extras.explain.heads import HeadAnalysis
from seqattn.extras.explain.probe import Probing
from seqattn.generation import GreedySearch

HERE = {"data": None, "bundle": "none"}
WHERE_NOTHING_CAN_BE_WRITTEN = {
    "heads": lambda file: HeadAnalysis(
        **HERE, output=str(file), generation=GreedySearch(), scorer=None
    ),
    "explain": lambda file: Explaining(**HERE, output=str(file), generation=GreedySearch()),
    "probe": lambda file: Probing(**HERE, output=str(file / "a.json"), word="bank"),
    "probe, a folder": lambda file: Probing(**HERE, output=str(file.parent), word="bank"),
}


@pytest.mark.parametrize("command", WHERE_NOTHING_CAN_BE_WRITTEN)
def test_where_nothing_can_be_written_nothing_is_measured(command, tmp_path):
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    with pytest.raises(UserError, match=r"cannot write .*file|output must be a file such as"):
        WHERE_NOTHING_CAN_BE_WRITTEN[command](file).run()
