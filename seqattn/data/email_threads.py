"""Which e-mails go on with a thread that is already known."""

import re
from collections.abc import Iterable
from zlib import crc32

_WORD = re.compile(r"[^\W_]+")
_MARKS = re.compile(r"^\s*(?:(?:re|fw|fwd)\s*:\s*)+")
_RUN = 8
_SHARED = 0.2


class Threads:
    """The threads of known e-mails.

    Another e-mail shares one with them if its subject is one of theirs (but for case, signs and
    what marks an answer, such as "RE:"), or if a fifth of its runs of 8 words stand in theirs, as
    where a mail is quoted, forwarded or sent anew.
    """

    def __init__(self, documents: Iterable[str], subjects: Iterable[str]) -> None:
        self._subjects = {_plain(subject) for subject in subjects} - {""}
        self._runs = {run for document in documents for run in _runs(document)}

    def share(self, document: str, subject: str) -> bool:
        """Whether an e-mail shares a thread with them."""
        runs = _runs(document)
        known = sum(run in self._runs for run in runs)
        quotes = known >= max(1, _SHARED * len(runs))
        return quotes or _plain(subject) in self._subjects


def _plain(subject: str) -> str:
    return " ".join(_WORD.findall(_MARKS.sub("", subject.lower())))


def _runs(text: str) -> set[int]:
    words = _WORD.findall(text.lower())
    ends = range(_RUN, len(words) + 1)
    return {crc32(" ".join(words[end - _RUN : end]).encode()) for end in ends}
