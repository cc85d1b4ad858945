"""What processes that train together agree on before the first step."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from seqattn.errors import UserError
from seqattn.runs.run_directory import rank, world_size

if TYPE_CHECKING:  # torch takes seconds to import, and a single process needs none of this
    from torch.distributed import Store

_COMING = 300.0
"""Seconds that a rank may start later than another."""
_PREPARING = 7200.0
"""Seconds that it may take longer to read its data."""
_PATIENT = 30.0
"""Seconds after which it says that it waits."""
_FAREWELL = 10.0
"""Seconds that a rank that refuses waits for the others to hear of it."""


class Meetings:
    """Where ranks hear of each other while none of them waits in a collective, over torch's store.

    Every rank attends all meetings in the same order, with a refusal or without. One refusal ends a
    meeting for all, and the first rank to refuse is the one that says so.
    """

    def __init__(self) -> None:
        self._held = 0
        self._tells: dict[str, bool] = {}  # refusals, and whether this rank is to tell of them

    def agreed(self, choose: Callable[[], str]) -> str:
        """What the first rank chooses, on every rank; the others choose nothing.

        Raises:
            UserError: where any rank has refused.
        """
        if world_size() == 1:
            return choose()
        word = choose() if rank() == 0 else ""
        with self._meeting(_COMING) as meeting:
            if rank() == 0:
                meeting.set("word", word)
            meeting.add("here", 1)
            began, told = time.monotonic(), rank() > 0
            while (here := meeting.add("here", 0)) < world_size():
                waited = time.monotonic() - began
                if meeting.check(["refusal"]):
                    break
                if waited > _PREPARING:
                    raise UserError("other ranks have not come for two hours; see what they said")
                if waited > _PATIENT and not told:
                    told = True
                    print(f"waiting for {world_size() - here} other ranks", file=sys.stderr)
                time.sleep(0.05)
            text = meeting.get("refusal").decode() if meeting.check(["refusal"]) else None
            meeting.add("left", 1)
            if text is None:
                return meeting.get("word").decode()
            self._tells[text] = False
            raise UserError(text)

    def refuse(self, text: str) -> bool:
        """Lets the other ranks know that this one ends.

        Returns:
            Whether it is this rank that tells the user.
        """
        if world_size() == 1 or text in self._tells:
            return self._tells.get(text, True)
        self._tells[text] = True
        try:
            with self._meeting(_FAREWELL) as meeting:
                meeting.compare_set("refusal", "", text)
                self._tells[text] = meeting.add("refusing", 1) == 1
                meeting.add("here", 1)
                meeting.add("left", 1)
                ends = time.monotonic() + _FAREWELL
                while meeting.add("left", 0) < world_size() and time.monotonic() < ends:
                    time.sleep(0.05)
        except UserError:
            pass  # nobody else is there
        return self._tells[text]

    @contextmanager
    def _meeting(self, patience: float) -> Iterator["Store"]:
        """The next meeting's own part of the store."""
        from torch.distributed import PrefixStore

        self._held += 1
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)
        self._patience = patience
        try:
            yield PrefixStore(f"seqattn/{attempt}/{self._held}", self._store)
        except RuntimeError as error:  # torch's errors of connections
            first = "the first rank has ended, or cannot be reached at MASTER_ADDR:MASTER_PORT"
            raise UserError(f"{first} ({str(error).splitlines()[0]})") from error

    @cached_property
    def _store(self) -> "Store":
        """The store that the process group will use, too: of torchrun's, or the first rank's."""
        from torch.distributed import TCPStore

        if "SLURM_PROCID" in os.environ and "WORLD_SIZE" not in os.environ:
            from lightning.fabric.plugins.environments.slurm import SLURMEnvironment

            # which Lightning asks for, and `srun --ntasks` leaves out
            here = world_size() // int(os.environ.get("SLURM_NNODES") or 1)
            os.environ.setdefault("SLURM_NTASKS_PER_NODE", str(here))
            address, port = SLURMEnvironment().main_address, SLURMEnvironment().main_port
        elif {"MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
            address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        else:
            raise UserError("ranks need MASTER_ADDR and MASTER_PORT beside RANK and WORLD_SIZE")
        agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        return TCPStore(
            address, port, is_master=rank() == 0 and not agents, wait_for_workers=False,
            multi_tenant=True, timeout=timedelta(seconds=self._patience),
        )  # fmt: skip


meetings = Meetings()
"""Those of this process."""
