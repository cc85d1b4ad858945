"""Figures of systems side by side show what they are given."""

from seqattn.extras.compare.comparison_plots import (
    Point,
    band_panels,
    cost_panels,
    interval_panels,
    pareto_front,
)


def test_a_front_has_what_none_beats_in_both():
    systems = {
        "cheap": (1.0, Point(0, 10.0)),
        "worse": (2.0, Point(0, 9.0)),
        "dear": (3.0, Point(0, 12.0)),
        "as dear": (3.0, Point(0, 11.0)),
        "wasteful": (4.0, Point(0, 12.0)),
    }
    assert pareto_front(systems) == ["cheap", "dear"]
    (axis,) = cost_panels({"bytes": systems}, "t", "BLEU").axes
    front = axis.lines[-1]
    assert (list(front.get_xdata()), list(front.get_ydata())) == ([1.0, 3.0], [10.0, 12.0])


def test_a_front_has_all_that_are_alike_in_both():
    alike = {name: (1.0, Point(0, 10.0)) for name in ("one", "other")}
    assert pareto_front({**alike, "dear": (2.0, Point(0, 10.0))}) == ["one", "other"]


def test_intervals_are_drawn_where_there_are_any_and_seeds_where_there_are_several():
    systems = {"a": (Point(0, 5.0, 4.0, 6.0), [4.5, 5.5]), "b": (Point(0, 3.0), [3.0])}
    (axis,) = interval_panels({"BLEU": systems}, "t").axes
    drawn = [list(line.get_xdata()) for line in axis.lines]
    assert drawn == [[4.0, 6.0], [5.0], [4.5, 5.5], [3.0]]
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["a", "b"]


def test_a_system_has_one_color_in_all_panels_and_a_band_of_its_intervals():
    both = {"a": [Point(0, 1.0, 0.5, 1.5), Point(1, 2.0, 1.0, 3.0)], "b": [Point(0, 4.0)]}
    figure = band_panels({"first": both, "second": {"b": both["b"]}}, "t", "steps", ["x", "y"])
    first, second = figure.axes
    assert second.lines[0].get_color() == first.lines[1].get_color() != first.lines[0].get_color()
    (band,) = first.collections
    assert {tuple(corner) for corner in band.get_paths()[0].vertices} >= {(0, 0.5), (1, 3.0)}
    assert [tick.get_text() for tick in first.get_xticklabels()] == ["x", "y"]
    assert len(second.collections) == 0
