"""Without this extra its choices name it, in one line."""

import json

from tests.absent import printed_without

PROGRAM = """
import json, sys
sys.stderr = sys.stdout
from seqattn.cli.main import run_subcommand

print(json.dumps([run_subcommand("train", [word]) for word in ("task=qa", "task=qa_generative")]))
"""


def test_a_task_of_questions_says_what_is_missing():
    *told, codes = printed_without(["seqattn.extras.answers"], PROGRAM).splitlines()
    assert codes == json.dumps([2, 2])
    assert len(told) == 2
    assert all("needs seqattn.extras.answers, which is not installed" in line for line in told)
