"""What is left where the mixers are not installed."""

import pytest

from tests.absent import printed_without
from tests.extras.test_deletion import PROGRAM

EXTRA = "seqattn.extras.mixers"


@pytest.mark.slow
def test_their_choices_say_what_is_missing_and_no_message_offers_them():
    words = [["attention=ssru"], ["attention=bahdanau"]]
    program = PROGRAM.format(commands=[("train", each) for each in words])
    program = program.replace("import json\n", "import json, sys\nsys.stderr = sys.stdout\n")
    refused, offered, codes = printed_without([EXTRA], program).splitlines()
    assert refused == (
        f"error: attention._target_={EXTRA}.ssru.SSRU needs {EXTRA}, which is not installed"
    )
    assert "choose from additive, bigbird" in offered
    assert "ssru" not in offered
    assert codes == "[2, 2]"
