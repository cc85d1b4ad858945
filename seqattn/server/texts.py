"""Outputs for texts: read, searched together or alone, and told."""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from starlette.exceptions import HTTPException
from torch import Tensor

from seqattn.bundle.bundle import TextBundle
from seqattn.errors import UserError
from seqattn.generation.base import Hypothesis, Search, listed
from seqattn.generation.processors import Processor
from seqattn.generation.windows import generate_from_windows, search_windows
from seqattn.server.figures import Figures
from seqattn.server.interventions import intervened
from seqattn.server.limits import Limits
from seqattn.server.model_thread import Alone, Shared
from seqattn.server.outputs import different, look_into
from seqattn.server.schemas import Generated, GenerateRequest, Output
from seqattn.server.searches import beams_of, forced, prefix_ids, search_for
from seqattn.server.streams import Event, Tell, sent

Windows = list[list[int]]
"""The ids of a source, in one part or in several."""


class Gone(Exception):
    """Nobody waits for the work any more."""


class Input(NamedTuple):
    """A text as it is searched: its ids, its place in the request, its search and its beginning."""

    windows: Windows
    place: int
    search: Search
    prefix: tuple[int, ...]

    @property
    def size(self) -> int:
        """Its tokens."""
        return sum(map(len, self.windows))


@dataclass(frozen=True)
class Texts:
    """Turns requests into searches and hypotheses into results. Args: as `Spans`."""

    bundle: TextBundle
    limits: Limits
    figures: Figures

    def read(self, asked: GenerateRequest) -> list[Input]:
        """The inputs of a request.

        Raises:
            HTTPException: 413 for too many inputs or tokens.
            UserError: for anything else that does not fit.
        """
        texts = [asked.inputs] if isinstance(asked.inputs, str) else asked.inputs
        if len(texts) > self.limits.inputs:
            raise too_many("inputs", self.limits.inputs, len(texts))
        search = search_for(self.bundle, asked.generation, asked.n_best)
        prefixes = self._prefixes(asked.prefix, len(texts))
        rows = zip(self.encode(texts), prefixes, strict=True)
        inputs = [
            Input(windows, place, forced(search, prefix), prefix)
            for place, (windows, prefix) in enumerate(rows)
        ]
        if asked.intervene is not None and any(len(one.windows) > 1 for one in inputs):
            raise UserError("intervene takes texts that are read in one part; shorten them")
        if asked.intervene is not None or looks(asked):
            for one in inputs:
                self.check_shown(max(one.windows, key=len))
        if asked.stream and beams_of(search) > 1 and not hasattr(search, "beam_size"):
            if hasattr(search, "samples"):
                raise UserError("generation=mbr says nothing until all is drawn; leave stream out")
            raise UserError("stream gives one sample; leave n_best out")
        return inputs

    def encode(self, texts: Sequence[str]) -> list[Windows]:
        """Ids of texts, within the limits of a request and of the model."""
        read = self.bundle.encode(texts)
        total = sum(len(window) for windows in read for window in windows)
        if total > self.limits.tokens:
            raise too_many("tokens", self.limits.tokens, total)
        longest = self.bundle.model.max_source_length
        for number, windows in enumerate(read, 1):
            length = max(map(len, windows))
            if longest is not None and length > longest:
                raise UserError(
                    f"input {number} has {length} tokens and this model reads at most {longest}; "
                    "shorten it"
                )
        return read

    def check_shown(self, source: Sequence[int], output: Sequence[int] = ()) -> None:
        """A `UserError` for more tokens than a look into the model takes."""
        came = len(source) + len(output)
        if came > self.limits.shown_tokens:
            what = "with its output " if output else ""
            raise UserError(
                f"attention is shown of at most {self.limits.shown_tokens:,} tokens, the text "
                f"{what}has {came:,}; shorten it"
            )

    def _prefixes(self, given: str | list[str] | None, count: int) -> list[tuple[int, ...]]:
        if given is None:
            return [()] * count
        each = [given] * count if isinstance(given, str) else given
        if len(each) != count:
            raise UserError(f"prefix must be a text or one for each of {count} inputs")
        return [prefix_ids(self.bundle, prefix) for prefix in each]

    def jobs(self, asked: GenerateRequest, inputs: Sequence[Input]) -> list[Shared] | list[Alone]:
        """What the model thread is asked: a job for each input, which `told` makes a result of.

        Inputs go apart where the model is looked into or changed.
        """
        if asked.intervene is None and not looks(asked):
            return [Shared(one.search, one, one.size) for one in inputs]
        return [Alone(partial(self.result, asked, one)) for one in inputs]

    def search(self, search: Search, inputs: Sequence[Input]) -> list[list[Hypothesis]]:
        """Hypotheses of inputs with one search."""
        places = [one.place for one in inputs]
        generator = search.over(self.bundle.model)
        return generate_from_windows(generator, [one.windows for one in inputs], places)

    def result(
        self, asked: GenerateRequest, one: Input, watch: Processor | None = None
    ) -> Generated:
        """Searches an input alone, under what the request changes in the model."""
        search = one.search if watch is None else watched(one.search, watch)
        with intervened(self.bundle.model, asked.intervene, beams_of(search)):
            generator = search.over(self.bundle.model)
            found = search_windows(generator, [one.windows], [one.place])[0]
        windows = {each.hypothesis.ids: each.window for each in found}
        return self.told(asked, one, [each.hypothesis for each in found], windows)

    def told(
        self,
        asked: GenerateRequest,
        one: Input,
        found: Sequence[Hypothesis],
        windows: Mapping[tuple[int, ...], int] | None = None,
    ) -> Generated:
        """The result of an input.

        Args:
            asked: the request.
            one: the input.
            found: its hypotheses.
            windows: in which of its windows each was found, where that is to be shown.

        Raises:
            UserError: where its limit is shorter than the beginning that was asked for.
        """
        best = different(self.bundle, found, asked.n_best)
        if best:
            check_prefix(one, best[0][1])
        self.figures.tokens(one.size, sum(len(h.ids) + 1 for _, h in best))
        result = Generated(outputs=[])
        if len(one.windows) > 1:
            result.windows = len(one.windows)
        tokenizer = self.bundle.tokenizer
        if "tokens" in asked.parts:
            result.tokens = tokenizer.source_pieces(one.windows[0])
        for text, hypothesis in best:
            output = Output(text=text)
            if "scores" in asked.parts:
                output.score = round(hypothesis.score, 6)
                output.log_probability = round(hypothesis.log_probability, 6)
            if "tokens" in asked.parts:
                output.tokens = tokenizer.target_pieces(hypothesis.ids)
            source = one.windows[(windows or {}).get(hypothesis.ids, 0)]
            if source and looks(asked):
                self.check_shown(source, hypothesis.ids)
                if len(one.windows) > 1 and "tokens" in asked.parts:
                    output.source_tokens = tokenizer.source_pieces(source)
                look_into(output, self.bundle, source, self.bundle.ended(hypothesis.ids), asked)
            result.outputs.append(output)
        return result

    def event(self, inputs: Sequence[Input], event: Event) -> str:
        """What a client is told of an event."""
        tokenizer = self.bundle.tokenizer
        text = tokenizer.decode_target([event.ids])[0]
        best = hasattr(inputs[event.place].search, "beam_size")
        token = {} if best else {"token": tokenizer.target_pieces(event.ids[-1:])[0]}
        data = json.dumps({"index": event.place, **token, "text": text}, ensure_ascii=False)
        return sent("best" if best else "token", data)

    def stream(
        self,
        asked: GenerateRequest,
        inputs: Sequence[Input],
        tell: Tell,
        gone: threading.Event,
    ) -> Alone:
        """One job for all inputs, which tells of each step, and stops where the client has gone."""
        return Alone(lambda: [self.result(asked, one, Watch(one, tell, gone)) for one in inputs])


