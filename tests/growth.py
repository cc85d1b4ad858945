"""Work on a text that grows no faster than the text."""

import time

SIGNS = (
    *" a\n.<&{%(@\\'",
    *("é", "\u3000", "\u00ad", "犬", "a ", "! ", "<b>", "</", "<!--", "<![", "&#", "{{", "%("),
    *("a@", "http://", "- ", '"', "\r\n", "a <i>b</i> "),
)
"""What a text repeats."""
_SIZES, _LARGEST = (8_000, 32_000), 96_000
_MOST = 6
"""Largest growth of CPU time where the text grows fourfold; quadratic work grows by 16."""
_QUICK, _SLOW = 0.1, 1.0  # CPU seconds of the second size: not worth a word, and surely too many


def grows(work, sign):
    """True if the CPU time of `work(text)` grows faster than the text."""
    if _seconds(work, sign, _SIZES[1]) < _QUICK:
        return False
    before, after = (min(_seconds(work, sign, size) for _ in range(3)) for size in _SIZES)
    if after <= _MOST * max(before, _QUICK / _MOST):
        return False
    # collecting garbage may have begun in between: it has a step, and grows no further
    return after > _SLOW or _seconds(work, sign, _LARGEST) > _MOST * 0.75 * after


def _seconds(work, sign, size):
    text = "a" + (sign * size)[:size] + "a"
    began = time.process_time()
    work(text)
    return time.process_time() - began
