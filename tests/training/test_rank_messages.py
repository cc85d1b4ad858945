"""Ranks hear of each other before they train, whoever started them."""

import os
import time

import pytest

from seqattn.errors import UserError
from seqattn.training import run as fit
from seqattn.training.rank_messages import RankMessages
from tests.forked_ranks import run_ranks


def as_rank(rank, port, size=2):
    names = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in names.items()})


def refused(attempt):
    with pytest.raises(UserError) as told:
        attempt()
    return str(told.value)


def _agree(rank, port):
    as_rank(rank, port)
    messages = RankMessages()
    asked = []
    for number in range(2):
        time.sleep(0.2 * (rank == number))
        word = messages.from_first(lambda number=number: asked.append(number) or f"word {number}")
        assert word == f"word {number}"
    assert asked == ([0, 1] if rank == 0 else [])
    time.sleep(rank == 0)  # the store ends with the first rank


def _make(rank, port, folder):
    as_rank(rank, port)

    def setup_of(start):
        assert (folder / "made").exists() == (rank == 1)
        time.sleep(0.3)
        (folder / "made").touch()

    fit.setup_of = setup_of
    fit._setup_in_turn(None)
    time.sleep(rank == 0)


def _refuse(rank, port, who, late):
    as_rank(rank, port)
    messages = RankMessages()
    messages.from_first(str)
    began = time.monotonic()
    if rank == who:
        time.sleep(late)
        assert messages.fail("no data")
        assert messages.fail("no data")  # as often as it is asked
    else:
        assert refused(lambda: messages.from_first(str)) == "no data"
        assert not messages.fail("no data")  # the other one tells
    assert time.monotonic() - began < 5


def _refuse_all(rank, port, folder):
    as_rank(rank, port)
    if RankMessages().fail("no such attention"):
        (folder / str(rank)).touch()


def _left(rank, port):
    as_rank(rank, port)
    messages = RankMessages()
    messages.from_first(str)
    if rank == 1:
        text = refused(lambda: messages.from_first(str))
        assert "rank 0 has exited, or cannot be reached" in text
    else:
        time.sleep(0.5)
        os._exit(0)


def test_the_first_rank_chooses_for_all():
    run_ranks(_agree, 2)


def test_the_first_rank_reads_and_trains_what_the_others_find_in_the_cache(tmp_path):
    run_ranks(_make, 2, tmp_path)


@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize("late", [0, 1])
def test_a_refusal_of_any_rank_ends_all_and_one_tells(who, late):
    run_ranks(_refuse, 2, who, late)


def test_where_all_refuse_one_tells(tmp_path):
    run_ranks(_refuse_all, 2, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


def test_no_rank_waits_for_a_first_one_that_has_gone():
    run_ranks(_left, 2)


def test_a_process_by_itself_asks_nobody():
    messages = RankMessages()
    assert messages.from_first(lambda: "word") == "word"
    assert messages.fail("no data")
