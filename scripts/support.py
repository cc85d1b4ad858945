"""Makes the README's table of what each attention can do anew, from what the attentions declare."""

import sys
from pathlib import Path

from seqattn.cli.support import write_support

README = Path(__file__).resolve().parents[1] / "README.md"

if __name__ == "__main__":
    print("README.md changed" if write_support(README) else "README.md stands", file=sys.stderr)
