"""Glossaries: target terms of source terms, from files and requests."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from seqattn.bundle.bundle import Bundle
from seqattn.bundle.text_options import Note, OutputOf, TextOption
from seqattn.data.text_files import read_lines
from seqattn.data.text_lines import TextLines
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.extras.terms.line_terms import Forbidden, LineTerms, Required
from seqattn.extras.terms.search import TermBeamSearch
from seqattn.extras.terms.words import Index, Lexicon, plain
from seqattn.generation.base import Search
from seqattn.generation.beam import BeamSearch
from seqattn.generation.constraints import Constraints
from seqattn.inputs import check_there
from seqattn.storage import kind_of, user_path
from seqattn.tokens import UNK

_HEADERS = [
    {*names.split()}
    for names in (
        "source src target tgt trg term terms translation language en de fr es pt nl pl ru zh ja "
        "english german french spanish italian portuguese dutch polish russian czech "
        "turkish swedish ukrainian danish finnish greek hungarian chinese japanese korean arabic",
        "quelle ziel quellsprache zielsprache deutsch englisch französisch spanisch italienisch de "
        "en niederländisch portugiesisch polnisch russisch tschechisch türkisch chinesisch",
        "source cible terme traduction langue anglais allemand français espagnol italien fr en de",
        "origen destino término traducción idioma inglés alemán francés español italiano es en de",
    )
]
"""Words of headers in one language."""
LONGEST = 40
"""Maximum tokens of a target term, and hundreds of characters of a line."""


class Term(NamedTuple):
    """Required and forbidden targets of a source term, each with its place in the glossary."""

    required: dict[str, str]
    forbidden: dict[str, str]


@dataclass(frozen=True)
class Glossary(TextOption):
    """Terms that outputs must have, or must not have, where the source has theirs.

    Args:
        file: lines of a source term and target terms, separated by tabs, or a ".csv" file; None for
            `entries`.
        entries: a target term, or several, for each source term. One of several is enough, and "!"
            before one forbids it; those of the source term "" are forbidden in every output.
        case: True if upper and lower case differ.

    Raises:
        UserError: an entry is malformed, or both required and forbidden.
    """

    file: str | None = None
    entries: Mapping[str, Any] = field(default_factory=dict)
    case: bool = False
    _unmet: list[tuple[int, Sequence[str]]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )
    _late: list[int] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if (self.file is None) == (not self.entries):
            raise UserError("terms needs either a file or entries")
        if not self.terms:
            raise UserError(f"terms.file={self.file} has no terms")

    @cached_property
    def terms(self) -> dict[str, Term]:
        """Terms by source term, as it is compared."""
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
        every = Index(always.forbidden, self._folded)
        for own in (one for one in terms.values() if one.required):
            index = Index(own.forbidden, self._folded)
            for target, where in own.required.items():
                for _, other in chain(every.found(target), index.found(target)):
                    there = own.forbidden.get(other) or always.forbidden[other]
                    raise UserError(f"{where}: {target!r} is required, but {there} forbids it")
        return terms

    @cached_property
    def _sources(self) -> Index:
        return Index(filter(None, self.terms), self._folded)

    @cached_property
    def _targets(self) -> Index:
        return Index({text for own in self.terms.values() for text in chain(*own)}, self._folded)

    @cached_property
    def _known(self) -> dict[Tokenizer, dict[str, LineTerms]]:
        """Terms of source terms so far, as each tokenizer spells them."""
        return {}

    def _rows(self) -> Iterator[tuple[str, str, str]]:
        """Yield source term, target term and place of each entry."""
        if self.file is None:
            lines = [(f"terms entry {source!r}", [source, *_listed(target)])
                     for source, target in self.entries.items()]  # fmt: skip
        else:
            path = user_path(self.file)
            check_there(path, "a glossary")
            lines = _table(path)
        for where, (source, *targets) in lines:
            source, targets = source.strip(), [target.strip() for target in targets]
            if not targets or not all(self._folded(target.strip("!")) for target in targets):
                raise UserError(f"{where} must be a source term, a tab (or comma) and target terms")
            yield from ((source, target, where) for target in targets)

    def _folded(self, text: str) -> str:
        return plain(text, not self.case).strip()

    @property
    def files(self) -> dict[str, Path]:
        """Files that it is read from, by key."""
        return {} if self.file is None else {"terms.file": user_path(self.file)}

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
        known, own = self._read(bundle), self.matching(source)
        known |= {term: self._spelled(bundle, own[term]) for term in own.keys() - known}
        each = [known[term] for term in own]
        required = [one for terms in each for one in terms.required]
        forbidden = [one for terms in each for one in terms.forbidden]
        return replace(each[0], required=required, forbidden=forbidden) if each else None

    def _spelled(self, bundle: Bundle, own: Term) -> LineTerms:
        """Return the terms of a source term as the tokens of a bundle spell them."""
        lexicon, fold = Lexicon.of(bundle), not self.case or bundle.tokenizer.truecaser is not None
        forms = {text: _forms(bundle, text, not self.case) for text in chain(*own)}
        texts = {text: lexicon.text(rows[0], fold).strip() for text, rows in forms.items()}
        required, forbidden = ([texts[text] for text in part] for part in own)
        rows = dict.fromkeys(row for text in own.required for row in forms[text])
        some, others = Required(required, [*rows]), Forbidden(forbidden, lexicon, fold)
        return LineTerms(lexicon, [some] if required else [], [others] if forbidden else [], fold)

    def _read(self, bundle: Bundle) -> dict[str, LineTerms]:
        """Return the terms that are spelled for a bundle so far; check its vocabulary first."""
        if bundle.tokenizer not in self._known:
            self._check(bundle)
        return self._known.setdefault(bundle.tokenizer, {})

    def _check(self, bundle: Bundle) -> None:
        each = {
            text: where for own in self.terms.values() for one in own for text, where in one.items()
        }
        rows = bundle.tokenizer.encode_target([*each])
        for (text, where), ids in zip(each.items(), rows, strict=True):
            if (UNK in ids or len(ids) == 1) and not _forms(bundle, text, False):
                raise UserError(f"{where}: the target vocabulary lacks some of {text!r}")
            if len(ids) > LONGEST:
                tokens = f"{text!r} has {len(ids) - 1} tokens"
                raise UserError(f"{where}: {tokens}, but the maximum is {LONGEST - 1}")

    def matching(self, source: str) -> dict[str, Term]:
        """Return the terms that a source has, by its own, the longer of two that overlap."""
        taken = set[int]()
        found = [(-len(term), place, term) for place, term in self._sources.found(source)]
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

    def is_late(self, source: str, output: str) -> bool:
        """Return True if a required term of a source is only behind the final mark of its output:
        the first one, or the n-th for a source with n of them."""
        ends = [mark.end() for mark in _final(3).finditer(self._folded(output))]
        last = max(1, len(_final(1).findall(self._folded(source))))
        if len(ends) < last:
            return False
        first = {term: place for place, term in reversed([*self._targets.found(output)])}
        each = (first.keys() & own.required.keys() for own in self.matching(source).values())
        return any(some and min(first[one] for one in some) >= ends[last - 1] for some in each)

    def of(self, bundle: Bundle) -> "Glossary":
        """Return the glossary with no outputs counted."""
        glossary = copy(self)
        object.__setattr__(glossary, "_unmet", [])
        object.__setattr__(glossary, "_late", [])
        return glossary

    def note(self, output: OutputOf) -> Note:
        """Return the unmet terms of an output; count them, or late ones."""
        unmet = self.unmet(output.text, output.output)
        if output.is_best and unmet:
            self._unmet.append((output.number, unmet))
        elif output.is_best and self.is_late(output.text, output.output):
            self._late.append(output.number)
        return Note({"unmet": unmet})

    def say(self) -> None:
        """Print to standard error how many outputs have unmet terms, and late ones."""
        if self._unmet:
            count, (number, terms) = len(self._unmet), self._unmet[0]
            told = f"output {number:,} does not satisfy the terms {', '.join(terms)}"
            more = f"{count:,} outputs do not satisfy their terms, which format=jsonl lists: "
            print(more * (count > 1) + told, file=sys.stderr)
        if self._late:
            told = f"outputs with a required term behind their final mark: {len(self._late):,}"
            print(f"{told} (first: line {self._late[0]:,})", file=sys.stderr)

    def present(self, own: Term, output: str) -> list[str]:
        """Return the required and the forbidden target terms that an output has."""
        found = {term for _, term in self._targets.found(output)}
        return [one for one in (*own.required, *own.forbidden) if one in found]


@cache
def _final(letters: int) -> re.Pattern[str]:
    """Return a pattern of final marks. Args: letters: fewest before a full stop."""
    first = rf"(?:(?<=[^\W\d_]{{{letters}}})\.|(?<![.!?])[!?])"
    western = first + r"[.!?]*+[\"'“”’»)\]]*+(?=\s|$)"  # noqa: RUF001
    return re.compile(western + "|[。！？｡．؟۔।॥։።፧။៕᙮‼⁇⁈⁉]+")  # noqa: RUF001


def _table(path: Path) -> list[tuple[str, list[str]]]:
    """Return place and cells of each row that has some, without empty ones at its end.

    Standard error says if the first was a header, which is left out with the columns of its notes.
    """
    lines, mark = [*read_lines(path, 100 * LONGEST)], "\t"
    if kind_of(path) == ".csv":
        mark = next((m for m in "\t;" if all(m in line for line in lines if line.strip())), ",")
    cell = re.compile(rf' *"((?:[^"\t]|"")*)" *(?:{mark}|$)|([^{mark}]*)(?:{mark}|$)')
    rows = [[one.replace('""', '"') or two for one, two in cell.findall(line)] for line in lines]
    table = [(f"{path} line {n}", [*map(str.strip, row)]) for n, row in enumerate(rows, 1)]
    where, head = next((row for row in table if any(row[1])), ("", []))
    names = [re.findall(r"(?<![-\w])[^\W\d_]+", one.casefold()) for one in head]
    first = {*chain(*names[:2])}
    if all(names[:2]) and names[:1] != names[1:2] and any(first <= words for words in _HEADERS):
        notes = {n: head[n] for n, one in enumerate(names) if n > 1 and one and one != names[1]}
        unread = f"; not read: {', '.join(notes.values())}" if notes else ""
        print(f"{where} is read as a header{unread}", file=sys.stderr)
        table = [(at, [c for n, c in enumerate(row) if n not in notes]) for at, row in table]
        table = [row for row in table if row[0] != where]
    return [(at, row[: max(n for n, c in enumerate(row, 1) if c)]) for at, row in table if any(row)]


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
    spelt = {row: "".join(lexicon.texts[token] for token in row) for row in rows if UNK not in row}
    forms, usual = [row for row in spelt if row and spelt[row][:2] != "  "], plain(text, False)
    return forms if forms or usual == text else _forms(bundle, usual, capital)