def too_many(what: str, most: int, came: int) -> HTTPException:
    """413: a request that must be split."""
    return HTTPException(413, f"a request may have {most:,} {what}, got {came:,}; split it")


def check_prefix(one: Input, best: Hypothesis) -> None:
    """A `UserError` where an input's limit is shorter than the beginning that was asked for."""
    if best.ids[: len(one.prefix)] != one.prefix and one.size:
        raise UserError(
            f"prefix has {len(one.prefix)} tokens, the output of input {one.place + 1} at most "
            f"{len(best.ids)}; give generation a larger limit.extra"
        )


def looks(asked: GenerateRequest) -> bool:
    """Whether a request asks for what needs another pass of the model."""
    return bool({"alignment", "attention"} & set(asked.parts))


def watched(search: Search, watch: Processor) -> Search:
    """The same search, with one more processor."""
    return replace(search, processors=[*listed(search.processors), watch])


class Watch(Processor):
    """Forbids nothing: tells what the best hypothesis has said, or ends the search."""

    def __init__(self, one: Input, tell: Tell | None, gone: threading.Event) -> None:
        self.place, self.gone = one.place, gone
        self.tell = tell if len(one.windows) == 1 else None

    def __call__(self, scores: Tensor, said: Tensor) -> None:
        if self.gone.is_set():
            raise Gone
        if self.tell is not None and said.shape[1]:
            self.tell(Event(self.place, said[0].tolist()))
