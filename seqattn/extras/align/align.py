"""Word alignment of the pairs of two files, or of a split."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from seqattn.analysis.forced_alignment import cross_attentions
from seqattn.bundle.bundle import Bundle
from seqattn.bundle.files import store
from seqattn.bundle.load import load_bundle
from seqattn.checking import Count
from seqattn.data.text_files import aligned_lines, read_lines, scan_text
from seqattn.data.word_links import WordLinks, linked_words, read_links, words_in
from seqattn.errors import UserError
from seqattn.extras.align.choose import by_agreement, by_gold, candidates, default_of
from seqattn.extras.align.gold import alignment_scores, with_interval
from seqattn.extras.align.symmetrize import Links, Symmetrization, symmetrized
from seqattn.metrics.scripts import unsplit
from seqattn.screen import print_table, progress
from seqattn.storage import user_path
from seqattn.subcommands.bundle_run import BundleRun, Split
from seqattn.subcommands.journal import open_journal
from seqattn.subcommands.provenance import Provenance, bundle_contents, data_contents
from seqattn.training.task_options import task_class

_PART = 1_024
"""Pairs aligned together; an interruption loses at most these."""
_LINK = "[0-9]{1,9}-[0-9]{1,9}"


@dataclass(frozen=True, kw_only=True)
class Reverse:
    """The model of the other direction. Args: bundle: its path; None for one direction."""

    bundle: str | None = None


@dataclass(frozen=True, kw_only=True)
class Aligning(BundleRun):
    """Align the words of given pairs in Pharaoh format, or choose how a bundle reads alignments.

    Args:
        bundle, device, trust: as `BundleRun`.
        data: source of the pairs of `split`.
        split: the split to align, in place of two files.
        source, target: files with as many lines.
        links: file of gold links of the pairs, see `each_links`; None for those of `data`.
        reverse: the model of the other direction.
        symmetrize: how to join both directions.
        output: a file, written as a whole at the end; repeat the command to resume. None for
            standard output.
        choose: True to choose the reading on the validation split and store it in the bundle, and
            with a reverse model in both.
        sentences: number of validation pairs for `choose`.
        cache_dir: cache of the data; None for the default.

    Raises:
        UserError: for no input or several.
    """

    data: Any
    split: Split | None = None
    source: str | None = None
    target: str | None = None
    links: str | None = None
    reverse: Reverse = field(default_factory=Reverse)
    symmetrize: Symmetrization = "grow_diag_final_and"
    output: str | None = None
    choose: bool = False
    sentences: Count = 500
    cache_dir: str | None = None

    def __post_init__(self) -> None:
        if (self.source is None) != (self.target is None):
            raise UserError("source and target name two files with as many lines; set both")
        if (self.split, self.source, self.choose or None).count(None) != 2:
            raise UserError("set one of source=FILE target=FILE, split=SPLIT and choose=true")
        if self.links is not None and self.choose:
            raise UserError("choose uses the links of the validation split; set data.alignments")

    def run(self) -> None:
        """Align and write, or choose and store.

        Raises:
            UserError: if the bundle or the pairs cannot be used.
        """
        bundle = self.load().texts("align")
        other = None
        if self.reverse.bundle is not None:
            other = load_bundle(self.reverse.bundle, self.device, self.trust).texts("align")
        for one in filter(None, (bundle, other)):
            cross_attentions(one.model)
        if self.choose:
            self._choose(bundle, other)
            return
        aligner = Aligner(bundle, other, self.symmetrize)
        aligned: list[Links] = []
        total, pairs, gold = self._pairs(bundle)
        files = {"source": self.source, "target": self.target, "links": self._gold_file}
        opened = open_journal(
            self.output, self._made_from, files, total=total, line_pattern=f"({_LINK}( {_LINK})*)?"
        )
        with opened as journal:
            rest = aligner.lines(islice(pairs, journal.done, None), journal.done, total)
            windows = iter(lambda: [*islice(rest, _PART)], [])
            scored = partial(_scored, aligned) if gold else iter
            journal.write(((len(lines), lines) for lines in windows), scored)
        aligner.say()
        if gold:
            scores = {one.name: with_interval(one) for one in alignment_scores(aligned, gold)}
            notes = [f"reading: {bundle.reading}"]
            self._print(f"{len(gold):,} pairs against gold links", scores, notes)

    def _print(self, title: str, rows: dict[str, str], notes: Sequence[str]) -> None:
        if self.output is not None or self.choose:
            print_table(title, rows, notes=notes)
            return
        shown = " · ".join(f"{name} {value}" for name, value in rows.items())
        print(f"{title}: {shown} · {' · '.join(notes)}", file=sys.stderr)  # links are on stdout

    def _table(self, bundle: Bundle, split: str) -> Any:
        source = task_class(bundle.config).source(self.data)
        table = source.load(split, Path(self.cache_dir) if self.cache_dir else None)
        if "target" not in table.column_names:
            raise UserError(f"split {split} has no targets to align")
        return table

    def _made_from(self) -> Provenance:
        settings: dict[str, Any] = {"symmetrize": self.symmetrize, "split": self.split}
        contents = {"bundle": bundle_contents(self.bundle)}
        if self.reverse.bundle is not None:
            contents["reverse.bundle"] = bundle_contents(self.reverse.bundle)
        if self.split is not None:
            settings["data"] = self.settings.get("data", repr(self.data))
            contents |= data_contents(self.data, [self.split])
        return Provenance(settings=settings, contents=contents)

    @property
    def _gold_file(self) -> Path | None:
        if self.links or self.split is None:
            return user_path(self.links) if self.links else None
        file: Path | None = self.data.alignments_of(self.split)
        return file

    def _pairs(self, bundle: Bundle) -> tuple[int, Iterator[tuple[str, str]], Sequence[WordLinks]]:
        """Return the number of pairs, the pairs, and their gold links."""
        file = self._gold_file
        if self.source is None or self.target is None:
            table = self._table(bundle, str(self.split))
            parts = table.iter(batch_size=_PART)
            pairs = chain.from_iterable(zip(one["source"], one["target"]) for one in parts)
            texts = [*table["source"]], [*table["target"]]
            gold = read_links(file, *texts, part=self.data.parts.get(self.split)) if file else []
            return len(table), pairs, gold
        sides = user_path(self.source), user_path(self.target)
        (total, _), _ = map(scan_text, sides)
        gold = []
        if file:
            gold = read_links(file, *([*read_lines(side)] for side in sides), key="links")
        return total, aligned_lines(*sides), gold

    def _choose(self, bundle: Bundle, other: Bundle | None) -> None:
        table = self._table(bundle, "val")
        file = self.data.alignments_of("val")
        if file is None and other is None:
            raise UserError(
                "the validation split has no gold links; set data.alignments=FILE, or "
                "reverse.bundle=R/model to choose by the agreement of two directions"
            )
        texts = [[*table["source"]], [*table["target"]]]
        gold = read_links(file, *texts, part=self.data.parts.get("val")) if file else []
        texts, gold = [side[: self.sentences] for side in texts], gold[: self.sentences]
        models = {self.bundle: (bundle, texts)}
        if other is not None:
            models[str(self.reverse.bundle)] = other, texts[::-1]
        found = {name: candidates(one, a, b, name) for name, (one, (a, b)) in models.items()}
        defaults = [default_of(models[name][0], some) for name, some in found.items()]
        if gold:
            turned = [WordLinks(*(frozenset(j_i[::-1] for j_i in one) for one in g)) for g in gold]
            values = [by_gold(*both) for both in zip(found.values(), (gold, turned))]
            best, name = [int(one.argmin()) for one in values], "AER"
            scores = [(one[at], one[of]) for one, at, of in zip(values, best, defaults)]
        else:
            agreement = by_agreement(*found.values())
            flat, name = int(agreement.argmax()), "agreement"
            best = [*divmod(flat, agreement.shape[1])]
            scores = [(agreement[*best], agreement[*defaults])] * 2
        for (path, (one, _)), at, (score, before) in zip(models.items(), best, scores):
            reading = found[path][at].reading
            chosen = f"{name} {score:.1f} on {len(texts[0])} pairs of val, by default {before:.1f}"
            store(one.path, one.config, alignment=asdict(replace(reading, chosen=chosen)))
            self._print(path, {"reading": str(reading), "chosen by": chosen}, ["stored"])


@dataclass(frozen=True)
class Aligner:
    """Alignment of pairs by one model, or by two.

    Args:
        bundle: the model.
        other: the model of the other direction.
        symmetrize: how to join both.
    """

    bundle: Bundle
    other: Bundle | None
    symmetrize: Symmetrization
    notes: Counter[str] = field(default_factory=Counter)

    def lines(self, pairs: Iterator[tuple[str, str]], first: int, total: int) -> Iterator[str]:
        """Yield the links of each pair. Args: first: number of the first pair, of `total`."""
        with progress("aligning", "pairs", first) as advance:
            while part := [*islice(pairs, _PART)]:
                for links in self.links(*map(list, zip(*part))):
                    yield " ".join(
                        f"{i}-{j}" for i, j in sorted(links, key=lambda link: link[::-1])
                    )
                first += len(part)
                advance(first, total)

    def links(self, sources: list[str], targets: list[str]) -> list[Links]:
        """Return the links of each pair, between words that are separated by spaces."""
        found = self._directed(self.bundle, sources, targets)
        if self.other is not None:
            back = self._directed(self.other, targets, sources)
            turned = [frozenset((j, i) for i, j in links) for links in back]
            found = [symmetrized(*both, self.symmetrize) for both in zip(found, turned)]
        texts = [text for text in (*sources, *targets) if unsplit([text])]
        self.notes["texts without spaces between words, each one word"] += len(texts)
        texts = [text for text in (*sources, *targets) if text.split() != words_in(text)]
        self.notes["texts with other white space, as no-break spaces, within words"] += len(texts)
        return found

    def _directed(self, bundle: Bundle, sources: list[str], targets: list[str]) -> list[Links]:
        found: list[Links] = []
        for source, target, words in zip(sources, targets, bundle.align(sources, targets)):
            links = linked_words(words, source, target)
            if links is None and bundle.unit == "words":  # of letters
                links = frozenset((i, j) for j, i in enumerate(words.links))
            found.append(links or frozenset())
            if words_in(source) and words_in(target) and not links:
                fits = links is not None
                why = "too long for the model" if fits else "whose words its tokenizer joins"
                self.notes[f"pairs without links, {why}"] += 1
        return found

    def say(self) -> None:
        """Print how many pairs have no links, and why, to standard error."""
        for note, count in self.notes.items():
            if count:
                print(f"{count:,} {note}", file=sys.stderr)


def _scored(aligned: list[Links], lines: Iterable[str]) -> Iterator[str]:
    """Yield lines, and append the links of each to a list."""
    for line in lines:
        pairs = (link.split("-") for link in line.split())
        aligned.append(frozenset((int(i), int(j)) for i, j in pairs))
        yield line
