"""Importance of a bundle's heads, and removal of the least important ones."""

import sys
from collections.abc import Sequence

from seqattn.analysis.pairs import Pair
from seqattn.bundle.bundle import Bundle
from seqattn.errors import UserError
from seqattn.extras.explain.importance import by_attention, gate_sizes, head_importance
from seqattn.extras.explain.pruning import Units, pruned
from seqattn.models.transformer import Transformer
from seqattn.subcommands.bundle_run import ScoredRun


def pairs_of(bundle: Bundle, sources: Sequence[str], targets: Sequence[str]) -> list[Pair]:
    """Encode texts as ids, using the first window of each source and no rows with an empty side."""
    rows = zip(bundle.encode(sources), bundle.tokenizer.encode_target(targets), strict=True)
    return [Pair(windows[0], target) for windows, target in rows if windows[0] and len(target) > 1]


def pruned_by_importance(run: ScoredRun, bundle: Bundle, count: int) -> Bundle:
    """Remove the heads that matter least for the run's split from a bundle's weights.

    Args:
        run: run with the data and split that determine importance.
        bundle: bundle with all heads.
        count: number of heads to remove.

    Raises:
        UserError: if they cannot be removed, or the split cannot be read.
    """
    bundle = bundle.texts("pruning")
    if not isinstance(bundle.model, Transformer):
        raise UserError(
            f"{run.bundle} contains a {type(bundle.model).__name__}; pruning requires a Transformer"
        )
    units = Units(bundle.model, gate_sizes(bundle.model), count)
    texts = run.read_rows(bundle)
    pairs = pairs_of(bundle, texts.sources, texts.targets)
    if not pairs:
        raise UserError(f"the {run.split} split has no pairs to rank heads on; choose another")
    print(f"ranking heads on {len(pairs):,} pairs of {run.split}", file=sys.stderr)
    retained = units.least_important(by_attention(head_importance(bundle.model, pairs)))
    return pruned(bundle, retained)
