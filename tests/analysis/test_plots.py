"""Pictures of attention: the tokens stand on the axes, and the squares are the weights."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from seqattn.analysis.callbacks import HeatmapCallback
from seqattn.analysis.plots import heatmap, length_curves, save
from tests.analysis.figures import ticks, visible

QUERIES = ["▁Ein", "▁Hund", "</s>"]
KEYS = ["▁A", "▁d", "og", "▁", "</s>"]


def test_a_heatmap_has_its_tokens_on_the_axes_and_its_weights_in_the_squares():
    weights = {f"layer {n}": torch.rand(3, 5) for n in (1, 2, 3)}
    figure = heatmap(weights, QUERIES, KEYS, "where it looked")
    panels = visible(figure)
    assert [axis.get_title() for axis in panels] == list(weights)
    assert figure.get_suptitle() == "where it looked"
    for axis, expected in zip(panels, weights.values(), strict=True):
        assert ticks(axis) == (["A", "d", "og", "␣", "</s>"], ["Ein", "Hund", "</s>"])
        assert axis.xaxis.get_ticks_position() == "top"
        np.testing.assert_array_equal(axis.images[0].get_array(), expected.numpy())
        assert axis.images[0].get_clim() == (0, float(expected.max()))


def test_a_picture_is_written_with_the_directories_it_needs(tmp_path):
    figure = heatmap({"layer 1": torch.zeros(3, 5)}, QUERIES, KEYS, "nothing")
    path = save(figure, tmp_path / "a" / "b.png")
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert save(figure, tmp_path / "c.svg").read_text().startswith("<?xml")


class Shown:
    """A trainer that has just validated."""

    def __init__(self, **changes):
        self.sanity_checking, self.fast_dev_run, self.is_global_zero = False, False, True
        self.state, self.global_step, self.loggers = SimpleNamespace(fn="fit"), 30, []
        vars(self).update(changes)


def test_the_callback_writes_a_picture_for_each_validation(tmp_path):
    figure = heatmap({"layer 1": torch.zeros(3, 5)}, QUERIES, KEYS, "nothing")
    callback = HeatmapCallback(lambda: figure, tmp_path)
    callback.on_validation_end(Shown(), None)
    assert [path.name for path in tmp_path.iterdir()] == ["cross_attention_step_000030.png"]


@pytest.mark.parametrize(
    "state",
    [
        {"sanity_checking": True},
        {"fast_dev_run": True},
        {"is_global_zero": False},
        {"state": SimpleNamespace(fn="validate")},
    ],
)
def test_the_callback_draws_in_training_and_on_the_first_rank_alone(state, tmp_path):
    def never():
        raise AssertionError("drawn")

    HeatmapCallback(never, tmp_path).on_validation_end(Shown(**state), None)
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_cross_weights_gives_no_picture(tmp_path):
    HeatmapCallback(lambda: None, tmp_path).on_validation_end(Shown(), None)
    assert list(tmp_path.iterdir()) == []


def test_a_curve_goes_through_its_values_over_the_bins():
    figure = length_curves({"a": [3.0, 1.5], "b": [2.0, 2.5]}, ["1-2", "over 2"], [7, 9], "BLEU")
    (axes,) = figure.axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in axes.get_lines()}
    assert drawn == {"a": [3.0, 1.5], "b": [2.0, 2.5]}
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1-2\n7", "over 2\n9"]
    assert axes.get_ylabel() == "BLEU"
