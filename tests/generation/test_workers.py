"""Processes that share out the batches of a search: what they find, and how they end."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path

import pytest
import torch

from seqattn.errors import UserError
from seqattn.generation import BeamSearch, Generator, GreedySearch, LengthLimit, Sampling, workers
from seqattn.generation.processors import NoRepeatNgram
from tests.builders import POSITIONS, make_transformer
from tests.models.recurrents import make_recurrent

SOURCES = [[4 + n % 7, *[5 + n % 3] * (n % 5), 3] for n in range(9)] + [[]]
LIMIT = LengthLimit(ratio=1.0, extra=5)
SEARCHES = {
    "greedy": GreedySearch(LIMIT, processors=[NoRepeatNgram(2)]),
    "beam": BeamSearch(LIMIT, 3, 2, processors={"trigrams": NoRepeatNgram(3)}),
    "sampling": Sampling(LIMIT, n_best=2, seed=3),
}
searches = pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)


@pytest.fixture(autouse=True)
def one_thread():
    """As workers have, so that sums are in the same order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    assert active_children() == []


def model_of(search):
    if isinstance(search, GreedySearch):
        return make_recurrent("bahdanau", copy=True)
    return make_transformer(position=POSITIONS["rope"])


class Dying(GreedySearch):
    """Whose process is killed at its second batch, as one without memory."""

    def search(self, model, memory, numbers):
        if 1 in numbers:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().search(model, memory, numbers)


class Full(GreedySearch):
    """With what PyTorch says where the memory runs out, of the longest sources."""

    def search(self, model, memory, numbers):
        if memory.ids.shape[1] < 6:
            return super().search(model, memory, numbers)
        raise RuntimeError("alloc_cpu.cpp:128] . DefaultCPUAllocator: can't allocate memory")


@searches
@pytest.mark.parametrize("batches", [{"batch_size": 2}, {"batch_tokens": 9}])
def test_workers_change_no_hypothesis_to_the_bit(search, batches):
    model = model_of(search)
    alone = Generator(model, replace(search, **batches, workers=1)).generate(SOURCES)
    for count in (2, 3, 9):
        assert (
            Generator(model, replace(search, **batches, workers=count)).generate(SOURCES) == alone
        )
    few = Generator(model, replace(search, batch_size=1, workers=3))
    one_by_one = Generator(model, replace(search, batch_size=1, workers=1))
    assert few.generate(SOURCES[:2], [7, 8]) == one_by_one.generate(SOURCES[:2], [7, 8])


def test_workers_that_are_spawned_find_the_same(monkeypatch):
    model, search = make_transformer(), SEARCHES["beam"]
    alone = Generator(model, replace(search, batch_size=4, workers=1)).generate(SOURCES)
    monkeypatch.setattr(workers, "START", "spawn")
    assert Generator(model, replace(search, batch_size=4, workers=2)).generate(SOURCES) == alone


@searches
def test_workers_change_no_hypothesis_of_windows(search):
    model, windows = model_of(search), [SOURCES[:3], SOURCES[3:4], SOURCES[4:9]]
    alone, shared = (
        Generator(model, replace(search, batch_size=2, workers=count)) for count in (1, 2)
    )
    told = []
    found = shared.generate_windows(windows, [5, 6, 9], lambda *at: told.append(at))
    assert found == alone.generate_windows(windows, [5, 6, 9])
    places = [(done, total) for done, total, _ in told]
    assert places == sorted(places)
    assert places[-1] == (3, 3)
    assert len(told) == 5


def test_open_workers_serve_one_call_after_another_and_leave_the_model_as_it_was():
    model = make_transformer(dropout=0.5).train()
    alone = Generator(model, replace(SEARCHES["sampling"], batch_size=2, workers=1))
    with Generator(
        model, replace(SEARCHES["sampling"], batch_size=2, workers=2)
    ).open() as generator:
        assert generator.generate(SOURCES[:1]) == alone.generate(SOURCES[:1])
        assert active_children() == []  # a single batch needs none
        for part in (SOURCES, SOURCES[3:], SOURCES[:5]):
            assert generator.generate(part) == alone.generate(part)
        assert len(active_children()) == 2
    assert model.training


