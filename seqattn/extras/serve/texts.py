"""Requests with texts: encoded within the limits, and decoded in batches or one at a time."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import Any, cast

from seqattn.bundle.bundle import Bundle
from seqattn.bundle.text_arguments import text_list
from seqattn.bundle.text_options import TextOption, is_option, options_of, search_with, split_with
from seqattn.data.text_lines import TextLines
from seqattn.errors import UserError
from seqattn.extras.report.sentences import looks_into
from seqattn.extras.serve.interventions import intervened
from seqattn.extras.serve.limits import Limits
from seqattn.extras.serve.marked import marked
from seqattn.extras.serve.metrics import ModelMetrics
from seqattn.extras.serve.model_thread import Alone, Job, Shared, Task
from seqattn.extras.serve.outputs import Results, joined, judge_of
from seqattn.extras.serve.questions import pairs_of
from seqattn.extras.serve.schemas import (
    Answer,
    AnswerRequest,
    AnswerResponse,
    Answers,
    Generated,
    GenerateRequest,
    GenerateResponse,
    SentenceRequest,
)
from seqattn.extras.serve.searches import (
    Input,
    Left,
    OnEvent,
    Watch,
    check_target,
    input_search,
    passes_watched,
    search_for,
    watched,
)
from seqattn.generation.base import Search
from seqattn.generation.constraints import Constraints
from seqattn.generation.generator import InWindow, check_prefix
from seqattn.settings.choices import choices

_OF_LINES = ("scores", "alignment", "quality")
"""Parts of a result that texts of several lines have, too."""
_OF_A_TEXT = ("generation", "prefix", "intervene", "stream")


@dataclass(frozen=True)
class Texts:
    """Reader of requests with texts; turns hypotheses into results.

    Args:
        bundle: the model.
        limits: limits of a request.
        metrics: counts tokens.
    """

    bundle: Bundle
    limits: Limits
    metrics: ModelMetrics

    def generate(self, request: GenerateRequest, on_event: OnEvent | None = None) -> Task:
        """Return the work for a `GenerateResponse`, with progress events if anyone listens.

        Raises: as `read`.
        """
        if request.target_language is not None:
            into = replace(self, bundle=self.bundle.into(request.target_language))
            return into.generate(request.model_copy(update={"target_language": None}), on_event)
        if request.format != "text":
            self.limits.check_texts(text_list(request.inputs))
            return marked(self, request)
        watched = request.intervene is not None or "attention" in request.parts
        options = self._options(request)
        inputs, lines = self.read(request, options, copies=not watched)
        results = Results(self.bundle, request, options, self.limits, self.metrics)

        def search_alone(left: Left, some: Sequence[Input] = inputs) -> list[Generated]:
            return [self._alone(one, results, left, on_event) for one in some]

        jobs: list[Job]
        if on_event is not None:
            jobs = [Alone(search_alone)]
        elif request.intervene is not None or request.looks:
            jobs = [Alone(partial(search_alone, some=[one])) for one in inputs]
        else:
            jobs = [Shared(one.search, (one, results), one.size) for one in inputs]

        def response(outcomes: list[list[Generated]]) -> GenerateResponse:
            each = joined(lines, [result for several in outcomes for result in several])
            if (terms := cast(Any, options.get("terms"))) is not None:
                for text, result in zip(text_list(request.inputs), each, strict=True):
                    for output in result.outputs:
                        output.unmet = terms.unmet(text, output.text) or None
            notices = [line for option in options.values() for line in option.notices()]
            return GenerateResponse(results=each, notices=notices or None)

        return Task(jobs, response)

    def answer(self, request: AnswerRequest) -> Task:
        """Return the work for an `AnswerResponse`. Raises: as `read`."""
        pairs, bundle = pairs_of(request, self.limits), cast(Any, self.bundle)
        jobs, response = self.generate(
            GenerateRequest.model_construct(  # its checks would turn them into plain texts
                inputs=[bundle.source_of(*pair) for pair in pairs],
                generation=request.generation,
                n_best=request.n_best,
            )
        )

        def answers(outcomes: list[Any]) -> AnswerResponse:
            each = [
                [Answer(text=one.text, score=one.score) for one in result.outputs]
                for result in response(outcomes).results
            ]
            return AnswerResponse(results=[Answers(answers=several) for several in each])

        return Task(jobs, answers)

    def writer(self) -> "Texts":
        """Return self, which generates texts."""
        return self

    def look(self, request: SentenceRequest, source: str, on_event: OnEvent | None) -> Alone:
        """Return the work for a document of one source. Raises: as `read`."""
        source = self.one_line(source)
        keys = {name: getattr(request, name) for name in _OF_A_TEXT}
        (one,), _ = self.read(
            GenerateRequest.model_construct(inputs=[source], **keys), {}, copies=False
        )
        self.limits.check_shown(len(one.longest))
        model = self.bundle.model

        def look(left: Left) -> Any:
            @contextmanager
            def passes() -> Iterator[None]:
                with passes_watched(model, left), intervened(model, request.intervene):
                    yield

            search = input_search(one, left, on_event)
            if one.constraints is not None:
                search = search.under([one.constraints])
            into: Any = looks_into([self.bundle], search)[0]
            with intervened(model, request.intervene, search.beams):
                searched = into.searched(source)
            best = searched.hypotheses[0]
            self.metrics.tokens(one.size, len(best.ids) + 1)
            self.limits.check_shown(len(searched.source), len(best.ids))
            calibrated = self.bundle.config.get("calibration") and choices("quality")
            judge = judge_of(self.bundle) if calibrated and not request.intervene else None
            return replace(into, passes=passes, judge=judge).inspected(source, searched, [])

        return Alone(look)

    def _options(self, request: GenerateRequest) -> dict[str, TextOption]:
        """Return the options of a request for the bundle."""
        values: dict[str, Any] = {}
        if request.terms is not None:
            values["terms"] = {"entries": request.terms, "case": request.terms_case}
        if is_option("sentences"):
            values["sentences"] = request.sentences
        elif request.sentences not in ("auto", "none"):
            raise UserError("sentences needs an extra that is not installed")
        if is_option("document_lines"):
            values["document_lines"] = request.document_lines
        return {key: option.of(self.bundle) for key, option in options_of(values).items()}

    def read(
        self, request: GenerateRequest, options: Mapping[str, TextOption], copies: bool
    ) -> tuple[list[Input], TextLines]:
        """Return the inputs of a request, and the texts that their lines come from.

        Args: options, copies: for the bundle, and as in `Bundle.lines`.

        Raises:
            TooMuch: if there are too many inputs, lines or tokens.
            UserError: if the request is otherwise invalid.
        """
        texts = text_list(request.inputs)
        self.limits.check_texts(texts)
        beside = [name for name in ("prefix", "intervene") if getattr(request, name)]
        beside += [f"return={part}" for part in request.parts if part not in _OF_LINES]
        split = split_with(options.values(), beside)
        lines = self.bundle.lines(texts, copies, split)
        self.limits.check("queue", len(lines.lines), "lines")
        _check_lines(beside, lines)
        search = search_for(self.bundle, request.generation, request.n_best)
        search = search_with(options.values(), search)
        each = self.bundle.constraints(lines, request.prefix, options.values()) or repeat(None)
        numbers = [
            number if len(group) > 1 else None
            for group in lines.groups(lines.lines)
            for number in range(len(group))
        ]
        rows = zip(self.encode(lines.lines), lines.texts, numbers, each, lines.lines)
        inputs = [
            Input(windows, at, number, search, own, text) for windows, at, number, own, text in rows
        ]
        searched = [[window for one in inputs for window in one.windows]]
        if (option := options.get("document_lines")) is not None and option.has_effect:
            encoded = self.bundle.encode(
                [line for text in lines.lines for line in text.split("\n")]
            )
            searched.append([window for windows in encoded for window in windows])
        for windows in searched:
            longest, most = self.bundle.model.max_target_length, self.limits.target_tokens
            check_target(search, [*map(len, windows)], longest, most)
        self._check(request, search, inputs)
        return inputs, lines

    def _check(self, request: GenerateRequest, search: Search, inputs: Sequence[Input]) -> None:
        """Raise an error if the request does not suit the search, or shows too many tokens."""
        for one in inputs:
            if one.constraints is not None:
                for window in one.windows:
                    check_prefix(self.bundle.model, search, len(window), one.place, one.constraints)
        if request.intervene is not None and any(len(one.windows) > 1 for one in inputs):
            raise UserError("intervene supports only texts that fit in one window; shorten them")
        if request.intervene is not None or request.looks:
            for one in inputs:
                self.limits.check_shown(len(one.longest))
        if request.stream and search.beams > 1 and not hasattr(search, "beam_size"):
            if hasattr(search, "samples"):
                raise UserError("generation=mbr does not support streaming; remove stream")
            raise UserError("stream supports a single sample; remove n_best")

    def encode(self, texts: Sequence[str]) -> list[list[list[int]]]:
        """Encode the windows of each text, within the limits of a request and of the model.

        Raises: as `read`.
        """
        read = self.bundle.encode(texts)
        self.limits.check("tokens", sum(len(window) for windows in read for window in windows))
        longest = self.bundle.model.max_source_length
        for number, windows in enumerate(read, 1):
            length = max(map(len, windows))
            if longest is not None and length > longest:
                raise UserError(
                    f"input {number} has {length} tokens, but this model reads at most {longest}; "
                    "shorten it"
                )
        return read

    def one_line(self, source: str) -> str:
        """Return the single line of a text to analyze, without blank lines around it.

        Raises:
            UserError: if the model reads line by line and there are several.
        """
        self.limits.check_texts([source])
        line, *others = self.bundle.lines([source], copies=False).lines
        if others:
            raise UserError("this model reads one line, but the text has several; send one line")
        return line

    def search(
        self, search: Search, items: Sequence[tuple[Input, Results]], left: Left
    ) -> list[list[Generated]]:
        """Search several inputs together and return a list with the result of each."""
        generator = self.bundle.generator(watched(search, Watch(left)))
        windows, indices = [one.windows for one, _ in items], [one.drawn_by for one, _ in items]
        constraints = [one.constraints for one, _ in items if one.constraints is not None]
        if constraints:
            free = Constraints(self.bundle.tokenizer.target_begin)
            constraints = [one.constraints or free for one, _ in items]
        hypotheses = generator.search_windows(windows, indices, None, constraints or None)
        return [
            [results.result(one, results.checked(one, several, generator))]
            for (one, results), several in zip(items, hypotheses, strict=True)
        ]

    def _alone(
        self, one: Input, results: Results, left: Left, on_event: OnEvent | None
    ) -> Generated:
        """Search an input by itself, with the request's interventions in the model."""
        search = input_search(one, left, on_event, results.request.looks)
        with intervened(self.bundle.model, results.request.intervene, search.beams):
            generator = self.bundle.generator(search)
            own = None if one.constraints is None else [one.constraints]
            hypotheses: Sequence[InWindow] = generator.search_windows(
                [one.windows], [one.drawn_by], None, own
            )[0]
        if results.request.intervene is None:
            generator = self.bundle.generator(watched(one.search, Watch(left)))  # without events
            hypotheses = results.checked(one, hypotheses, generator)
        with passes_watched(self.bundle.model, left):
            return results.result(one, hypotheses)


def _check_lines(beside: Sequence[str], lines: TextLines) -> None:
    """Raise UserError if there are several lines and the request has settings for a single one.

    Args: beside: such settings.
    """
    if beside and len(lines.lines) > len(lines.parts):
        raise UserError(
            f"this model reads one line, but a text has several; remove {', '.join(beside)}, or "
            "send each line as a separate text"
        )
