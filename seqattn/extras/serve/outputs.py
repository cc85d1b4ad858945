"""Result of an input: texts, scores, pieces, and attention."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from torch import Tensor

from seqattn.analysis.capture import place_of
from seqattn.analysis.pairs import Pair, observed
from seqattn.analysis.word_alignment import WordAlignment, align, aligning
from seqattn.bundle.bundle import Bundle
from seqattn.bundle.text_options import TextOption, checked_by
from seqattn.data.text_lines import TextLines
from seqattn.errors import UserError
from seqattn.extras.report.arrays import packed
from seqattn.extras.serve.interventions import intervened
from seqattn.extras.serve.limits import Limits
from seqattn.extras.serve.metrics import ModelMetrics
from seqattn.extras.serve.schemas import (
    Alignment,
    Generated,
    GenerateRequest,
    Maps,
    Output,
    Quality,
)
from seqattn.extras.serve.searches import Input
from seqattn.generation.base import Hypothesis
from seqattn.generation.generator import Generator, InWindow
from seqattn.settings.choices import choices
from seqattn.settings.nodes import build

_LABELS = "unusable", "review", "usable"
"""Labels of quality, worst first."""


class Results:
    """Builder of the results of a request.

    Args:
        bundle: the model.
        request, options: the request, and its options for the bundle.
        limits: `shown_tokens` is used: all outputs of a request together may have as many
            attention weights as a single one with that many tokens.
        metrics: counts tokens.
    """

    def __init__(
        self,
        bundle: Bundle,
        request: GenerateRequest,
        options: Mapping[str, TextOption],
        limits: Limits,
        metrics: ModelMetrics,
    ) -> None:
        self.bundle, self.request, self.limits, self.metrics = bundle, request, limits, metrics
        self.options = options
        self._shown = 0
        self._judge = judge_of(bundle) if "quality" in request.parts else None

    def checked(
        self, one: Input, hypotheses: Sequence[InWindow], generator: Generator
    ) -> Sequence[InWindow]:
        """Return the hypotheses of an input after the checks of options.

        Args: generator: searches it again, if an option does so.
        """
        plain = [each.hypothesis for each in hypotheses]
        ((*results,),) = checked_by(
            self.options.values(),
            self.bundle,
            generator,
            [one.text],
            [one.drawn_by],
            [plain],
            one.constraints is not None,
        )
        return hypotheses if results == plain else [InWindow(each, 0) for each in results]

    def result(self, one: Input, hypotheses: Sequence[InWindow]) -> Generated:
        """Return the result of an input from its hypotheses, best first.

        Raises:
            UserError: if attention is requested for too many tokens.
        """
        best = self._different(hypotheses)
        said = sum(len(each.hypothesis.ids) + 1 for _, each in best)
        self.metrics.tokens(one.size, said)
        windows = len(one.windows)
        result = Generated(outputs=[], windows=windows if windows > 1 else None)
        if "tokens" in self.request.parts:
            result.tokens = self.bundle.tokenizer.source_pieces(one.windows[0])
        result.outputs = [self._output(one, text, *each) for text, each in best]
        return result

    def _different(self, hypotheses: Sequence[InWindow]) -> list[tuple[str, InWindow]]:
        """Return the best hypotheses with distinct texts, and these texts."""
        best: dict[str, InWindow] = {}
        texts = self.bundle.tokenizer.decode_target([one.hypothesis.ids for one in hypotheses])
        for text, one in zip(texts, hypotheses, strict=True):
            best.setdefault(text, one)
        return list(best.items())[: self.request.n_best]

    def _output(self, one: Input, text: str, hypothesis: Hypothesis, window: int) -> Output:
        parts, tokenizer = self.request.parts, self.bundle.tokenizer
        output, source = Output(text=text), one.windows[window]
        if "scores" in parts:
            output.score = round(hypothesis.score, 6)
            output.log_probability = round(hypothesis.log_probability, 6)
        if "tokens" in parts:
            output.tokens = tokenizer.target_pieces(hypothesis.ids)
        if source and self.request.looks:
            self._check_shown(len(source), len(hypothesis.ids))
            if len(one.windows) > 1 and "tokens" in parts:
                output.source_tokens = tokenizer.source_pieces(source)
            target = self.bundle.with_end_mark(hypothesis.ids)
            if {"alignment", "attention"} & set(parts):
                whole = one.text if len(one.windows) == 1 else None
                self._look(output, source, target, whole)
            if self._judge is not None and len(one.windows) == 1:
                output.quality = Quality(**self._judge.judge_ids(source, target).document())
        return output

    def _check_shown(self, source: int, output: int) -> None:
        most = self.limits.shown_tokens
        self.limits.check_shown(source, output)
        if "attention" in self.request.parts:
            self._shown += (source + output) ** 2
        if self._shown > most**2:
            raise UserError(
                "together, the attention maps of all outputs may be no larger than those of one "
                f"output with {most:,} tokens; request fewer outputs"
            )

    def _look(self, output: Output, source: list[int], target: list[int], text: str | None) -> None:
        """Add alignment and attention to an output, from a pass over the complete output."""
        with intervened(self.bundle.model, self.request.intervene):
            maps = observed(self.bundle.model, Pair(source, target))
        weights = {name: calls[0][0] for name, calls in maps.items() if calls}
        if "attention" in self.request.parts:
            form: Any = numbers if self.request.attention_as == "lists" else packed
            shown_maps = {name: form(one) for name, one in weights.items()}
            output.attention = Maps(maps=shown_maps, without=maps.without)
        cross = [one for name, one in weights.items() if place_of(name)[0] == "cross"]
        if "alignment" in self.request.parts and cross:
            read, said = self.bundle.pieces_of((source, target), (text, output.text))
            rows = aligning(cross, self.bundle.reading)
            words = align(rows, read, said, self.bundle.words_by)
            output.alignment = Alignment(
                source=words.source, output=words.target, links=words.links
            )


def judge_of(bundle: Bundle) -> Any:
    """Return the judge of a bundle's outputs, with the usual settings.

    Raises:
        UserError: if the bundle is not calibrated, or the extra is not installed.
    """
    known = choices("quality")
    if not known:
        raise UserError("return=quality needs an extra that is not installed")
    quality: Any = build(known["true"])
    return quality.of(bundle)


def numbers(values: Tensor) -> list[Any]:
    """Round numbers to six decimals, as nested lists."""
    return values.double().round(decimals=6).tolist()


def joined(lines: TextLines, results: Sequence[Generated]) -> list[Generated]:
    """Join the results of lines into one result for each text: scores are summed, breaks kept."""
    return [_joined(lines, *one) for one in enumerate(lines.groups(results))]


def _joined(lines: TextLines, number: int, results: list[Generated]) -> Generated:
    if len(results) == 1:
        for output in results[0].outputs:
            if output.alignment is not None and len(lines.parts[number]) > 1:
                output.alignment = _joined_alignment(lines, number, [output])
            output.quality = _joined_quality(lines, number, [output])
            output.text = lines.join_text(number, [output.text])
        return results[0]
    outputs = []
    for rank in range(max(len(one.outputs) for one in results)):
        each = [one.outputs[min(rank, len(one.outputs) - 1)] for one in results]
        output = Output(text=lines.join_text(number, [one.text for one in each]))
        if all(one.alignment is not None for one in each):
            output.alignment = _joined_alignment(lines, number, each)
        output.quality = _joined_quality(lines, number, each)
        for name in ("score", "log_probability"):
            values = [getattr(one, name) for one in each]
            if None not in values:
                setattr(output, name, round(sum(values), 6))
        outputs.append(output)
    return Generated(outputs=outputs, lines=len(results))


def _joined_alignment(lines: TextLines, number: int, outputs: Sequence[Output]) -> Alignment:
    """Return the alignment of a text from those of its lines; one that is copied has its own."""
    aligned, parts = (cast(Any, one.alignment) for one in outputs), list[WordAlignment]()
    for line, _, is_copy in lines.outputs_of(number, [one.text for one in outputs]):
        if is_copy:
            parts.append(WordAlignment.of_copy(line))
        else:
            own = next(aligned)
            parts.append(WordAlignment(own.source, own.output, own.links))
    words = WordAlignment.joined(parts)
    return Alignment(source=words.source, output=words.target, links=words.links)


def _joined_quality(lines: TextLines, number: int, outputs: Sequence[Output]) -> Quality | None:
    """Return the quality of the worst line of a text, with the words to check of all lines."""
    judged = [one.quality for one in outputs if one.quality is not None]
    if not judged:
        return None
    worst = min(judged, key=lambda one: (_LABELS.index(one.label), one.expected))
    marks: dict[str, list[tuple[int, str]]] = {"unsupported": [], "left_out": []}
    each, words = iter(outputs), dict.fromkeys(marks, 0)
    for line, text, is_copy in lines.outputs_of(number, [one.text for one in outputs]):
        quality = None if is_copy else next(each).quality
        for name, side in (("unsupported", text), ("left_out", line)):
            of_line = getattr(quality, name) if quality is not None else ()
            marks[name] += [(words[name] + place, word) for place, word in of_line]
            words[name] += len(side.split())
    return worst.model_copy(update=marks)
