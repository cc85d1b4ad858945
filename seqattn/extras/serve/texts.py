"""Outputs for texts: read, searched together or alone, and told."""

import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from starlette.exceptions import HTTPException

from seqattn.bundle.bundle import TextBundle
from seqattn.data.text_lines import TextLines
from seqattn.errors import UserError
from seqattn.extras.serve.checks import Shown, check_lines, check_prefix, looks, too_many
from seqattn.extras.serve.figures import Figures
from seqattn.extras.serve.interventions import intervened
from seqattn.extras.serve.limits import Limits
from seqattn.extras.serve.model_thread import Alone, Shared
from seqattn.extras.serve.outputs import different, look_into
from seqattn.extras.serve.schemas import Generated, GenerateRequest, Output
from seqattn.extras.serve.searches import beams_of, forced, prefix_ids, search_for, target_tokens
from seqattn.extras.serve.streams import Event, Tell, sent
from seqattn.extras.serve.watching import Left, Watch, watched
from seqattn.generation.base import Hypothesis, Search
from seqattn.generation.windows import generate_from_windows, search_windows

Windows = list[list[int]]
"""The ids of a source, in one part or in several."""


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


class Read(NamedTuple):
    """What is searched of a request, and the texts of which the inputs are the lines."""

    inputs: list[Input]
    lines: TextLines


@dataclass(frozen=True)
class Texts:
    """Turns requests into searches and hypotheses into results. Args: as `Spans`."""

    bundle: TextBundle
    limits: Limits
    figures: Figures

    def read(self, asked: GenerateRequest) -> Read:
        """The inputs of a request.

        Raises:
            HTTPException: 413 for too many inputs, lines or tokens.
            UserError: for anything else that does not fit.
        """
        texts = [asked.inputs] if isinstance(asked.inputs, str) else asked.inputs
        if len(texts) > self.limits.inputs:
            raise too_many("inputs", self.limits.inputs, len(texts))
        lines = self.bundle.lines(texts)
        if len(lines.lines) > self.limits.queue:
            raise too_many("lines", self.limits.queue, len(lines.lines))
        check_lines(asked, lines)
        search = search_for(self.bundle, asked.generation, asked.n_best)
        prefixes = self._prefixes(asked.prefix, len(texts)) or [()] * len(lines.lines)
        rows = zip(self.encode(lines.lines), lines.texts, prefixes, strict=True)
        inputs = [
            Input(windows, place, forced(search, prefix), prefix) for windows, place, prefix in rows
        ]
        self._check(asked, search, inputs)
        return Read(inputs, lines)

    def _check(self, asked: GenerateRequest, search: Search, inputs: Sequence[Input]) -> None:
        """Refuses what is too much for a search, or not for it."""
        sizes = [len(window) for one in inputs for window in one.windows]
        target = target_tokens(search, sizes, self.bundle.model.max_target_length)
        if target > self.limits.target_tokens:
            raise HTTPException(
                413,
                f"the hypotheses of a request may have {self.limits.target_tokens:,} tokens, these "
                f"{target:,}; split it, or ask for fewer or shorter ones",
            )
        if asked.intervene is not None and any(len(one.windows) > 1 for one in inputs):
            raise UserError("intervene takes texts that are read in one part; shorten them")
        if asked.intervene is not None or looks(asked):
            for one in inputs:
                self.check_shown(max(one.windows, key=len))
        if asked.stream and beams_of(search) > 1 and not hasattr(search, "beam_size"):
            if hasattr(search, "samples"):
                raise UserError("generation=mbr says nothing until all is drawn; leave stream out")
            raise UserError("stream gives one sample; leave n_best out")

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
            return []
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
        shown = Shown(self.limits.shown_tokens)
        return [Alone(partial(self.result, asked, one, shown)) for one in inputs]

    def search(self, search: Search, inputs: Sequence[Input], left: Left) -> list[list[Hypothesis]]:
        """Hypotheses of inputs with one search."""
        places = [one.place for one in inputs]
        generator = watched(search, Watch(left)).over(self.bundle.model)
        return generate_from_windows(generator, [one.windows for one in inputs], places)

    def result(
        self,
        asked: GenerateRequest,
        one: Input,
        shown: Shown,
        left: Left,
        tell: Tell | None = None,
    ) -> Generated:
        """Searches an input alone, under what the request changes in the model."""
        search = watched(one.search, watch_of(one, left, tell))
        with intervened(self.bundle.model, asked.intervene, beams_of(search)):
            generator = search.over(self.bundle.model)
            found = search_windows(generator, [one.windows], [one.place])[0]
        windows = {each.hypothesis.ids: each.window for each in found}
        return self.told(asked, one, [each.hypothesis for each in found], windows, shown)

    def told(
        self,
        asked: GenerateRequest,
        one: Input,
        found: Sequence[Hypothesis],
        windows: Mapping[tuple[int, ...], int] | None = None,
        shown: Shown | None = None,
    ) -> Generated:
        """The result of an input.

        Args:
            asked: the request.
            one: the input.
            found: its hypotheses.
            windows: in which of its windows each was found, where that is to be shown.
            shown: told of each output whose attention is given.

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
                if shown is not None and "attention" in asked.parts:
                    shown.add(len(source) + len(hypothesis.ids))
                if len(one.windows) > 1 and "tokens" in asked.parts:
                    output.source_tokens = tokenizer.source_pieces(source)
                look_into(output, self.bundle, source, self.bundle.ended(hypothesis.ids), asked)
            result.outputs.append(output)
        return result

    def event(self, inputs: Sequence[Input], event: Event) -> str:
        """What a client is told of an event."""
        tokenizer, ids = self.bundle.tokenizer, event.ids.tolist()
        text = tokenizer.decode_target([ids])[0]
        best = hasattr(inputs[event.place].search, "beam_size")
        token = {} if best else {"token": tokenizer.target_pieces(ids[-1:])[0]}
        data = json.dumps({"index": event.place, **token, "text": text}, ensure_ascii=False)
        return sent("best" if best else "token", data)

    def stream(self, asked: GenerateRequest, inputs: Sequence[Input], tell: Tell) -> Alone:
        """One job for all inputs, which tells of each step."""
        shown = Shown(self.limits.shown_tokens)
        return Alone(lambda left: [self.result(asked, one, shown, left, tell) for one in inputs])


def watch_of(one: Input, left: Left, tell: Tell | None = None) -> Watch:
    """The watch over an input's search, which tells of its steps where it is read in one part."""
    if tell is None or len(one.windows) > 1:
        return Watch(left)
    return Watch(left, lambda ids: tell(Event(one.place, array("i", ids))))
