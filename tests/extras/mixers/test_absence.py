"""What is left where the mixers are not installed."""

from tests.absent import printed_without
from tests.extras.test_deletion import PROGRAM


def test_no_message_offers_their_choices():
    program = PROGRAM.format(commands=[("train", ["attention=bahdanau"])])
    program = program.replace("import json\n", "import json, sys\nsys.stderr = sys.stdout\n")
    offered, codes = printed_without(["seqattn.extras.mixers"], program).splitlines()
    assert "choose from additive, bigbird" in offered
    assert "ssru" not in offered
    assert codes == "[2]"
