"""`prepare` on the workers of a Dask cluster: the same bytes, and one line where it fails."""

import os
import signal
import socket
from functools import partial

import pytest

from seqattn.errors import UserError
from seqattn.extras.shards import shard_builder
from seqattn.extras.shards.parallel import spread, workers
from tests.extras.shards.small_shards import again, prepare

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def scheduler():
    """Address of a scheduler with two worker processes, whose jobs may fail twice."""
    from dask import config

    with (
        config.set({"distributed.scheduler.allowed-failures": 2}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
    ):
        yield cluster.scheduler_address


def content(directory):
    """Every file of a prepared directory."""
    paths = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def test_its_workers_make_the_same_bytes(scheduler, tmp_path, monkeypatch):
    monkeypatch.setattr(shard_builder, "ROWS", 100)
    monkeypatch.chdir(tmp_path)  # the workers stay elsewhere
    local = prepare(tmp_path, workers=2)
    made = again(tmp_path, workers=None, scheduler=scheduler, output="dask")
    made.run()
    assert len(content(made.path)) > 10
    assert content(made.path) == content(local.path)


def _kills(path, number):
    """Return a number; in the process that creates the file, end that process before."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return number
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_job_of_a_killed_worker_is_done_again(scheduler, tmp_path):
    jobs = [partial(_kills, tmp_path / str(number // 5), number) for number in range(10)]
    with workers(scheduler) as (pool, count):
        assert count == 2
        assert sorted(spread(pool, jobs, 4)) == [*range(10)]
    assert len([*tmp_path.iterdir()]) == 2
    with (
        pytest.raises(UserError, match="Dask's workers or scheduler died"),
        workers(scheduler) as (pool, _),
    ):
        pool.submit(os._exit, 9).result()


def refusal(address):
    """What is said of a scheduler that cannot be used."""
    with pytest.raises(UserError) as refused, workers(address):
        pass
    return str(refused.value)


@pytest.mark.parametrize("address", ["", "nonsense", "tls://localhost:1"])
def test_an_address_where_no_scheduler_answers_is_refused(address):
    assert refusal(address) == f"no Dask scheduler at scheduler={address}; set tcp://HOST:PORT"


@pytest.mark.exhaustive  # fifteen seconds
def test_no_server_and_one_that_says_nothing_are_not_waited_for():
    assert "no Dask scheduler at" in refusal("localhost:1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert "no Dask scheduler at" in refusal(f"localhost:{silent.getsockname()[1]}")


def test_a_scheduler_without_workers_and_unequal_versions_are_told(scheduler, monkeypatch):
    with distributed.LocalCluster(n_workers=0, dashboard_address=":0") as empty:
        assert "has no workers; run dask worker tcp://" in refusal(empty.scheduler_address)
    versions = {"seqattn-toolkit": "1", "pyarrow": "2"}
    there = {"a": {"packages": versions}, "b": {"packages": versions | {"pyarrow": "3"}}}
    answer = {"client": {"packages": versions}, "workers": there}
    monkeypatch.setattr(distributed.Client, "get_versions", lambda *args, **kwargs: answer)
    assert refusal(scheduler) == "Dask's workers have other versions; align pyarrow"
