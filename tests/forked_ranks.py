"""Several ranks on one machine, for tests."""

import os
import socket

import torch


def run_ranks(program, count, *args):
    """Runs `program(rank, port, *args)` in `count` processes, and waits for them.

    A fork has everything imported already; it is not safe once a GPU was used.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    method = "spawn" if torch.cuda.is_available() else "fork"
    torch.multiprocessing.start_processes(
        program, args=(port, *args), nprocs=count, start_method=method
    )


def join(rank, port, world):
    """Makes this process one of `world` ranks, as a launcher would."""
    torch.set_num_threads(1)
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world,
             "GROUP_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
             "TORCHELASTIC_RUN_ID": "test"}  # fmt: skip
    os.environ.update({name: str(value) for name, value in names.items()})
