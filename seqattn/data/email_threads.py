"""Detection of e-mails that continue a known thread."""

import re
from collections.abc import Iterable
from zlib import crc32

_WORD = re.compile(r"[^\W_]+")
_MARKS = re.compile(r"^\s*(?:(?:re|fw|fwd)\s*:\s*)+")
_RUN = 8
_SHARED = 0.2


class Threads:
    """Threads of known e-mails.

    Another e-mail shares a thread if it has the same subject (ignoring case, punctuation and reply
    prefixes such as "RE:"), or if a fifth of its 8-word sequences occur in known e-mails, as when
    an e-mail is quoted, forwarded or sent again.
    """

    def __init__(self, documents: Iterable[str], subjects: Iterable[str]) -> None:
        self._subjects = {_plain(subject) for subject in subjects} - {""}
        self._runs = {run for document in documents for run in _runs(document)}

    def share(self, document: str, subject: str) -> bool:
        """Return True if an e-mail shares a thread with the known ones."""
        runs = _runs(document)
        shared = sum(run in self._runs for run in runs)
        quotes = shared >= max(1, _SHARED * len(runs))
        return quotes or _plain(subject) in self._subjects


def _plain(subject: str) -> str:
    return " ".join(_WORD.findall(_MARKS.sub("", subject.lower())))


def _runs(text: str) -> set[int]:
    words = _WORD.findall(text.lower())
    ends = range(_RUN, len(words) + 1)
    return {crc32(" ".join(words[end - _RUN : end]).encode()) for end in ends}
