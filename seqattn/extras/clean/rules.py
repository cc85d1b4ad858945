"""Rules by which pairs of a corpus are dropped or counted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Gt, Le

from seqattn.data.text_lines import is_letterless
from seqattn.errors import UserError
from seqattn.extras.clean.content import (
    Identify,
    addresses_of,
    is_in,
    is_language,
    language_identifier,
    numbers_of,
    usual_language,
    usual_scripts,
)
from seqattn.extras.shards.cleaning import Cleaning
from seqattn.installation import install

Counted = Literal["numbers", "addresses", "script", "language"]
Check = Callable[[str, str], bool]
"""Function of a source and a target that returns True for a pair to count."""


@dataclass(frozen=True)
class CorpusCleaning(Cleaning):
    """Rules for dropping pairs.

    Args:
        min_length, max_length, max_ratio, duplicates: as of `Cleaning`.
        identical: drop pairs of equal sides, in upper or lower case, unless they have no letter.
        targets: of pairs with equal targets, the one to retain: the "first", or the "best" source
            by `bundle` and `reverse`; None for all.
        leaks: what becomes of pairs that are in val or test, too: an "error", "drop" or "keep".
        min_information: drop pairs whose source tells less than this of the target, by `bundle` and
            `reverse`: nats per token, see `PairScores.information`; None not to.
        bundle: a trained bundle that scores pairs.
        reverse: a bundle of the reverse direction. Scores are then the means of both.
        drop: what is also dropped, and else counted: pairs of different "numbers" or "addresses" on
            both sides, and sides of another "script" or "language" than most.

    Raises:
        UserError: for a rule without its bundle, or a bundle without a rule.
    """

    identical: bool = True
    targets: Literal["first", "best"] | None = None
    leaks: Literal["error", "drop", "keep"] = "error"
    min_information: Annotated[float, Gt(0), Le(10)] | None = None
    bundle: str | None = None
    reverse: str | None = None
    drop: Sequence[Counted] = field(default=())

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_information is not None and self.bundle is None:
            raise UserError("clean.min_information needs a trained model; set clean.bundle=DIR")
        if self.targets == "best" and not (self.bundle and self.reverse):
            raise UserError(
                "clean.targets=best needs models of both directions; set clean.bundle and "
                "clean.reverse, or use clean.targets=first"
            )
        is_scored = self.min_information is not None or self.targets == "best"
        if (self.bundle or self.reverse) and not is_scored:
            raise UserError(
                "clean.bundle has no effect without clean.min_information or clean.targets=best; "
                "add one"
            )
        if self.reverse and not self.bundle:
            raise UserError("clean.reverse needs clean.bundle; set it to a model of this direction")

    def fault(self, source: str, target: str) -> str | None:
        fault = super().fault(source, target)
        if fault is None and self.identical and not is_letterless(source):
            same = source.strip().casefold() == target.strip().casefold()
            return "identical sides" if same else None
        return fault

    def checks(self, sources: Sequence[str], targets: Sequence[str]) -> dict[Counted, Check]:
        """Return what is counted, or dropped if it is in `drop`. Args: a sample of both sides.

        Raises:
            UserError: for languages, if what identifies them is not installed.
        """
        identify = language_identifier()
        if identify is None and "language" in self.drop:
            raise UserError(f"clean.drop=[language] needs py3langid: {install('clean')}")
        scripts = usual_scripts(sources), usual_scripts(targets)
        checks: dict[Counted, Check] = {
            "numbers": lambda source, target: numbers_of(source) != numbers_of(target),
            "addresses": lambda source, target: addresses_of(source) != addresses_of(target),
            "script": lambda *pair: not all(map(is_in, scripts, pair)),
        }
        if identify is not None:
            checks["language"] = _language_check(identify, sources, targets)
        return checks


def _language_check(identify: Identify, sources: Sequence[str], targets: Sequence[str]) -> Check:
    languages = usual_language(identify, sources), usual_language(identify, targets)

    def is_other(*pair: str) -> bool:
        sides = zip(languages, pair, strict=True)
        return not all(is_language(identify, language, text) for language, text in sides)

    return is_other
