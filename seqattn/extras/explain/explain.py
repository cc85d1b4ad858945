"""Evaluation of explanations by method and by attention mechanism."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from seqattn.checking import CountOrNone, Seed
from seqattn.data.word_links import read_links
from seqattn.errors import UserError
from seqattn.extras.explain.explanations import (
    METHODS,
    Contrasting,
    check_contrast,
    known_methods,
)
from seqattn.extras.explain.faithfulness import PERCENTS
from seqattn.extras.explain.method_scores import ExplainedBundle
from seqattn.extras.explain.method_tables import (
    METHOD_DIGITS,
    methods_table,
    replaced_table,
    slow_note,
)
from seqattn.extras.explain.removal_plot import removal_curves
from seqattn.extras.explain.sentence_explanations import explain_text
from seqattn.extras.pictures.plots import save
from seqattn.models.base import Seq2SeqModel
from seqattn.storage import user_path, write_json
from seqattn.subcommands.bundle_run import ScoredRun, Split
from seqattn.subcommands.tables import keep_tables, print_tables
from seqattn.training.run_directory import distinct_names, room_for_files

Results = Mapping[str, Any]
"""Contents of explanations.json for each bundle, by its name."""


@dataclass(frozen=True, kw_only=True)
class Explaining:
    """Explanations of bundles, evaluated on a split or printed for one sentence.

    Args:
        bundle: path of the model.
        bundles: paths of several models instead, for the same sentences.
        data, generation, scorer, split, cache_dir, device, trust: as `ScoredRun`.
        output: directory for tables and curves; None for explanations/SPLIT next to the first
            bundle, with the suffixes -outputs and -bundles, or explanations/text for a sentence.
        methods: names of `METHODS`; None for all that apply and are not slow.
        sentences: use the first N rows of the split; 0 for all.
        targets: targets to explain. Alignment error is computed for references only.
        replaced: replacements of attention weights, to test whether the weights matter.
        text: sentence to explain instead of a split.
        target: its output; None for the output of the model's search.
        instead: another output: why was its word not chosen, where the two first differ? None to
            explain the output alone.
        seed: seed of the random baseline and of permutations.

    Raises:
        UserError: if there is no bundle, or a method is unknown.
    """

    data: Any
    generation: Any
    scorer: Any = None
    bundle: str | None = None
    bundles: list[str] | None = None
    methods: list[str] | None = None
    split: Split = "val"
    sentences: CountOrNone = 200
    targets: Literal["references", "outputs"] = "references"
    replaced: list[Literal["uniform", "permuted"]] = field(
        default_factory=lambda: ["uniform", "permuted"]
    )
    text: str | None = None
    target: str | None = None
    instead: str | None = None
    output: str | None = None
    seed: Seed = 0
    device: str = "cpu"
    trust: Sequence[str] = ()
    cache_dir: str | None = None

    def __post_init__(self) -> None:
        if bool(self.bundle) == bool(self.bundles):
            raise UserError("set either bundle=RUN/model or bundles=[RUN/model,RUN2/model]")
        if len({user_path(path) for path in self.paths}) < len(self.paths):
            raise UserError("bundles contains a bundle twice; list each bundle once")
        known_methods(self.methods or ())
        if self.text is not None and not self.text.strip():
            raise UserError('text is empty; set it, for example text="A dog runs."')
        for name in ("target", "instead"):
            if getattr(self, name) is not None and self.text is None:
                raise UserError(f"{name} requires text; add text=... or remove {name}")
        if self.instead is not None:
            for method in self.methods or ():
                check_contrast(method)

    @property
    def paths(self) -> list[str]:
        """Paths of all bundles."""
        return self.bundles or [self.bundle or ""]

    @property
    def names(self) -> list[str]:
        """Names of the methods, in the order of the tables."""
        return self._default(slow=False) if self.methods is None else self.methods

    def _default(self, slow: bool) -> list[str]:
        return [
            name
            for name, method in METHODS.items()
            if method.slow == slow and (self.instead is None or isinstance(method, Contrasting))
        ]

    def _slow(self, model: Seq2SeqModel) -> list[str]:
        """Return slow methods, which run only if requested."""
        names = [] if self.methods is not None else self._default(slow=True)
        return [name for name in names if METHODS[name].why_not(model) is None]

    @property
    def directory(self) -> Path:
        """Output directory."""
        name: str = self.split if self.text is None else "text"
        name += "-outputs" * (self.targets == "outputs") + "-bundles" * (len(self.paths) > 1)
        return user_path(self.output or Path(self.paths[0]).parent / "explanations" / name)

    def run(self) -> dict[str, Any]:
        """Explain, evaluate, write and print; return the contents of explanations.json.

        Raises:
            UserError: if a bundle or the data cannot be used, or nothing can be written.
        """
        with room_for_files(self.directory):
            return self._run()

    def _run(self) -> dict[str, Any]:
        labels = distinct_names([user_path(path) for path in self.paths])
        each: dict[str, dict[str, Any]] = {}
        results = {
            "split": self.split,
            "targets": self.targets,
            "seed": self.seed,
            "percents": list(PERCENTS),
            "bundles": each,
        }
        for label, path in zip(labels, self.paths, strict=True):
            run = ScoredRun(
                bundle=path, device=self.device, trust=self.trust, data=self.data,
                generation=self.generation, scorer=self.scorer, split=self.split,
                cache_dir=self.cache_dir,
            )  # fmt: skip
            each[label] = self._explain(run, label)
            write_json(self.directory / "explanations.json", _finite(results))
        if self.text is None:
            self._print(each)
            picture = save(removal_curves(_curves(each), PERCENTS), self.directory / "removal.png")
            print(f"plot written to {picture}")
        print(f"written to {self.directory}")
        return results

    def _print(self, each: Results) -> None:
        if len(each) > 1:
            print(f"using data, search and scorer of {next(iter(each))}")
        what = f"outputs on {self.split}" if self.targets == "outputs" else self.split
        methods = {label: methods_table(what, results) for label, results in each.items()}
        print_tables(methods, METHOD_DIGITS)
        replaced = {
            label: replaced_table(self.split, self.replaced, results["replaced"])
            for label, results in each.items()
            if results["replaced"]
        }
        if replaced:
            widest = max(len(table["columns"]) for table in replaced.values())
            print_tables(replaced, [2] * (widest - 1))
        for label, results in each.items():
            tables = {f"explanations_{what.replace(' ', '_')}": methods[label]}
            if label in replaced:
                tables[f"replaced_{self.split}"] = replaced[label]
            keep_tables(results["bundle"], tables)

    def _explain(self, run: ScoredRun, label: str) -> dict[str, Any]:
        bundle = run.load(self.generation).texts("explain")
        if self.text is not None:
            explanation = explain_text(
                bundle, self.names, self.text, self.target, self.generation, self.instead
            )
            slow = self._slow(bundle.model)
            print(f"\n{slow_note(slow)}" if slow else "")
            return explanation
        texts = run.read_rows(bundle)
        has_outputs = self.targets == "outputs"
        file = None if has_outputs else self.data.alignments_of(self.split)
        sides, part = (texts.sources, texts.targets), self.data.parts.get(self.split)
        links = None if file is None else read_links(file, *sides, part=part)
        texts = texts.first(self.sentences or len(texts.sources))
        explained = ExplainedBundle(label, bundle, self.generation, texts, links)
        sample = explained.sample(has_outputs)
        return {
            "bundle": run.bundle,
            "sentences": len(sample.pairs),
            "left_out": len(texts.sources) - len(sample.pairs),
            **explained.judged(self.names, sample, self.seed),
            "slow": self._slow(bundle.model),
            "replaced": explained.replaced(self.replaced, run.scorer, self.seed)
            if self.replaced
            else None,
        }


def _curves(results_by_bundle: Results) -> dict[str, dict[str, Sequence[float]]]:
    """Return curves of probability by method and bundle, without and with only the top tokens."""
    panels = {}
    for label, results in results_by_bundle.items():
        prefix = f"{label}: " if len(results_by_bundle) > 1 else ""
        for key, name in (("removed", "without the top tokens"), ("kept", "only the top tokens")):
            panels[prefix + name] = {m: row[key] for m, row in results["methods"].items()}
    return panels


def _finite(value: Any) -> Any:
    """Replace numbers that JSON lacks (NaN, infinity) with null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
