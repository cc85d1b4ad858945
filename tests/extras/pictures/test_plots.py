"""Pictures of attention: the tokens stand on the axes, and the squares are the weights."""

import numpy as np
import pytest
import torch

from seqattn.extras.pictures.plots import heatmap, save
from tests.extras.pictures.figures import ticks, visible

QUERIES = ["▁Ein", "▁Hund", "</s>"]
KEYS = ["▁A", "▁d", "og", "▁", "</s>"]


def test_a_heatmap_has_its_tokens_on_the_axes_and_its_weights_in_the_squares_on_one_scale():
    weights = {f"layer {n}": n * torch.rand(3, 5) for n in (1, 2, 3)}
    figure = heatmap(weights, QUERIES, KEYS, "where it looked", ("output", "source"))
    panels = visible(figure)
    assert [axis.get_title() for axis in panels] == list(weights)
    assert figure.get_suptitle() == "where it looked"
    largest = float(torch.stack(list(weights.values())).max())
    for axis, expected in zip(panels, weights.values(), strict=True):
        assert ticks(axis) == (["A", "d", "‿og", "␣", "</s>"], ["Ein", "Hund", "</s>"])
        assert axis.xaxis.get_ticks_position() == "top"
        assert axis.get_xlabel() == "source"
        np.testing.assert_array_equal(axis.images[0].get_array(), expected.numpy())
        assert axis.images[0].get_clim() == (0, largest)
    assert panels[0].get_ylabel() == "output"
    (bar,) = [axis for axis in figure.axes if axis not in panels]
    assert bar.get_ylabel() == "attention weight"
    assert bar.get_ylim() == (0, largest)


@pytest.mark.parametrize("shape", [(4, 5), (3, 4), (5, 3)])
def test_a_heatmap_refuses_labels_that_are_not_those_of_its_array(shape):
    with pytest.raises(ValueError, match="3 queries and 5 keys cannot label"):
        heatmap({"": torch.zeros(shape)}, QUERIES, KEYS, "wrong")


def test_any_token_is_a_label(tmp_path, recwarn):
    keys = ["$a", "b$", "\t", "\ue000", "x" * 30, "Ж", ""]
    figure = heatmap({"": torch.eye(7)}, keys, keys, "odd")
    shown = ["$a", "b$", "U+0009", "U+E000", "x" * 19 + "…", "Ж", ""]
    assert ticks(visible(figure)[0]) == (shown, shown)
    save(figure, tmp_path / "odd.png")
    assert not recwarn.list


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (9, 70), (70, 9)])
@pytest.mark.parametrize("panels", [1, pytest.param(5, marks=pytest.mark.exhaustive)])
def test_nothing_is_drawn_outside_a_picture(shape, panels):
    down, across = (["▁international"] * size for size in shape)
    weights = {f"head {n}": torch.ones(shape) for n in range(panels)}
    title = "attention from the context to the question, mean over heads, step 100,000"
    figure = heatmap(weights, down, across, title, ("context", "question"))
    figure.draw_without_rendering()
    drawn, whole = figure.get_tightbbox(), figure.bbox_inches
    assert whole.x0 <= drawn.x0 < drawn.x1 <= whole.x1
    assert whole.y0 <= drawn.y0 < drawn.y1 <= whole.y1


def test_a_picture_is_written_with_the_directories_it_needs(tmp_path):
    figure = heatmap({"layer 1": torch.zeros(3, 5)}, QUERIES, KEYS, "nothing")
    path = save(figure, tmp_path / "a" / "b.png")
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    drawn = save(figure, tmp_path / "c.svg").read_text()
    assert drawn.startswith("<?xml")
    assert ">Hund</text>" in drawn
    assert save(figure, str(tmp_path / "d.pdf")).read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("rows", [2, 60])
def test_the_color_bar_is_about_as_long_as_its_label_needs_however_large_the_maps(rows):
    tokens = ["▁dog"] * rows
    figure = heatmap({"a": torch.eye(rows), "b": torch.eye(rows)}, tokens, tokens, "title")
    figure.draw_without_rendering()
    bar = next(axis for axis in figure.axes if axis not in visible(figure))
    inches = bar.get_window_extent().height / figure.dpi
    label = bar.yaxis.label.get_window_extent().height / figure.dpi
    assert 1 < inches < 2.5
    assert 0.4 < label / inches < 1
