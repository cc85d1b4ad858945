"""What a training run draws and logs of the attention at each validation."""

from types import SimpleNamespace

import pytest
from matplotlib.figure import Figure
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from seqattn.extras.pictures.watch import HeatmapCallback
from seqattn.training.loggers import TensorBoardRun
from tests.training.stand_ins import Module, trainer

OUTSIDE = (
    {"fast_dev_run": True},
    {"sanity_checking": True},
    {"is_global_zero": False},
    {"state": SimpleNamespace(fn="validate")},
)


def drawn(tmp_path, draw, **state):
    HeatmapCallback(draw, tmp_path).on_validation_end(trainer(global_step=30, **state), Module())
    return sorted(path.name for path in tmp_path.glob("*.png"))


def test_each_validation_writes_a_picture_and_shows_it(tmp_path):
    logger, figure = TensorBoardRun(str(tmp_path), "tensorboard", version=0), Figure()
    figure.suptitle("nothing")
    names = drawn(tmp_path, lambda: figure, loggers=[logger])
    assert names == ["cross_attention_step_000030.png"]
    assert figure.get_suptitle() == "nothing, step 30"
    logger.finalize("success")
    [event] = EventAccumulator(logger.log_dir).Reload().Images("attention/cross")
    assert event.step == 29


@pytest.mark.parametrize("state", OUTSIDE, ids=str)
def test_pictures_are_drawn_in_training_and_on_the_first_rank_alone(state, tmp_path):
    def never():
        raise AssertionError("drawn")

    assert drawn(tmp_path, never, **state) == []


def test_a_model_without_cross_weights_gives_no_picture(tmp_path):
    assert drawn(tmp_path, lambda: None) == []
