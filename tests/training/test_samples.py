"""A table of samples that grows by a row a validation."""

import csv
from types import SimpleNamespace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from seqattn.training.loggers import TensorBoardRun
from seqattn.training.samples import SampleTable
from tests.training.test_callbacks import Module, trainer

SOURCES, REFERENCES = ("a dog,\nnow", "a | b"), ("ein Hund", "c")


@pytest.fixture
def validate(tmp_path):
    def run(step, outputs, sources=SOURCES, loggers=()):
        rows = list(zip(sources, outputs, REFERENCES))
        made = SampleTable(lambda: rows, tmp_path / "samples" / "samples.csv")
        made.on_validation_end(trainer(global_step=step, loggers=loggers), Module())

    return run


def table(tmp_path):
    with (tmp_path / "samples" / "samples.csv").open(newline="") as file:
        return list(csv.reader(file))


ABOVE = [["step", "1", "2"], ["source", *SOURCES], ["reference", *REFERENCES]]


def test_each_validation_adds_a_row_and_a_run_that_goes_on_takes_back_what_it_does_again(
    validate, tmp_path
):
    for step in (2, 4, 6):
        validate(step, (f"x{step}", "y"))
    validate(4, ("again", "y"))  # as after a kill: those from here on are of what was lost
    assert table(tmp_path) == [*ABOVE, ["2", "x2", "y"], ["4", "again", "y"]]


def test_a_source_may_be_a_long_document(validate, tmp_path):
    sources = ("a" * 200_000, "b")
    for step in (2, 4):
        validate(step, ("x", "y"), sources)
    assert [row[0] for row in table(tmp_path)] == ["step", "source", "reference", "2", "4"]


def test_other_sentences_begin_another_table(validate, tmp_path):
    validate(2, ("x", "y"))
    validate(4, ("x", "y"), sources=("other", "two"))
    assert [row[0] for row in table(tmp_path)] == ["step", "source", "reference", "4"]


def test_tensorboard_shows_the_whole_table_at_the_step_of_the_scores(validate, tmp_path):
    logger = TensorBoardRun(str(tmp_path), "tensorboard", version=0)
    for step in (2, 4):
        validate(step, (f"x{step}", "a\nb"), loggers=[logger])
    logger.finalize("success")
    events = EventAccumulator(logger.log_dir).Reload().Tensors("samples/text_summary")
    assert [event.step for event in events] == [1, 3]
    assert events[-1].tensor_proto.string_val[0].decode() == (
        "| step | 1 | 2 |\n| --- | --- | --- |\n| source | a dog, now | a \\| b |\n"
        "| reference | ein Hund | c |\n| 2 | x2 | a b |\n| 4 | x4 | a b |"
    )


OUTSIDE = (
    {"fast_dev_run": True},
    {"sanity_checking": True},
    {"is_global_zero": False},
    {"state": SimpleNamespace(fn="validate")},
)


@pytest.mark.parametrize("state", [*OUTSIDE, {}], ids=str)
def test_only_the_first_rank_of_a_real_training_writes_and_only_where_there_are_samples(
    tmp_path, state
):
    rows = [("a", "b", "c")] if state else []
    made = SampleTable(lambda: rows, tmp_path / "samples" / "samples.csv")
    made.on_validation_end(trainer(**state), Module())
    assert not (tmp_path / "samples").exists()
