"""The search that a request asks for, made once and checked."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from seqattn.bundle.bundle import Bundle
from seqattn.bundle.nodes import describe
from seqattn.errors import UserError
from seqattn.extras.serve.schemas import SearchSettings
from seqattn.generation.base import Search, listed
from seqattn.generation.processors import ForcedPrefix, NoRepeatNgram
from seqattn.generation.span_search import SpanSearch
from seqattn.tokens import UNK

_ROWS = 1_024  # hypotheses that are extended at once, each with scores of a whole vocabulary


def search_for(bundle: Bundle, asked: str | SearchSettings | None, n_best: int) -> Any:
    """A search in one process that gives `n_best` different outputs.

    Raises:
        UserError: for a search or a setting that is not there, or is not for this bundle.
    """
    if not isinstance(asked, SearchSettings):
        asked = SearchSettings(name=asked)
    given = asked.model_dump(exclude_none=True)
    name, limit = given.pop("name", None), given.pop("limit", None)
    ngram = given.pop("no_repeat_ngram", None)
    made = bundle.search(name)
    if limit is not None and isinstance(made, Search):
        given["limit"] = {**describe(made.limit), **limit}
    if given:
        made = bundle.search(made, **given)
    if isinstance(made, SpanSearch):
        if limit is not None or ngram is not None:
            raise UserError("a search of spans has no limit and no no_repeat_ngram; leave them out")
        return replace(made, answers=n_best)
    if ngram is not None:
        made = replace(made, processors=[*listed(made.processors), NoRepeatNgram(ngram)])
    if hasattr(made, "n_best"):
        # hypotheses that differ in tokens may read the same: the whole beam is asked for
        whole = max(n_best, made.beam_size) if hasattr(made, "beam_size") and n_best > 1 else n_best
        made = replace(made, n_best=whole)
    elif n_best > 1:
        raise UserError(
            "this search gives one hypothesis; n_best needs generation=beam or sampling"
        )
    rows = max(1, _ROWS // beams_of(made))
    return replace(made, workers=1, batch_size=min(made.batch_size or rows, rows))


def target_tokens(search: Search, sizes: Sequence[int], longest: int | None) -> int:
    """How many tokens all hypotheses of sources of these sizes may have."""
    limit = search.limit
    least = max(1, limit.minimum)
    lengths = (max(int(size * limit.ratio) + limit.extra, least) for size in sizes if size)
    return beams_of(search) * sum(min(length, longest or length) for length in lengths)


def beams_of(search: Any) -> int:
    """How many hypotheses of a source it follows."""
    known = ("beam_size", "samples", "n_best")
    return next((int(getattr(search, name)) for name in known if hasattr(search, name)), 1)


def hypotheses_of(search: Any) -> int:
    """How many hypotheses of a source it can be asked for, up to 100."""
    most = getattr(search, "beam_size", 100) if hasattr(search, "n_best") else 1
    return min(100, int(most))


def prefix_ids(bundle: Bundle, prefix: str) -> tuple[int, ...]:
    """The target tokens of a beginning, without the end.

    Raises:
        UserError: where the vocabulary cannot spell it.
    """
    ids = tuple(bundle.tokenizer.encode_target([prefix])[0][:-1])
    if UNK in ids:
        raise UserError(f"prefix {prefix!r} holds what the target's vocabulary cannot spell")
    return ids


def forced(search: Search, prefix: tuple[int, ...]) -> Search:
    """The same search among the outputs that begin with these tokens."""
    if not prefix:
        return search
    return replace(search, processors=(ForcedPrefix(prefix, listed(search.processors)),))
