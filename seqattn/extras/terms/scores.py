"""Scores of outputs with terms: success, consistency and quality."""

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from seqattn.bundle.bundle import Bundle
from seqattn.checking import Count, Seed
from seqattn.data.lines import output_file
from seqattn.data.word_links import read_links, words_in
from seqattn.errors import UserError
from seqattn.extras.terms.glossary import Glossary
from seqattn.generation.constraints import Constraints
from seqattn.generation.generator import line_indices
from seqattn.metrics.scripts import unsplit
from seqattn.screen import print_table, progress
from seqattn.storage import file_faults, user_path, write_json
from seqattn.subcommands.bundle_run import ScoredRun, Split

Pairs = Sequence[Glossary | None]
"""Terms of each row; None for none."""


@dataclass(frozen=True, kw_only=True)
class TermScores(ScoredRun):
    """Score outputs without terms, with the right ones and with random ones, as WMT25 does.

    Right terms are those of a glossary; without one, the source words of each pair that are rarest
    in the split, with the words of the reference that they are linked to, one to one. Random terms
    are as many other linked words.

    Args:
        bundle, device, trust, data, generation, scorer, split, cache_dir: as `ScoredRun`.
        links: file of word alignments of the split's pairs, see `each_links`.
        terms: a `Glossary`, or None.
        count: terms of each pair.
        seed: of random terms.
        output: JSON file; None for evaluation/terms-SPLIT.json beside the bundle, with the
            suffixes -glossary and -ensemble.
    """

    links: str
    split: Split = "test"
    terms: Glossary | None = None
    count: Count = 1
    seed: Seed = 0
    output: str | None = None

    def run(self) -> dict[str, Any]:
        """Generate, score, write and print; return the content of the file.

        Raises:
            UserError: if the bundle, the data, the links or the output cannot be used, or there are
                no terms.
        """
        name = f"terms-{self.split}{'-glossary' * bool(self.terms)}"
        name += "-ensemble" * bool(self.ensemble)
        path = user_path(self.bundle).parent / "evaluation" / f"{name}.json"
        path = user_path(self.output) if self.output else path
        with file_faults("write", path):
            path.parent.mkdir(parents=True, exist_ok=True)
        output_file(str(path))
        bundle = self.load(self.generation).texts("term_scores")
        rows = self.read_rows(bundle)
        right, drawn = self._glossaries(rows.sources, [few[0] for few in rows.references])
        if not any(_terms(right, rows.sources)):
            raise UserError(f"{self.split} has no terms; use other links, or another glossary")
        if not any(drawn):
            left = "no linked words are left for random terms"
            raise UserError(f"{left}; use a smaller count, or more links")
        search, nothing = bundle.search(self.generation), bundle.lines([])
        for one in filter(None, (*right, *drawn)):  # raise their errors before the first search
            one.search(search)
            one.constraints(bundle, nothing, None)
        columns: dict[str, dict[str, float]] = {}
        for name, terms in (("no terms", None), ("right terms", right), ("random terms", drawn)):
            with progress(name, "texts") as advance:
                outputs, seconds = self._outputs(bundle, rows.sources, terms, advance)
            own = {"success %": success(right, rows.sources, outputs)}
            if terms is drawn:
                own["success of random terms %"] = success(drawn, rows.sources, outputs)
            own["consistency %"] = consistency(right, rows.sources, outputs)
            own |= {one.name: one.value for one in rows.score(self.scorer, outputs)}
            columns[name] = own | {"seconds": seconds}
        counts = {"rows": len(rows.sources), "terms": sum(_terms(right, rows.sources))}
        results = {"bundle": str(self.bundle), "split": self.split, **counts, "columns": columns}
        write_json(path, results)
        names = dict.fromkeys(name for own in columns.values() for name in own)
        told = {
            n: [f"{own[n]:.2f}" if n in own else "-" for own in columns.values()] for n in names
        }
        notes = [f"{counts['terms']:,} terms in {counts['rows']:,} rows", f"written to {path}"]
        if unsplit(rows.sources) or unsplit(few[0] for few in rows.references):
            notes.append("texts without spaces between words count as one word each")
        print_table(f"terms of {self.names} on {self.split}", told, [*columns], notes)
        return results

    def _glossaries(self, sources: Sequence[str], targets: Sequence[str]) -> tuple[Pairs, Pairs]:
        """Return right and random terms of each pair."""
        part = self.data.parts.get(self.split)
        each = read_links(user_path(self.links), sources, targets, part=part, key="links")
        known = Counter(word for source in sources for word in {*words_in(source)})
        right, drawn = list[Glossary | None](), list[Glossary | None]()
        for number, (source, target, links) in enumerate(zip(sources, targets, each, strict=True)):
            words, others = words_in(source), words_in(target)
            ends = [Counter(link[side] for link in links.sure) for side in (0, 1)]
            pairs = {
                words[i]: others[j]
                for i, j in sorted(links.sure)
                if ends[0][i] == ends[1][j] == 1 and words[i].isalpha() and others[j].isalpha()
            }
            rare, count = sorted(pairs, key=lambda word: known[word])[: self.count], self.count
            own = Glossary(entries={word: pairs[word] for word in rare}) if rare else None
            if self.terms is not None:
                found, own = self.terms.matching(source), self.terms
                rare, count = [word for word in pairs if word.casefold() in found], len(found)
            rest = [word for word in pairs if word not in rare]
            some = Random(f"{self.seed} {number}").sample(rest, min(count, len(rest)))
            right.append(own)
            drawn.append(Glossary(entries={word: pairs[word] for word in some}) if some else None)
        return right, drawn

    def _outputs(
        self, bundle: Bundle, sources: Sequence[str], terms: Pairs | None, on_progress: Any
    ) -> tuple[list[str], float]:
        read, search, own = bundle.lines(sources), self.generation, None
        began = time.perf_counter()
        if terms is not None:
            first = Constraints(bundle.tokenizer.target_begin)
            search = next(one for one in terms if one).search(bundle.search(search))
            own = [first] * len(read.lines)
            for line, number in enumerate(read.texts):
                if one := terms[number]:
                    text = [read.lines[line]]
                    own[line] = one.constraints(bundle, bundle.lines(text), None)[0]
        generator, encoded = bundle.generator(search), bundle.encode(read.lines)
        found = generator.generate_windows(encoded, line_indices(read.texts), on_progress, own)
        texts = bundle.tokenizer.decode_target([best[0].ids for best in found])
        return read.join(texts), time.perf_counter() - began


