"""Scores of a bundle on a split of its data, or of other data."""

import hashlib
import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar

import yaml

from seqattn.bundle.bundle import Bundle
from seqattn.bundle.files import part_of, read_config, store
from seqattn.bundle.outputs import Outputs
from seqattn.bundle.text_options import options_of, split_with
from seqattn.checking import Count
from seqattn.data.lines import write_lines
from seqattn.errors import UserError
from seqattn.inputs import read_json
from seqattn.metrics.groups import group_summary
from seqattn.metrics.lengths import LengthBin, length_bins
from seqattn.metrics.several import check_sentences
from seqattn.metrics.text import TextScore, scorer_notices
from seqattn.roles import Role
from seqattn.screen import print_table, progress, say
from seqattn.storage import is_file, user_path, write_json, write_whole
from seqattn.subcommands.bundle_run import ScoredRun, Split
from seqattn.subcommands.provenance import contents_now
from seqattn.subcommands.reranking import Reranking
from seqattn.subcommands.tuning import Tuning, grid_of, show
from seqattn.training.run_directory import room_for_files
from seqattn.training.setting_roles import differences

SENTENCES, SENTENCE = "sentences.jsonl", ("source", "references", "output", "group")
"""File of an evaluation with its rows, and their fields."""


@dataclass(frozen=True, kw_only=True)
class Evaluation(ScoredRun):
    """Score a bundle on a split; write scores and outputs to a directory.

    Args:
        bundle, device, trust, data, generation, scorer, split, cache_dir: as `ScoredRun`.
        output: the directory; None for evaluation/SPLIT beside the bundle, with the suffixes
            -ensemble and -reranked for other models, -generation and -scorer for another search
            or scorer than the bundle's. If that has the scores of other models, data or settings,
            a digest of these follows.
        lengths: upper bounds, in words, of bins of source length to score separately.
        group: what rows of a group share, as in `labels_of`; None for independent rows.
        rerank: settings of reranking by another model.
        tune: lists of values to try on the validation split, by keys of the search and
            rerank.weight; nested keys as mappings. Empty to score with the search unchanged.
        store: True to store the best search of `tune` in the bundle.
        options: nodes or objects of `TextOption`s by key that evaluate the outputs, None for none.

    Raises:
        UserError: for tuning on another split or by lengths, or storing without tuning.
    """

    built_later: ClassVar[Sequence[str]] = ("options",)

    split: Split = "test"
    output: str | None = None
    lengths: list[Count] | None = None
    group: str | int | None = None
    rerank: Reranking = field(default_factory=Reranking)
    tune: Mapping[str, Any] = field(default_factory=dict)
    store: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "options", options_of(self.options))
        if self.tune and self.split != "val":
            raise UserError(
                f"tuning on split={self.split} would inflate its scores; add split=val, then "
                "evaluate the best settings once on test"
            )
        beside = [key for key, option in self.options.items() if option.has_effect]
        beside += ["lengths"] * (self.lengths is not None)
        if self.tune and beside:
            raise UserError(f"tune and {' and '.join(beside)} are mutually exclusive")
        judges = [key for key, one in self.options.items() if one.has_columns and one.has_effect]
        if judges and self._affecting:  # they judge whole rows
            keys = " and ".join([*judges, *self._affecting])
            raise UserError(f"{keys} are mutually exclusive in evaluate; remove one")
        if self.group is not None:
            check_sentences(self.scorer, "group")
        if self.store and (not self.tune or self.ensemble or self.rerank.bundle):
            raise UserError("store=true needs tune, and supports neither ensemble nor rerank")

    @property
    def _affecting(self) -> list[str]:
        """Keys of the options that outputs depend on."""
        options = self.options.items()
        return [key for key, one in options if one.has_effect and not one.has_columns]

    @cached_property
    def directory(self) -> Path:
        """Directory for the scores."""
        if self.output:
            return user_path(self.output)
        name: str = "tune" if self.tune else self.split
        name += "-ensemble" * bool(self.ensemble) + "-reranked" * bool(self.rerank.bundle)
        if not self.tune:
            name += "".join(f"-{key}" for key in self._changed())
        path = user_path(self.bundle).parent / "evaluation" / name
        file = path / ("tuning.json" if self.tune else "scores.json")
        before = read_json(file, "scores of an evaluation") if is_file(file) else None
        if not isinstance(before, dict):
            return path
        made_by, keys = self._made_by, before.keys() & self._made_by.keys()
        then, now = ({key: one[key] for key in sorted(keys)} for one in (before, made_by))
        if not any(differences(then, now, {*Role} - {Role.NOTE})):
            return path
        digest = hashlib.sha256(json.dumps(made_by, sort_keys=True).encode()).hexdigest()
        return path.with_name(f"{name}-{digest[:8]}")

    @property
    def _made_by(self) -> dict[str, Any]:
        """What tells evaluations of a bundle and a split apart, by its keys in their file."""
        origin = getattr(self.data, "origin", lambda split: type(self.data).__name__)
        return {
            "ensemble": list(self.ensemble),
            "data": origin(self.split),
            "generation": self.settings.get("generation"),
            "scorer": self.settings.get("scorer"),
            "rerank": self.settings.get("rerank") if self.rerank.bundle else None,
            **{key: self.settings.get(key) for key in self._affecting},
        }

    def _changed(self) -> Iterator[str]:
        """Yield which of search and scorer are not the bundle's, in more than speed."""
        config = read_config(user_path(self.bundle), self.trust)
        for key, place in (("generation", "generation"), ("scorer", "task.scorer")):
            own, now = part_of(config, place, self.bundle), self.settings.get(key)
            if now is not None and any(differences({key: own}, {key: now}, {*Role} - {Role.NOTE})):
                yield key
        yield from self._affecting

    def run(self, silent: bool = False) -> dict[str, Any]:
        """Generate, score, write and print; return the content of scores.json.

        Args:
            silent: True to print nothing.

        Raises:
            UserError: if the bundle or the data cannot be used, or outputs cannot be written.
        """
        with ExitStack() as stack:
            if self.output:
                stack.enter_context(room_for_files(self.directory))
            bundle = self.load(self.generation)
            options = {
                key: option if option.has_columns else option.of(bundle)  # those may calibrate it
                for key, option in self.options.items()
            }
            object.__setattr__(self, "options", options)  # its own directory depends on them
            if not self.output:
                stack.enter_context(room_for_files(self.directory))
            return self._run(bundle, silent)

    def _run(self, bundle: Bundle, silent: bool) -> dict[str, Any]:
        if self.tune:
            return self._tuned(bundle.texts("tune"))
        outputs, bins = self._outputs(bundle)
        scores = outputs.scores(self.scorer)
        rows = score_rows(scores) | outputs.table()
        told: list[str] = getattr(outputs, "dependence", list)()
        if (labels := outputs.rows.groups) is not None:
            told = [group_summary(str(self.group), labels)]
        by_length = self._by_length(outputs, bins, rows)
        self.directory.mkdir(parents=True, exist_ok=True)
        outputs.write(self.directory)
        self._write_sentences(outputs)
        files: Any = getattr(self.data, "files", lambda _: [])
        results = {
            "bundle": str(user_path(self.bundle).absolute()),  # valid in any folder
            "split": self.split,
            "rows": len(outputs.texts),
            "unit": outputs.unit,
            "scores": plain_scores(scores),
            "group": self.group,
            "notes": told if self.group is None else [],
            outputs.unit: len(outputs.texts),
            **{f"{name}_per_second": rate for name, rate in outputs.rates.items()},
            **by_length,
            **self._made_by,
        }
        where = self.split, self.directory, self.data.parts.get(self.split)
        for key, option in self.options.items():
            figures, table = option.evaluated(bundle, outputs, self.scorer, *where)
            results |= {key: figures} if figures else {}
            rows |= table
        results["made_from"] = contents_now(self.bundle, files(self.split))
        write_json(self.directory / "scores.json", results)
        rows["written to"] = str(self.directory)
        search = self.rerank.search(self.generation)
        notes = [f"scored {len(outputs.texts):,} rows of {results['data']} by {search}"]
        notes += getattr(self.data, "notices", list)()
        notes += scorer_notices(self.scorer, outputs.rows.references)
        if not silent:
            print_table(f"{self.names} on {self.split}", rows, notes=notes)
            if told:
                say(*told)
        return results

    def _tuned(self, bundle: Bundle) -> dict[str, Any]:
        """Try settings, print their scores, and write the best as a choice of `generation`."""
        reranker = self.rerank.over(bundle.tokenizer, self.device, self.trust)
        search, grid = self.settings["generation"], grid_of(self.tune)
        tuning = Tuning(bundle, search, grid, self.scorer, self.rerank, reranker)
        with progress("trying", "settings") as advance:
            trials = tuning.run(self.read_rows(bundle, self.group), advance)
        results = {
            "bundle": self.bundle,
            "ensemble": list(self.ensemble),
            "best": show(f"tuning of {self.names} on {self.split}", trials),
            "trials": [
                {"settings": one.settings, "scores": plain_scores(one.scores), "p": one.p}
                for one in trials
            ],
        }
        node = tuning.node(trials[0].settings)
        (self.directory / "generation").mkdir(parents=True, exist_ok=True)
        file = self.directory / "generation" / "tuned.yaml"
        write_whole(file, yaml.safe_dump(node, sort_keys=False).encode())
        write_json(self.directory / "tuning.json", results)
        typed = shlex.quote(str(self.directory))
        print(f"written to {file}; use it with --config-dir {typed} generation=tuned")
        if self.store:
            store(bundle.path, bundle.config, generation=node)
            print(f"stored as the default search of {bundle.path}")
        return results

    def _outputs(self, bundle: Bundle) -> tuple[Outputs, Sequence[LengthBin]]:
        """Return outputs for the split's rows, and the bins of source length, if any."""
        make: Callable[..., Outputs] = bundle.outputs
        if self.rerank.bundle or self.lengths is not None:
            texts = bundle.texts("rerank" if self.rerank.bundle else "lengths")
            reranker = self.rerank.over(texts.tokenizer, self.device, self.trust)
            make = partial(texts.outputs, rank=None if reranker is None else reranker.rank)
        rows, search = self.read_rows(bundle, self.group), self.rerank.search(self.generation)
        part = self.data.parts.get(self.split)
        for option in self.options.values():
            option.check_split(bundle, rows, self.scorer, self.split, part)
        text_options = [option for option in self.options.values() if not option.has_columns]
        if self._affecting or split_with(text_options):
            make = partial(make, options=text_options)
        bins = [] if self.lengths is None else length_bins(rows.sources, self.lengths)
        with progress(f"scoring {self.split}", bundle.unit) as advance:
            outputs = make(rows, search, advance)
        return replace(outputs, again=partial(make, search=search)), bins

    def _by_length(
        self, outputs: Any, bins: Sequence[LengthBin], table: dict[str, str]
    ) -> dict[str, Any]:
        """Return scores of each bin, and add them to the table."""
        scored = []
        for words, numbers in bins:
            texts = [outputs.texts[row] for row in numbers]
            part = replace(outputs, rows=outputs.rows.at(numbers), texts=texts).scores(self.scorer)
            scored.append({"words": words, "sentences": len(numbers), "scores": plain_scores(part)})
            first = f"{part[0].name} {part[0].value:.2f}"
            table[f"{words} words"] = f"{first} ({len(numbers):,} sentences)"
        return {"by_length": scored} if scored else {}

    def _write_sentences(self, outputs: Outputs) -> None:
        """Write the input, references, output and group of each row, for `compare`."""
        rows = outputs.rows
        each = zip_longest(rows.sources, rows.references, outputs.texts, rows.groups or ())
        lines = (json.dumps(dict(zip(SENTENCE, row, strict=True))) for row in each)
        write_lines(lines, str(self.directory / SENTENCES))


def plain_scores(scores: Sequence[TextScore]) -> dict[str, Any]:
    """Return values and signatures by name."""
    rows: dict[str, Any] = {}
    for score in scores:
        rows[score.name] = {"value": score.value, "signature": score.signature}
        if score.interval is not None:
            rows[score.name]["interval"] = list(score.interval)
    return rows


def score_rows(scores: Sequence[TextScore]) -> dict[str, str]:
    """Return scores as rows of a table."""
    rows = {}
    for score in scores:
        within = score.interval
        spread = f" ({within[0]:.2f} to {within[1]:.2f})" if within else ""
        rows[score.name] = f"{score.value:.2f}{spread}   {score.signature}"
    return rows
