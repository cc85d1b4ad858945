"""A table of samples that grows by a row a validation."""

import csv

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from seqattn.training.loggers import TensorBoardRun
from seqattn.training.samples import SampleTable
from tests.training.stand_ins import trainer

SOURCES, REFERENCES = ("a dog,\nnow", "a | b"), ("ein Hund", "c")


@pytest.fixture
def validate(tmp_path):
    def run(step, outputs, sources=SOURCES, loggers=()):
        rows = list(zip(sources, outputs, REFERENCES))
        made = SampleTable(lambda: rows, tmp_path / "samples" / "samples.csv")
        made.end_validation(trainer(global_step=step, loggers=loggers))

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


def test_a_trial_run_and_one_without_samples_write_nothing(tmp_path):
    for rows, trial in ([], False), ([("a", "b", "c")], True):
        made = SampleTable(lambda rows=rows: rows, tmp_path / "samples" / "samples.csv")
        made.end_validation(trainer(fast_dev_run=trial))
    assert not (tmp_path / "samples").exists()