def _terms(terms: Pairs, sources: Sequence[str]) -> list[int]:
    rows = zip(terms, sources, strict=True)
    return [sum(bool(t.required) for t in one.matching(source).values()) if one else 0
            for one, source in rows]  # fmt: skip


def success(terms: Pairs, sources: Sequence[str], outputs: Sequence[str]) -> float:
    """Return the share of required terms, in percent, that outputs have."""
    rows = zip(terms, sources, outputs, strict=True)
    lacking = sum(not term.startswith("!") for one, *row in rows if one for term in one.unmet(*row))
    total = sum(_terms(terms, sources))
    return 100 * (1 - lacking / total) if total else 100.0


def consistency(terms: Pairs, sources: Sequence[str], outputs: Sequence[str]) -> float:
    """Return the share, in percent, of occurrences of repeated source terms with the most frequent
    target term of theirs; occurrences without a target term have none."""
    used: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for one, source, output in zip(terms, sources, outputs, strict=True):
        if one is not None:
            for name, own in one.matching(source).items():
                if own.required:
                    used[name][next(iter(one.present(own, output)), "")] += 1
    several = [each for each in used.values() if each.total() > 1]
    most = sum(max((n for name, n in each.items() if name), default=0) for each in several)
    return 100 * most / max(1, sum(each.total() for each in several))
