"""Glossaries: target terms of source terms, from files and requests."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from seqattn.bundle.bundle import Bundle
from seqattn.data.text_files import read_lines
from seqattn.data.text_lines import TextLines
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.extras.terms.line_terms import Forbidden, LineTerms, Required
from seqattn.extras.terms.search import TermBeamSearch
from seqattn.extras.terms.words import Index, Lexicon
from seqattn.generation.base import Search
from seqattn.generation.beam import BeamSearch
from seqattn.generation.constraints import Constraints
from seqattn.storage import user_path
from seqattn.tokens import UNK

LONGEST = 40
"""Maximum tokens of a target term, and hundreds of characters of a line."""


class Term(NamedTuple):
    """Required and forbidden targets of a source term, each with its place in the glossary."""

    required: dict[str, str]
    forbidden: dict[str, str]


Spelled = tuple[list[Required], list[Forbidden]]


@dataclass(frozen=True)
class Glossary:
    """Terms that outputs must have, or must not have, where the source has theirs.

    Args:
        file: lines of a source term and target terms, separated by tabs; None for `entries`.
        entries: a target term, or several, for each source term. One of several is enough, and "!"
            before one forbids it; those of the source term "" are forbidden in every output.
        case: True if upper and lower case differ.

    Raises:
        UserError: an entry is malformed, or both required and forbidden.
    """

    file: str | None = None
    entries: Mapping[str, Any] = field(default_factory=dict)
    case: bool = False

    def __post_init__(self) -> None:
        if (self.file is None) == (not self.entries):
            raise UserError("terms needs either a file or entries")
        if not self.terms:
            raise UserError(f"terms.file={self.file} has no terms")

    @cached_property
    def terms(self) -> dict[str, Term]:
        """Terms by source term, folded unless `case`."""
        terms: dict[str, Term] = {}
        for source, target, where in self._rows():
            own = terms.setdefault(self._folded(source), Term({}, {}))
            if target.startswith("!"):
                own.forbidden[target[1:].strip()] = where
            else:
                own.required[target] = where
        always = terms.get("", Term({}, {}))
        for target, where in always.required.items():
            raise UserError(f"{where}: {target!r} is required without a source term; add one")
        every = self._index(always.forbidden)
        for own in (one for one in terms.values() if one.required):
            for index in (every, self._index(own.forbidden)):
                for target, where in own.required.items():
                    for _, other in index.found(self._folded(target)):
                        there = f"{index.terms[other]} forbids it"
                        raise UserError(f"{where}: {target!r} is required, but {there}")
        return terms

    @cached_property
    def _places(self) -> dict[str, str]:
        """Place of each target term."""
        return {
            text: where for own in self.terms.values() for one in own for text, where in one.items()
        }

    def _index(self, targets: Mapping[str, str]) -> Index:
        return Index({self._folded(text): where for text, where in targets.items()})

    @cached_property
    def _sources(self) -> Index:
        return Index({source: source for source in self.terms if source})

    @cached_property
    def _targets(self) -> Index:
        texts = defaultdict[str, list[str]](list)
        for text in self._places:
            texts[self._folded(text)].append(text)
        return Index(texts)

    def _rows(self) -> Iterator[tuple[str, str, str]]:
        """Yield source term, target term and place of each entry."""
        if self.file is None:
            lines = [(f"terms entry {source!r}", [source, *_listed(target)])
                     for source, target in self.entries.items()]  # fmt: skip
        else:
            path = user_path(self.file)
            numbered = enumerate(read_lines(Path(path), 100 * LONGEST), 1)
            lines = [(f"{path} line {n}", line.split("\t")) for n, line in numbered if line.strip()]
        for where, (source, *targets) in lines:
            source, targets = source.strip(), [target.strip() for target in targets]
            if not targets or not all(target.strip("!") for target in targets):
                raise UserError(f"{where} must be a source term, a tab and target terms")
            yield from ((source, target, where) for target in targets)

    def _folded(self, text: str) -> str:
        return text if self.case else text.casefold()

    @property
    def files(self) -> dict[str, Path]:
        """Files that it is read from, by key."""
        return {} if self.file is None else {"terms.file": Path(user_path(self.file))}

    def search(self, search: Search) -> Search:
        """Return a search that finds outputs with the terms.

        Raises:
            UserError: another search cannot.
        """
        if type(search) is BeamSearch:
            return TermBeamSearch.of(search)
        if any(own.required for own in self.terms.values()):
            name = type(search).__name__
            raise UserError(
                f"required terms need generation=beam, got {name}; forbidden ones need no beam"
            )
        return search

    def constraints(
        self, bundle: Bundle, lines: TextLines, each: Sequence[Constraints] | None
    ) -> list[Constraints]:
        """Return the constraints of lines with the terms of each.

        Args:
            bundle: the bundle.
            lines: as from `Bundle.lines`.
            each: other constraints of each line, None for none.

        Raises:
            UserError: the vocabulary lacks some of a target term, or it is too long.
        """
        self._read(bundle)
        begun = each or [Constraints(bundle.tokenizer.target_begin)] * len(lines.lines)
        rows = zip(lines.lines, begun, strict=True)
        return [replace(own, processor=self.line(bundle, line)) for line, own in rows]

    def line(self, bundle: Bundle, source: str) -> LineTerms | None:
        """Return the terms of a source, None for none."""
        known, required, forbidden = self._read(bundle), list[Required](), list[Forbidden]()
        for term, own in self.matching(source).items():
            if term not in known:
                known[term] = self._spelled(bundle, own)
            required += known[term][0]
            forbidden += known[term][1]
        if not required and not forbidden:
            return None
        return LineTerms(Lexicon.of(bundle), required, forbidden, self._folds(bundle))

    def _spelled(self, bundle: Bundle, own: Term) -> Spelled:
        """Return the terms of a source term as the tokens of a bundle spell them."""
        lexicon, fold = Lexicon.of(bundle), self._folds(bundle)
        each = {text: _forms(bundle, text, not self.case) for part in own for text in part}
        texts = {text: lexicon.text(forms[0], fold).strip() for text, forms in each.items()}
        required, forbidden = ([texts[text] for text in part] for part in own)
        forms = dict.fromkeys(chain(*(each[text] for text in own.required)))
        return (
            [Required(required, [*forms])] if required else [],
            [Forbidden(forbidden, lexicon, fold)] if forbidden else [],
        )

    def _read(self, bundle: Bundle) -> dict[str, Spelled]:
        """Return the terms of source terms as a bundle spells them, so far, after a check."""
        if bundle.tokenizer not in self._known:
            self._check(bundle)
            self._known[bundle.tokenizer] = {}
        return self._known[bundle.tokenizer]

    @cached_property
    def _known(self) -> "WeakKeyDictionary[Tokenizer, dict[str, Spelled]]":
        return WeakKeyDictionary()

    def _folds(self, bundle: Bundle) -> bool:
        return not self.case or bundle.tokenizer.truecaser is not None

    def _check(self, bundle: Bundle) -> None:
        each, begin = self._places, len(bundle.tokenizer.target_begin)
        rows = bundle.tokenizer.encode_target([*each])
        for (text, where), ids in zip(each.items(), rows, strict=True):
            if UNK in ids or len(ids) <= begin + 1:
                raise UserError(f"{where}: the target vocabulary lacks some of {text!r}")
            if len(ids) > LONGEST:
                tokens = f"{text!r} has {len(ids) - 1} tokens"
                raise UserError(f"{where}: {tokens}, but the maximum is {LONGEST - 1}")

    def matching(self, source: str) -> dict[str, Term]:
        """Return the terms that a source has, by its own, the longer of two that overlap."""
        taken = set[int]()
        found = [
            (-len(term), place, term) for place, term in self._sources.found(self._folded(source))
        ]
        found += [(0, 0, "")] * ("" in self.terms)
        terms = {}
        for size, place, term in sorted(found):
            places = range(place, place - size)
            if taken.isdisjoint(places):
                taken.update(places)
                terms[term] = self.terms[term]
        return terms

    def unmet(self, source: str, output: str) -> list[str]:
        """Return the required terms of a source that an output lacks, and "!" with those that it
        must not have."""
        wrong = []
        for own in self.matching(source).values() if source.strip() else ():
            has = self.present(own, output)
            if own.required and not {*has} & {*own.required}:
                wrong.append(" | ".join(own.required))
            wrong += [f"!{one}" for one in own.forbidden if one in has]
        return wrong

    def present(self, own: Term, output: str) -> list[str]:
        """Return the required and the forbidden target terms that an output has."""
        index = self._targets
        found = {text for _, key in index.found(self._folded(output)) for text in index.terms[key]}
        return [one for one in (*own.required, *own.forbidden) if one in found]


def _listed(target: Any) -> list[str]:
    targets = [target] if isinstance(target, str) else target
    if isinstance(targets, Sequence) and all(isinstance(one, str) for one in targets):
        return [*targets]
    raise UserError(f"target terms must be texts, got {target!r}")


def _forms(bundle: Bundle, text: str, capital: bool) -> list[tuple[int, ...]]:
    """Return the tokens of a term at a start and after a space, also with a capital letter."""
    texts = [text, *[f"{text[:1].upper()}{text[1:]}"] * capital]
    texts += [f" {one}" for one in texts]
    begin, lexicon = len(bundle.tokenizer.target_begin), Lexicon.of(bundle)
    rows = [tuple(row[begin:-1]) for row in bundle.tokenizer.encode_target(texts)]
    # many models put a space before a text themselves: then another one would be too many
    good = (row for row in rows if UNK not in row and not lexicon.text(row).startswith("  "))
    return [*dict.fromkeys(good)]
