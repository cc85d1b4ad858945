"""The heads of a bundle by their importance, and the bundle without the least important ones."""

import sys
from collections.abc import Sequence

from seqattn.analysis.pairs import Pair
from seqattn.bundle.bundle import Bundle
from seqattn.bundle.text_bundle import TextBundle
from seqattn.errors import UserError
from seqattn.extras.explain.importance import by_attention, gate_sizes, head_importance
from seqattn.extras.explain.pruning import Units, pruned
from seqattn.models.transformer import Transformer
from seqattn.verbs.bundle_run import ScoredRun


def pairs_of(bundle: TextBundle, sources: Sequence[str], targets: Sequence[str]) -> list[Pair]:
    """Texts as ids; of a source in several windows the first, rows with an empty side left out."""
    rows = zip(bundle.encode(sources), bundle.tokenizer.encode_target(targets), strict=True)
    return [Pair(windows[0], target) for windows, target in rows if windows[0] and len(target) > 1]


def pruned_by_importance(run: ScoredRun, bundle: Bundle, count: int) -> TextBundle:
    """A bundle without the heads that matter least for the run's split, removed from its weights.

    Args:
        run: whose data and split say what matters.
        bundle: with all of its heads.
        count: how many go.

    Raises:
        UserError: where they cannot go, or the split cannot be read.
    """
    bundle = bundle.texts("pruning")
    if not isinstance(bundle.model, Transformer):
        raise UserError(
            f"{run.bundle} holds a {type(bundle.model).__name__}; pruning takes a Transformer"
        )
    units = Units(bundle.model, gate_sizes(bundle.model), count)
    texts = run.read_texts(bundle)
    pairs = pairs_of(bundle, texts.sources, texts.targets)
    if not pairs:
        raise UserError(f"the {run.split} split has no pairs to judge heads by; give another split")
    print(f"judging heads by {len(pairs):,} pairs of {run.split}", file=sys.stderr)
    kept = units.least_important(by_attention(head_importance(bundle.model, pairs)))
    return pruned(bundle, kept)
