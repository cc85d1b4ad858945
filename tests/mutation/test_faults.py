"""The list of seeded faults keeps step with the code."""

from pathlib import Path

import seqattn
from tests.mutation.faults import FAULTS

TESTS = Path(__file__).parents[1]


def test_every_fault_finds_its_text_once_and_its_tests():
    home = Path(seqattn.__file__).parent
    texts = {str(path): path.read_text(encoding="utf-8") for path in home.rglob("*.py")}
    for fault in FAULTS:
        places = sum(text.count(fault.old) for path, text in texts.items() if fault.file in path)
        assert places == 1, f"{fault.id}: {fault.old!r} stands {places} times"
        assert all((TESTS / name).exists() for name in fault.tests), fault.id
