"""Results and errors that ranks send each other before the first step."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from seqattn.errors import UserError
from seqattn.training.ranks import rank, world_size

if TYPE_CHECKING:  # torch takes seconds to import, and a single process does not need it
    from torch.distributed import Store

_STARTING = 300.0
"""Seconds that ranks may differ in their start."""
_PREPARING = 7200.0
"""Seconds that they may differ in reading data."""
_QUIET = 30.0
"""Seconds before a rank reports that it is waiting."""
_FAREWELL = 10.0
"""Seconds that a failing rank waits for the others to notice."""


class RankMessages:
    """Communication of ranks outside collectives, over torch's store.

    Every rank takes part in all rounds in the same order. An error on one rank ends a round on all,
    and only the first rank to fail reports it.
    """

    def __init__(self) -> None:
        self._rounds = 0
        self._reported: dict[str, bool] = {}  # errors, and whether this rank reports them

    def from_first(self, choose: Callable[[], str], timeout: float = _PREPARING) -> str:
        """Call `choose` on the first rank, and return its result on every rank.

        Args:
            choose: the function.
            timeout: seconds to wait for other ranks.

        Raises:
            UserError: if a rank has failed.
        """
        if world_size() == 1:
            return choose()
        word = choose() if rank() == 0 else ""
        with self._round(_STARTING) as store:
            if rank() == 0:
                store.set("word", word)
            store.add("here", 1)
            began, reported = time.monotonic(), rank() > 0
            while (here := store.add("here", 0)) < world_size():
                waited = time.monotonic() - began
                if store.check(["failure"]):
                    break
                if waited > timeout:
                    raise UserError(
                        "other ranks did not connect within two hours; check their output"
                    )
                if waited > _QUIET and not reported:
                    reported = True
                    print(
                        f"waiting for other ranks ({here}/{world_size()} connected)",
                        file=sys.stderr,
                    )
                time.sleep(0.05)
            text = store.get("failure").decode() if store.check(["failure"]) else None
            store.add("left", 1)
            if text is None:
                return store.get("word").decode()
            self._reported[text] = False
            raise UserError(text)

    def fail(self, text: str) -> bool:
        """Tell the other ranks that this one fails.

        Returns:
            True if this rank must report the error to the user.
        """
        if world_size() == 1 or text in self._reported:
            return self._reported.get(text, True)
        self._reported[text] = True
        try:
            with self._round(_FAREWELL) as store:
                store.compare_set("failure", "", text)
                self._reported[text] = store.add("failed", 1) == 1
                store.add("here", 1)
                store.add("left", 1)
                ends = time.monotonic() + _FAREWELL
                while store.add("left", 0) < world_size() and time.monotonic() < ends:
                    time.sleep(0.05)
        except UserError:
            pass  # there are no other ranks
        return self._reported[text]

    @contextmanager
    def _round(self, patience: float) -> Iterator["Store"]:
        """Yield the part of the store for the next round."""
        from torch.distributed import PrefixStore

        self._rounds += 1
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)
        self._patience = patience
        try:
            yield PrefixStore(f"seqattn/{attempt}/{self._rounds}", self._store)
        except RuntimeError as error:  # connection errors of torch
            first = "rank 0 has exited, or cannot be reached at MASTER_ADDR:MASTER_PORT"
            raise UserError(f"{first} ({str(error).splitlines()[0]})") from error

    @cached_property
    def _store(self) -> "Store":
        """Return the store of the process group: torchrun's, or one on the first rank."""
        from torch.distributed import TCPStore

        if "SLURM_PROCID" in os.environ and "WORLD_SIZE" not in os.environ:
            from lightning.fabric.plugins.environments.slurm import SLURMEnvironment

            # Lightning needs it, and `srun --ntasks` does not set it
            here = world_size() // int(os.environ.get("SLURM_NNODES") or 1)
            os.environ.setdefault("SLURM_NTASKS_PER_NODE", str(here))
            address, port = SLURMEnvironment().main_address, SLURMEnvironment().main_port
        elif {"MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
            address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        else:
            raise UserError(
                "RANK and WORLD_SIZE also need MASTER_ADDR and MASTER_PORT; set them, or start "
                "the ranks with torchrun"
            )
        agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        return TCPStore(
            address, port, is_master=rank() == 0 and not agents, wait_for_workers=False,
            multi_tenant=True, timeout=timedelta(seconds=self._patience),
        )  # fmt: skip


rank_messages = RankMessages()
"""Messages of this process."""
