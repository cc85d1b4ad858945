"""Texts of several lines, for models that read single lines."""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TypeVar

from seqattn.data.source_ids import Headed

T = TypeVar("T")
INVISIBLE = "\u00ad\u200b\u2060\ufeff"
"""Soft hyphens, and spaces and joiners without width, which pages have within words."""
NO_BREAK = "\u00a0\u202f"
"""Spaces at which no line breaks."""
_BREAK = re.compile(r"(\r\n|\r|\n)")
_TOUCHING = re.compile(
    r"[\s\u2e80-\ua4cf\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff9f\U00020000-\U0003ffff]"
)
"""Spaces, and what Chinese and Japanese write without any."""
_BROKEN = re.compile(r"(?<!\s)\s*[\r\n]\s*")  # from a run's start: else quadratic in it


@dataclass(frozen=True)
class TextLines:
    """Texts split into lines, which are generated separately; `join` joins the outputs.

    Attributes:
        lines: inputs of the model, in order: the lines of all texts that are not blank, at least
            one for each text. A head is put before every line of its text.
        texts: the text number of each line, from 0.
        parts: for each text, its lines alternating with the line breaks, or its sentences and lines
            with what stands between them.
        copies: True if lines without a letter, such as 42, are copied. In place of a text of such
            lines alone, the model reads an empty one.
        sentences: by number of a text whose sentences the model reads as lines of a document, these
            alternating with what stands between them.
    """

    lines: list[str]
    texts: list[int]
    parts: list[list[str]]
    copies: bool = False
    sentences: dict[int, list[str]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        texts: Iterable[str],
        apart: bool = True,
        copies: bool = False,
        unread: str = "",
        split: Callable[[str, str], Sequence[str]] | None = None,
        joins: bool = False,
    ) -> "TextLines":
        """Split texts into lines, or use each as one line if `apart` is False and `split` None.

        Args:
            unread: characters to leave out of lines, or if they are spaces, to read as " ".
            split: returns the parts of a line that are generated separately, such as sentences,
                alternating with the spaces between them, some of them "". The parts joined are the
                line; its head is the second argument. None for whole lines.
            joins: True to use each text as one line in which the parts are lines, if `split`.
        """
        lines, numbers, parts, sentences = list[str](), list[int](), [], dict[int, list[str]]()
        for number, full_text in enumerate(texts):
            text = _without(full_text, unread)
            head = getattr(text, "head", 0)
            body = full_text[getattr(full_text, "head", 0) :]  # as it is copied
            raw = _BREAK.split(body) if (apart or split) and text[head:].strip() else []
            if split is not None:
                tags = text[:head]
                each = [split(line, tags) if _is_read(line, copies) else [line] for line in raw]
                raw = [*chain.from_iterable(each)]
                if joins and len(raw) > len(each):
                    sentences[number] = raw
                    read_as_lines = (_without(part, unread) for part in raw[::2])
                    text = Headed(tags + "\n".join(read_as_lines), head)
            if copies and is_letterless(text[head:]):
                text_parts, mine = ["", body], [""]
            elif joins or len(raw) < 2:
                text_parts, mine = [text], [text]
            else:
                text_parts = [
                    b if (copies and is_letterless(a)) or (split and b.isspace()) else a
                    for a, b in zip([_without(part, unread) for part in raw], raw)
                ]
                read = (part for part in text_parts if _is_read(part, copies))
                mine = [Headed(text[:head] + part, head) for part in read]
            lines += mine
            numbers += [number] * len(mine)
            parts.append(text_parts)
        return cls(lines, numbers, parts, copies, sentences)

    @property
    def copied(self) -> int:
        """Number of lines and sentences that are copied."""
        parts = chain.from_iterable(self.parts) if self.copies else ()
        return sum(len(part.splitlines()) for part in parts if is_letterless(part))

    def outputs_of(self, number: int, outputs: Sequence[str]) -> list[tuple[str, str, bool]]:
        """Return the parts of a text that are not blank, with their outputs, and True for a copy.

        Args: outputs: of the text's lines.
        """
        parts, remaining = self.parts[number], iter(outputs)
        return [
            (part, next(remaining), False) if _is_read(part, self.copies) else (part, part, True)
            for part in parts
            if part.strip()
        ]

    def groups(self, results: Iterable[T]) -> list[list[T]]:
        """Group results of lines by text."""
        remaining, sizes = iter(results), Counter(self.texts)
        return [list(islice(remaining, sizes[number])) for number in range(len(self.parts))]

    def join(self, outputs: Iterable[str]) -> list[str]:
        """Join the outputs of lines for each text, with its line breaks and blank lines."""
        groups = self.groups(outputs)
        return [self.join_text(number, group) for number, group in enumerate(groups)]

    def join_text(self, number: int, outputs: Sequence[str]) -> str:
        """Join the outputs of the lines of one text.

        If sentences touch, as in Chinese, a space is put between their outputs where their scripts
        need one. An output with more or fewer lines than its text has sentences stays as it is, or
        becomes one line if its text was.
        """
        parts, copies = self.parts[number], self.copies
        if number in self.sentences:
            parts, copies, (output,) = self.sentences[number], False, outputs
            outputs = [line for line in output.split("\n") if line.strip()]
            if len(outputs) != sum(_is_read(part, copies) for part in parts):
                return output if _BREAK.search("".join(parts)) else " ".join(outputs)
        if len(parts) == 1:
            return outputs[0]
        remaining = iter(outputs)
        texts = [next(remaining) if _is_read(part, copies) else part for part in parts]
        for at in range(1, len(parts) - 1):
            if not parts[at]:
                texts[at] = _space_between(texts[at - 1], texts[at + 1])
        return "".join(texts)


def is_letterless(text: str) -> bool:
    """Return True if a text is not blank, and has no letter of any script nor half a character."""
    letters = (character.isalpha() or "\ud800" <= character <= "\udfff" for character in text)
    return bool(text.strip()) and not any(letters)


def say_copied(count: int) -> None:
    """Print to standard error how many lines and sentences are copied, if any."""
    if count:
        s = "s" * (count > 1)
        print(f"copied {count:,} line{s} or sentence{s} without a letter", file=sys.stderr)


def as_single_lines(texts: Sequence[str]) -> list[str]:
    """Replace line breaks by spaces, with a note on standard error."""
    broken = [number for number, text in enumerate(texts, 1) if _BROKEN.search(text.strip())]
    if broken:
        which = "the text" if len(texts) == 1 else f"{len(broken):,} texts (first: {broken[0]:,})"
        print(
            f"the model reads single lines: line breaks in {which} are replaced by spaces",
            file=sys.stderr,
        )
    return [_in_one_line(text) if _BROKEN.search(text) else text for text in texts]


def _without(text: str, characters: str) -> str:
    if not any(character in text for character in characters):
        return text
    size = getattr(text, "head", 0)
    table = {ord(character): " " if character.isspace() else None for character in characters}
    head = text[:size].translate(table)
    return Headed(head + text[size:].translate(table), len(head))


def _is_read(part: str, copies: bool) -> bool:
    return bool(part.strip()) and not (copies and is_letterless(part))


def _space_between(left: str, right: str) -> str:
    ends = left[-1:] + right[:1]
    return "" if len(ends) < 2 or _TOUCHING.search(ends) else " "


def _in_one_line(text: str) -> str:
    size = getattr(text, "head", 0)
    head = _BROKEN.sub(" ", text[:size])
    return Headed(head + _BROKEN.sub(" ", text[size:]).strip(), len(head))
