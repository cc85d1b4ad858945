"""Contestants in processes of their own, and the arithmetic that all of them have to do."""

import re

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import contestants
from benchmarks.arithmetic import at_full_rate, forward_work
from benchmarks.contestants import (
    FOLDER,
    PEERS,
    Contestant,
    Entry,
    Setting,
    compared,
    entries,
    started,
)
from benchmarks.peers import own, plain
from benchmarks.peers.worker import Worker
from benchmarks.suite import Sample
from benchmarks.transformer_models import PlainTransformer, parameters_of
from seqattn.errors import UserError
from tests.benchmarks.small import SHAPE, random_rows, stand_in

SETTING = Setting(SHAPE, threads=1, workers=2)


def make(kind, precision="fp32"):
    torch.manual_seed(0)
    return kind(vars(SHAPE), precision, threads=1, workers=1)


def test_our_own_keep_memory_and_the_others_are_run_as_asked():
    found = entries("training", ["seqattn", "eole", "ctranslate2"], ["fp32"], ["default", "keeps"])
    assert found == [
        Entry("seqattn", "fp32", "keeps"),
        Entry("eole", "fp32", "default"),
        Entry("eole", "fp32", "keeps"),
    ]
    names = ["seqattn", "lightning", "ctranslate2"]
    found = entries("decoding", names, ["bf16", "int8"], ["default"])
    assert found == [
        Entry("seqattn", "bf16", "keeps"),
        Entry("seqattn", "int8", "keeps"),
        Entry("ctranslate2", "int8"),
    ]


def test_a_contestant_answers_from_a_process_of_its_own(monkeypatch):
    stand_in(monkeypatch)
    rows = [[4, 3], [5, 6, 3]]
    for entry, seconds in ((Entry("joey"), 5.0), (Entry("joey", "fp32", "keeps"), 2.5)):
        contestant = Contestant(entry, SETTING)
        assert contestant.parameters == SHAPE.dim + 10 * 2 + 1
        assert contestant.ask("train", [(rows, rows)]) == (seconds, seconds, 5)
        assert contestant.ask("decode", rows, 5, 7, 1)[2] == 2 * 7
        assert contestant.ask("memory") > 1
        contestant.close()
        assert contestant.process.returncode is not None


def test_those_without_workers_get_the_threads_of_all(monkeypatch):
    stand_in(monkeypatch)
    wanted = [Entry("seqattn", "fp32", "keeps"), Entry("eole"), Entry("ctranslate2")]
    with started(wanted, Setting(SHAPE, threads=3, workers=2)) as running:
        found = [one.parameters - SHAPE.dim for one in running.values()]
    assert found == [10 * 3 + 2, 10 * 6 + 1, 10 * 3 + 2]


def test_who_is_not_there_is_left_out_with_a_line(monkeypatch, tmp_path, capsys):
    stand_in(monkeypatch)
    absent = tmp_path / "absent.py"
    absent.write_text("import no_such_toolkit\n")
    monkeypatch.setitem(PEERS, "eole", PEERS["eole"]._replace(file=str(absent)))
    wanted = [Entry("eole"), Entry("eole", "bf16"), Entry("joey"), Entry("joey", "int8")]
    with started(wanted, SETTING) as running:
        assert list(running) == [Entry("joey")]
    assert capsys.readouterr().err.splitlines() == [
        "skipped Eole: No module named 'no_such_toolkit'; set suite.peer_python=PATH to a Python "
        "that has it",
        "skipped Joey NMT in int8: it has no int8",
    ]
    for none in (wanted[:2], []):
        with (
            pytest.raises(UserError, match="no contestant can run; change"),
            started(none, SETTING),
        ):
            pass


def test_a_process_that_dies_and_a_python_that_is_not_there_are_told(monkeypatch, tmp_path):
    deadly = tmp_path / "deadly.py"
    deadly.write_text("import os\nos._exit(1)\n")
    monkeypatch.setitem(PEERS, "eole", PEERS["eole"]._replace(file=str(deadly)))
    with pytest.raises(UserError, match="the process of Eole exited"):
        Contestant(Entry("eole"), SETTING)
    setting = Setting(SHAPE, threads=1, peer_python="/no/python")
    with pytest.raises(UserError, match=r"cannot run suite.peer_python=/no/python: No such file"):
        Contestant(Entry("eole"), setting)


