"""What can be read off a figure."""


def ticks(axis):
    """The labels along the top, and down the side."""
    across = [label.get_text() for label in axis.get_xticklabels()]
    return across, [label.get_text() for label in axis.get_yticklabels()]


def visible(figure):
    """The panels of weights, without the color bar."""
    return [axis for axis in figure.axes if axis.images]
