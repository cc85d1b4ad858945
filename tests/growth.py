"""Work on a text that grows no faster than the text."""

import gc
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
    after = _seconds(work, sign, _SIZES[1])
    if after < _QUICK:
        return False
    before = max(min(_seconds(work, sign, _SIZES[0]) for _ in range(3)), _QUICK / _MOST)
    if after > _MOST * before:  # others may have slowed it down
        after = min(_seconds(work, sign, _SIZES[1]) for _ in range(3))
    if after <= _MOST * before:
        return False
    # a step in between, such as a larger cache's, grows no further
    return after > _SLOW or _seconds(work, sign, _LARGEST) > _MOST * 0.75 * after


def _seconds(work, sign, size):
    text = "a" + (sign * size)[:size] + "a"
    collects = gc.isenabled()
    gc.disable()  # a collection of what other tests have left takes more than most texts
    try:
        began = time.process_time()
        work(text)
        return time.process_time() - began
    finally:
        if collects:
            gc.enable()
