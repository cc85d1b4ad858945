"""Write the table of attention abilities into a page: docs/mechanisms.md, or an argument's.

`python scripts/support.py [PAGE]`; the page has two marks, and the table is placed between them.
"""

import sys
from pathlib import Path

from seqattn.bundle.choices import choices
from seqattn.bundle.nodes import build

PAGE = Path(__file__).resolve().parents[1] / "docs" / "mechanisms.md"

if __name__ == "__main__":
    sys.path.insert(0, str(PAGE.parents[1]))
    from benchmarks.support import support_table, write_support

    page = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    table = support_table(build(choices("attention")), build(choices("position")))
    print(f"{page} {'changed' if write_support(page, table) else 'stands'}", file=sys.stderr)
