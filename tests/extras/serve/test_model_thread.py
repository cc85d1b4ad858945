"""The one thread: what goes together, in which order, and what becomes of what fails."""

import threading
import time
import weakref
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from starlette.exceptions import HTTPException

from seqattn.extras.serve.limits import Limits
from seqattn.extras.serve.model_thread import Alone, ModelThread, Shared
from seqattn.extras.serve.searches import Gone


class Recorded:
    """A reader whose search notes its batches and waits for a word before the first one."""

    def __init__(self):
        self.batches, self.started, self.go = [], threading.Event(), threading.Event()
        self.metrics = SimpleNamespace(batches=Mock())

    def search(self, search, items, left):
        self.started.set()
        assert self.go.wait(10)
        self.batches.append((search, items))
        if "bad" in items:
            raise ValueError("bad")
        return [f"{search} {item}" for item in items]


@pytest.fixture
def search():
    return Recorded()


@pytest.fixture
def thread(search):
    made = ModelThread(Limits(queue=6, batch_tokens=10, batch_wait=0))
    yield made
    search.go.set()
    made.close()


def held(thread, search):
    """Keeps the thread at work, so that what comes next waits."""
    first = Shared("first", "0", 1)
    thread.submit([first], search)
    assert search.started.wait(10)
    return first


def found(jobs):
    return [job.done.result(timeout=10) for job in jobs]


def test_what_waits_with_an_equal_search_goes_together_within_its_tokens(thread, search):
    held(thread, search)
    jobs = [Shared("a", "1", 4), Shared("b", "2", 4), Shared("a", "3", 4), Shared("a", "4", 4)]
    thread.submit(jobs, search)
    assert len(thread) == 4
    search.go.set()
    assert found(jobs) == ["a 1", "b 2", "a 3", "a 4"]
    assert search.batches[1:] == [("a", ["1", "3"]), ("b", ["2"]), ("a", ["4"])]


def test_work_alone_is_done_in_its_turn(thread, search):
    held(thread, search)
    order = []
    alone = Alone(lambda left: order.append(len(search.batches)))
    jobs = [Shared("a", "1", 1), alone, Shared("a", "2", 99)]
    thread.submit(jobs, search)
    search.go.set()
    found(jobs)
    assert order == [2]
    assert search.batches[1:] == [("a", ["1"]), ("a", ["2"])]  # 99 tokens go, if alone


def test_what_fails_together_is_done_each_for_itself(thread, search):
    held(thread, search)
    jobs = [Shared("a", item, 1) for item in ("1", "bad", "2")]
    thread.submit(jobs, search)
    search.go.set()
    assert found([jobs[0], jobs[2]]) == ["a 1", "a 2"]
    with pytest.raises(ValueError, match="bad"):
        jobs[1].done.result(timeout=10)


def test_what_nobody_waits_for_is_not_done(thread, search):
    held(thread, search)
    jobs = [Shared("a", "1", 1), Shared("b", "2", 1)]
    thread.submit(jobs, search)
    assert jobs[0].done.cancel()
    search.go.set()
    assert found(jobs[1:]) == ["b 2"]
    assert search.batches[1:] == [("b", ["2"])]


def test_a_full_queue_takes_all_of_a_request_or_nothing(thread, search):
    held(thread, search)
    thread.submit([Shared("a", str(n), 1) for n in range(4)], search)
    with pytest.raises(HTTPException) as refused:
        thread.submit([Shared("a", str(n), 1) for n in range(3)], search)
    assert (refused.value.status_code, refused.value.headers) == (503, {"Retry-After": "1"})
    assert refused.value.detail == "the server is overloaded; try again in a second"
    assert len(thread) == 4


def test_those_that_nobody_waits_for_fill_no_queue(thread, search):
    held(thread, search)
    left = [Shared("a", str(n), 1) for n in range(6)]
    thread.submit(left, search)
    assert all(job.done.cancel() for job in left)
    thread.submit([last := Shared("a", "6", 1)], search)
    assert len(thread) == 1
    search.go.set()
    assert found([last]) == ["a 6"]


