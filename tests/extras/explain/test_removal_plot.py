"""The picture of removal curves."""

from seqattn.extras.explain.removal_plot import removal_curves


def test_a_method_has_one_color_in_all_panels_of_removal_curves_and_in_the_legend():
    panels = {
        "first": {"attention": [0.9, 0.5], "rollout": [0.8, 0.4], "random": [0.9, 0.8]},
        "second": {"random": [0.7, 0.6]},  # where the others cannot be had
    }
    figure = removal_curves(panels, (10, 50))
    last = figure.axes[1].lines[0]
    assert last.get_color() == figure.axes[0].lines[2].get_color()
    (legend,) = figure.legends
    told = {
        text.get_text(): line.get_color()
        for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)
    }
    drawn = dict(zip(panels["first"], (line.get_color() for line in figure.axes[0].lines)))
    assert told == drawn
    assert len(set(drawn.values())) == 3
