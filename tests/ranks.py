"""Several ranks on one machine, for tests."""

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
