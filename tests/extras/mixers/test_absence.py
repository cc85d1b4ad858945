"""What is left where the mixers are not installed."""

from tests.absent import printed_without
from tests.extras.test_deletion import PROGRAM

EXTRA = "seqattn.extras.mixers"


def test_their_choices_say_what_is_missing_and_no_message_offers_them():
    words = [["attention=ssru"], ["attention=[mha,ssru]"], ["attention=bahdanau"]]
    program = PROGRAM.format(commands=[("train", each) for each in words])
    program = program.replace("import json\n", "import json, sys\nsys.stderr = sys.stdout\n")
    one, listed, offered, codes = printed_without([EXTRA], program).splitlines()
    missing = f"_target_={EXTRA}.ssru.SSRU needs {EXTRA}, which is not installed"
    assert one == f"error: attention.{missing}"
    assert listed == f"error: attention[1].{missing}"
    assert "choose from bigbird, entmax" in offered
    assert "ssru" not in offered
    assert codes == "[2, 2, 2]"
