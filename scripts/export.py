"""`python scripts/export.py name=value ...`; `--help` says what it takes."""

import sys

from seqattn.cli.main import run_verb

if __name__ == "__main__":
    sys.exit(run_verb("export", sys.argv[1:]))