def test_closing_waits_for_what_waits_and_takes_no_more(thread, search):
    first = held(thread, search)
    last = Shared("a", "1", 1)
    thread.submit([last], search)
    threading.Timer(0.05, search.go.set).start()
    thread.close()
    assert found([first, last]) == ["first 0", "a 1"]
    with pytest.raises(HTTPException, match="the server is stopping"):
        thread.submit([Shared("a", "2", 1)], search)


def test_after_a_batch_of_several_one_waits_for_company(search):
    thread = ModelThread(Limits(batch_wait=500))
    held(thread, search)
    first = [Shared("a", "1", 1), Shared("a", "2", 1)]
    thread.submit(first, search)
    search.go.set()
    found(first)
    late = [Shared("a", "3", 1), Shared("a", "4", 1)]
    thread.submit(late[:1], search)
    thread.submit(late[1:], search)
    thread.submit([other := Shared("b", "5", 1)], search)  # which ends the waiting
    found([*late, other])
    thread.close()
    assert search.batches[2:] == [("a", ["3", "4"]), ("b", ["5"])]


def test_what_runs_for_clients_who_left_ends_and_the_others_are_served():
    begun, tries = threading.Event(), []

    def search_batch(search, items, left):
        tries.append(items)
        begun.set()
        while len(items) == 3:
            if left():
                raise Gone
        return items

    search = Recorded()
    search.search = search_batch
    thread = ModelThread(Limits(batch_wait=0))
    free = threading.Event()
    thread.submit([Alone(lambda left: free.wait(10))], search)
    jobs = [Shared("a", "1", 4), Shared("a", "2", 4), Shared("a", "3", 6)]
    thread.submit(jobs, search)
    free.set()
    assert begun.wait(10)
    jobs[0].leave()  # of 14 tokens 4
    jobs[1].leave()  # and 4 more
    assert found(jobs[2:]) == ["3"]
    assert [type(job.done.exception(timeout=10)) for job in jobs[:2]] == [Gone, Gone]
    assert tries == [["1", "2", "3"], ["3"]]
    thread.close()


def test_models_share_the_thread_with_a_batch_and_a_queue_of_their_own():
    go = threading.Event()

    class Reader(Recorded):
        def __init__(self):
            super().__init__()
            self.go = go

    one, two = Reader(), Reader()
    thread = ModelThread(Limits(queue=2, batch_wait=0))
    first = Shared("a", "0", 1)
    thread.submit([first], one)
    assert one.started.wait(10)
    jobs = [Shared("a", item, 1) for item in ("1", "2", "3")]
    for job, reader in zip(jobs, (one, two, one)):
        thread.submit([job], reader)
    with pytest.raises(HTTPException, match="overloaded"):
        thread.submit([Shared("a", "4", 1)], one)
    assert (len(thread), thread.waiting(one), thread.waiting(two)) == (3, 2, 1)
    go.set()
    assert found([first, *jobs]) == ["a 0", "a 1", "a 2", "a 3"]
    thread.close()
    assert [items for _, items in one.batches] == [["0"], ["1", "3"]]
    assert [items for _, items in two.batches] == [["2"]]
    assert [call.args[0] for call in one.metrics.batches.observe.call_args_list] == [1, 2]


def test_the_thread_retains_no_model_while_it_waits():
    reader = Recorded()
    reader.go.set()
    thread, gone = ModelThread(Limits()), weakref.ref(reader)
    job = Shared("a", "1", 1)
    thread.submit([job], reader)
    assert found([job]) == ["a 1"]
    del job, reader
    ends = time.monotonic() + 10
    while gone() is not None and time.monotonic() < ends:
        time.sleep(0.01)
    assert gone() is None
    thread.close()