def test_a_row_compares_with_ours_of_its_precision_and_with_the_arithmetic():
    ours, theirs, int8, limit = (
        [Sample(s, s, 10)] for s in (2.0, 6.0, 1.0, 0.5)
    )  # fmt: skip
    rows = compared({}, {
        Entry("seqattn", "fp32", "keeps"): ours, Entry("eole"): theirs,
        Entry("ctranslate2", "int8"): int8, Entry(contestants.LIMIT): limit,
    }, "tokens")  # fmt: skip
    assert [row["seqattn speedup"].median for row in rows] == [1.0, 3.0, 0.5, 0.25]
    shares = [row["share of peak"] for row in rows]
    assert shares == [0.25, pytest.approx(1 / 12), None, 1.0]


def test_no_peers_file_needs_this_package_or_hides_a_peer():
    for name, peer in PEERS.items():
        text = (FOLDER / peer.file).read_text()
        ours = re.search(r"seqattn|benchmarks\.(?!peers\.worker)", text) is not None
        assert ours is (peer.extra != "peers"), name
    names = {file.stem for file in FOLDER.glob("*.py")}
    assert not names & {"joeynmt", "eole", "ctranslate2", "transformers", "lightning", "torch"}


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("beams", [1, 5])
def test_our_search_gives_every_source_exactly_the_forced_length(beams, precision):
    rows, made = random_rows(5, 7), make(own.Contestant, precision)
    assert made.decode_all(rows, beams, 32, batch_size=2) == 5 * 32
    assert made.parameters == make(own.Contestant, "fp32").parameters


def test_our_units_are_the_real_target_tokens():
    rows = random_rows(5, 7)
    for kind in (own.Contestant, plain.Contestant):
        assert make(kind).train([(rows, rows)]).units == sum(map(len, rows))


@pytest.mark.parametrize(
    ("name", "package"),
    [("marian", "transformers"), ("joey", "joeynmt"), ("eole", "eole"), ("ctranslate2", "")],
)
def test_a_peer_has_our_size_trains_and_gives_the_forced_length(name, package):
    pytest.importorskip(package or name)
    peer, rows = PEERS[name], random_rows(3, 7)
    worker = Worker(str(FOLDER / peer.file))
    size = worker.make(vars(SHAPE), "fp32", torch.get_num_threads(), 1, 0)
    norms = 4 * SHAPE.dim if name == "marian" else 0  # it lacks the two last ones
    assert size == make(own.Contestant).parameters - norms
    for beams in (1, 5):
        assert worker.decode(rows, beams, 9, 2)[2] == 3 * 9
    if "training" in peer.does:
        assert worker.train([(rows, rows)])[2] == sum(map(len, rows))


def test_a_model_with_a_loss_is_trained_by_the_worker(tmp_path):
    file = tmp_path / "own_loss.py"
    file.write_text("""
import torch
class Contestant:
    parameters = 8
    def __init__(self, *_):
        self.model, self.losses = torch.nn.Embedding(8, 1), []
    def loss(self, source, target):
        assert target[:, 0].tolist() == [2, 2] and target[0, -1] == 0
        self.losses.append((self.model(source) - 1).square().mean())
        return self.losses[-1]
""")
    worker = Worker(str(file))
    worker.make({}, "fp32", torch.get_num_threads(), 1, 0)
    batch = ([[4, 3], [5, 6, 3]], [[4, 3], [5, 6, 3]])
    assert worker.train([batch] * 20)[2] == 20 * 5
    losses = worker.contestant.losses
    assert losses[-1] < losses[0]


def test_the_work_is_what_a_model_does_but_for_the_keys_that_are_to_come():
    torch.manual_seed(0)
    model: nn.Module = PlainTransformer(SHAPE)
    source, target = torch.randint(4, 19, (2, 5)), torch.randint(4, 19, (2, 7))
    with FlopCounterMode(display=False) as counted, sdpa_kernel(SDPBackend.MATH):
        model(source, target)
    hidden = SHAPE.layers * 2 * SHAPE.dim * 2 * 7 * 7
    assert forward_work(SHAPE, [5, 5], [7, 7]) + hidden == counted.get_total_flops()
    once, five = (forward_work(SHAPE, [5], [7], beams) for beams in (1, 5))
    assert once < five < 5 * once
    assert parameters_of(model) > 0


def test_the_arithmetic_has_the_units_it_is_told_and_grows_with_the_work(monkeypatch):
    monkeypatch.setattr("benchmarks.arithmetic.timed", lambda work: Sample(2.0, 1.0, work()))
    monkeypatch.setattr("benchmarks.arithmetic._SIZE", 8)
    work = 12 * 2 * 8**3
    assert at_full_rate(work, "fp32", 3) == Sample(2.0, 1.0, 3)
    assert at_full_rate(work / 2, "bf16", 3) == Sample(1.0, 0.5, 3)
