"""`python scripts/prepare.py name=value ...`; `--help` lists its settings."""

import sys

from seqattn.cli.main import run_verb

if __name__ == "__main__":
    sys.exit(run_verb("prepare", sys.argv[1:]))
