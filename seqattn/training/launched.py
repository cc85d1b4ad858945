"""Entry point of one of several processes that train together, started by `launch`.

    python -m seqattn.training.launched LAUNCHER RUN FOLDER

Args: LAUNCHER, the pid of the command; RUN, shown by ps; FOLDER, which holds the settings.
"""

import sys
from pathlib import Path

from seqattn.processes import end_with

if __name__ == "__main__":
    # before slow imports, during which the command may end
    end_with(int(sys.argv[1]))
    from seqattn.training.launch import run_rank

    sys.exit(run_rank(Path(sys.argv[3])))
