"""Analysis of a bundle's attention heads: roles, importance and ablation."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from torch import Tensor

from seqattn.analysis.capture import makers
from seqattn.analysis.intervene import intervene
from seqattn.bundle.bundle import Bundle
from seqattn.checking import Count, CountOrNone
from seqattn.data.base import Texts
from seqattn.errors import UserError
from seqattn.extras.explain.head_figures import attention_heads, head_figures
from seqattn.extras.explain.head_importance import pairs_of
from seqattn.extras.explain.head_plots import AblationCurve, ablation_curves, head_map
from seqattn.extras.explain.head_tables import ablation_table, heads_table, print_heads
from seqattn.extras.explain.importance import (
    Head,
    by_attention,
    gates_without,
    head_importance,
    least_first,
    random_order,
)
from seqattn.extras.pictures.plots import save
from seqattn.metrics.text import TextScore
from seqattn.screen import progress
from seqattn.storage import user_path, write_json
from seqattn.subcommands.bundle_run import ScoredRun
from seqattn.subcommands.tables import keep_tables, print_tables
from seqattn.training.run_directory import room_for_files

RANDOM = 3
"""Random orders of removal, whose mean is the baseline."""


@dataclass(frozen=True, kw_only=True)
class HeadAnalysis(ScoredRun):
    """Statistics, roles and importance of all heads, and the curve of their ablation.

    Args:
        bundle, device, trust, data, generation, scorer, split, cache_dir: as `ScoredRun`.
        output: directory for heads.json, heads.png and ablation.png.
        sentences: use the first N sentences of the split.
        points: number of steps of the curve, from all heads to none; 0 for no curve.
    """

    output: str
    sentences: Count = 200
    points: CountOrNone = 8

    def run(self) -> dict[str, Any]:
        """Measure, plot, write and print; return the contents of heads.json.

        Raises:
            UserError: if the bundle or the data cannot be used, or nothing can be written.
        """
        directory = user_path(self.output)
        with room_for_files(directory):
            return self._run(directory)

    def _run(self, directory: Path) -> dict[str, Any]:
        bundle = self.load(self.generation).texts("heads")
        texts = self.read_rows(bundle).first(self.sentences)
        pairs = pairs_of(bundle, texts.sources, texts.targets)
        if not pairs:
            raise UserError(f"the {self.split} split has no pairs to analyze; choose another")
        importance = by_attention(head_importance(bundle.model, pairs))
        figures = head_figures(bundle.model, pairs)
        if not (importance or figures):
            raise UserError(f"{self.bundle} has no attention; use a model with attention")
        curve = self._curve(bundle, texts, importance) if self.points and importance else None
        attentions = {
            name: attention_heads(bundle.model, name, figures.get(name), importance.get(name))
            for name in sorted(dict(makers(bundle.model)), key=_slot)
        }
        results = {
            "bundle": self.bundle,
            "split": self.split,
            "sentences": len(pairs),
            "attentions": {name: heads.plain() for name, heads in attentions.items()},
            "ablation": None if curve is None else curve._asdict(),
            "generation": self.settings.get("generation"),
        }
        short = "/".join(Path(self.bundle).parts[-3:])  # with the folders that name its run
        save(head_map(attentions, f"heads of {short}"), directory / "heads.png")
        write_json(directory / "heads.json", results)
        tables = {"heads": heads_table(attentions, self.split, len(pairs))}
        print_heads(tables["heads"], attentions)
        if curve is not None:
            save(ablation_curves(curve), directory / "ablation.png")
            tables["ablation"] = ablation_table(curve)
            print_tables({"": tables["ablation"]}, [2] * len(curve.out))
        print(f"written to {self.output}")
        keep_tables(self.bundle, tables)
        return results

    def _curve(
        self, bundle: Bundle, texts: Texts, importance: Mapping[str, Tensor]
    ) -> AblationCurve:
        """Compute the task's first score as heads are removed, in several orders."""
        orders = [least_first(importance), *(random_order(importance, n) for n in range(RANDOM))]
        count = len(orders[0])
        out = sorted({round(count * point / self.points) for point in range(self.points + 1)})
        scores: dict[frozenset[Head], TextScore] = {}
        with progress("removing heads", "passes") as advance:
            for done, (order, heads) in enumerate(product(orders, out), 1):
                gone = frozenset(order[:heads])
                if gone not in scores:
                    with intervene(bundle.model, gates=gates_without(bundle.model, gone)):
                        outputs = bundle.outputs(texts, self.generation)
                    scores[gone] = outputs.scores(self.scorer)[0]
                advance(done, len(orders) * len(out))
        by_order = [[scores[frozenset(order[:heads])].value for heads in out] for order in orders]
        first = scores[frozenset()]
        return AblationCurve(first.name, first.signature, out, by_order[0], by_order[1:])


def _slot(name: str) -> tuple[bool, bool]:
    """Return a sort key by slot: encoder, decoder, cross; attentions of a slot keep their order."""
    return not name.startswith("encoder."), not name.endswith("self_attention")
