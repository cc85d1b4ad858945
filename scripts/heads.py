"""`python scripts/heads.py name=value ...`; `--help` says what it takes."""

import sys

from seqattn.cli.main import run_verb

if __name__ == "__main__":
    sys.exit(run_verb("heads", sys.argv[1:]))
