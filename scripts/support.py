"""Write the table of attention abilities into docs/mechanisms.md or another page.

`python scripts/support.py [PAGE]`; the table is placed between two markers in the page.
"""

import sys
from pathlib import Path

from seqattn.settings.choices import choices
from seqattn.settings.nodes import build

PAGE = Path(__file__).resolve().parents[1] / "docs" / "mechanisms.md"

if __name__ == "__main__":
    sys.path.insert(0, str(PAGE.parents[1]))
    from benchmarks.support import support_table, write_support

    page = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    table = support_table(build(choices("attention")), build(choices("position")))
    print(f"{page} {'changed' if write_support(page, table) else 'unchanged'}", file=sys.stderr)
