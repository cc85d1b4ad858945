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
from seqattn.training.run_directory import rank, world_size

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


class Rendezvous:
    """Where ranks hear of each other while none of them waits in a collective, over torch's store.

    Every rank comes to all rounds in the same order, with a refusal or without. One refusal ends a
    round for all, and the first rank to refuse is the one that says so.
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
        with self._round(_COMING) as store:
            if rank() == 0:
                store.set("word", word)
            store.add("here", 1)
            began, told = time.monotonic(), rank() > 0
            while (here := store.add("here", 0)) < world_size():
                waited = time.monotonic() - began
                if store.check(["refusal"]):
                    break
                if waited > _PREPARING:
                    raise UserError("other ranks have not come for two hours; see what they said")
                if waited > _PATIENT and not told:
                    told = True
                    print(f"waiting for {world_size() - here} other ranks", file=sys.stderr)
                time.sleep(0.05)
            text = store.get("refusal").decode() if store.check(["refusal"]) else None
            store.add("left", 1)
            if text is None:
                return store.get("word").decode()
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
            with self._round(_FAREWELL) as store:
                store.compare_set("refusal", "", text)
                self._tells[text] = store.add("refusing", 1) == 1
                store.add("here", 1)
                store.add("left", 1)
                ends = time.monotonic() + _FAREWELL
                while store.add("left", 0) < world_size() and time.monotonic() < ends:
                    time.sleep(0.05)
        except UserError:
            pass  # nobody else is there
        return self._tells[text]

    @contextmanager
    def _round(self, patience: float) -> Iterator["Store"]:
        """The next round's own part of the store."""
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


rendezvous = Rendezvous()
"""That of this process."""