def test_processes_are_started_where_there_are_several_batches_and_threads(monkeypatch):
    started = []

    class Counted(workers.Workers):
        def __init__(self, count, ready):
            started.append(count)
            super().__init__(count, ready)

    monkeypatch.setattr("seqattn.generation.generator.Workers", Counted)
    generator = Generator(make_transformer(), GreedySearch(LIMIT, batch_size=4))
    generator.generate(SOURCES)
    assert started == []  # torch has one thread
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    generator.generate(SOURCES[:4])
    generator.generate(SOURCES[:1])
    generator.generate([])
    assert started == []
    generator.generate(SOURCES)
    assert started == [2]
    thread = threading.Thread(target=generator.generate, args=(SOURCES,))
    thread.start()
    thread.join()
    assert started == [2]
    Generator(generator.model, replace(generator.search, batch_size=4, workers=7)).generate(SOURCES)
    assert started == [2, 3]


def test_a_worker_that_dies_is_told():
    generator = Generator(make_transformer(), Dying(LIMIT, batch_size=1, workers=2))
    with pytest.raises(
        UserError, match=r"a worker process died.*; set generation.workers=1, or a lower"
    ):
        generator.generate(SOURCES)


@pytest.mark.parametrize("count", [1, 2])
def test_memory_that_runs_out_is_told_with_what_to_do(count):
    generator = Generator(make_transformer(), Full(LIMIT, batch_size=4, workers=count))
    with pytest.raises(UserError) as caught:
        generator.generate(SOURCES)
    assert str(caught.value) == (
        "out of memory for a batch of 4 sources of up to 6 tokens; set "
        "generation.batch_size=2, or lower generation.workers"
    )
    with pytest.raises(UserError, match="out of memory for a source of 6 tokens"):
        generator.generate([[4, 4, 4, 4, 4, 3]])


def test_what_a_search_refuses_is_refused_in_the_same_words():
    model, search = make_transformer(), BeamSearch(LIMIT, coverage_penalty=1.0)
    model.has_weights = False
    for count in (1, 2):
        with pytest.raises(UserError, match="coverage_penalty needs attention weights"):
            Generator(model, replace(search, batch_size=4, workers=count)).generate(SOURCES)


def test_workers_are_refused_off_the_cpu():
    model = make_transformer().to("meta")
    with pytest.raises(UserError) as caught:
        Generator(model, GreedySearch(batch_size=2, workers=2)).generate(SOURCES)
    assert str(caught.value) == "generation.workers needs device=cpu, got meta; remove it"


PARENT = """
import os, signal, sys, time
from seqattn.generation import Generator, GreedySearch
from tests.builders import make_transformer
class Slow(GreedySearch):
    def search(self, model, memory, numbers):
        os.write(1, f"{os.getpid()}\\n".encode())
        time.sleep(60)
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background ignores
try:
    Generator(make_transformer(), Slow(batch_size=1, workers=2)).generate([[4, 3], [5, 3]])
except KeyboardInterrupt:
    print("stopped", flush=True)
"""


@pytest.mark.parametrize("ended", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_at_once_with_the_process_that_started_them(ended):
    root = Path(__file__).parents[2]
    own = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    numbers = {int(parent.stdout.readline()) for _ in range(2)}
    assert len(numbers) == 2
    parent.send_signal(ended)
    out, err = parent.communicate(timeout=20)
    assert (out, err) == ("stopped\n" if ended == signal.SIGINT else "", "")
    waited = time.monotonic() + 20
    while any(Path(f"/proc/{number}").is_dir() for number in numbers):
        assert time.monotonic() < waited
        time.sleep(0.05)
