"""One of several processes that train together, as `ranks.launch` starts it.

    python -m seqattn.training.rank LAUNCHER ROOM

Args: LAUNCHER, the pid of the command; ROOM, the folder with the settings.
"""

import sys
from pathlib import Path

from seqattn.processes import end_with

if __name__ == "__main__":
    # before what takes seconds to import: the command may be gone by then
    end_with(int(sys.argv[1]))
    from seqattn.training.ranks import run_rank

    sys.exit(run_rank(Path(sys.argv[2])))
