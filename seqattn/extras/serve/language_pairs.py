"""Languages of the served models: which model translates a text."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException

from seqattn.checking import shown
from seqattn.data.languages import known_language
from seqattn.installation import install

_TAG = re.compile(r"<[^<>]*>")
_SAMPLE = 10_000  # characters of a text that tell its language


class Choice(NamedTuple):
    """Model by name, its languages, and how probable the source language is."""

    model: str
    source: str
    target: str
    probability: float


class Pairs:
    """Languages of the served models.

    Args:
        of: returns codes of source and target of each model by name, empty if unknown.
        least: smallest probability of a language to accept for source=auto.
    """

    def __init__(self, of: Callable[[], Mapping[str, Sequence[str]]], least: float) -> None:
        self._of, self._least = of, least

    def __call__(self, name: str | None = None) -> dict[str, tuple[str, str]]:
        """Return the pair of each model, or of one.

        Raises:
            HTTPException: if there is none.
        """
        pairs = {key: (each[0], each[1]) for key, each in self._of().items() if each}
        if name is not None:
            pairs = {key: pair for key, pair in pairs.items() if key == name}
        if not pairs:
            example = "[en,de]" if name is None else f"{{{name}: [en,de]}}"
            line = f"no languages are configured; start the server with languages={example}"
            raise HTTPException(404, line)
        return pairs

    def target(self, name: str) -> str:
        """Return the target language of a model, "" if it is unknown."""
        return [*self._of().get(name, ()), "", ""][1]

    def choose(self, values: Mapping[str, Any], texts: Sequence[str], name: str | None) -> Choice:
        """Return the first model for the languages of a request.

        Args:
            values: `source` and `target`; without a source, or with "auto", it is detected.
            texts: texts that tell the source language, without markup.
            name: the model, if the request names it.

        Raises:
            HTTPException: if there is none, or the language cannot be told.
        """
        pairs, probability = self(name), 1.0
        sources = dict.fromkeys(source for source, _ in pairs.values())
        source = values.get("source")
        _check("source", source, (*sources, "auto"))
        if source in (None, "auto"):
            [source], probability = [*sources][:1], 1.0
            if len(sources) > 1:
                source, probability = self._detected(texts, [*sources])
        targets = {key: pair[1] for key, pair in pairs.items() if pair[0] == source}
        several = f" from {source}" if len(sources) > 1 else ""
        _check("target", values.get("target"), dict.fromkeys(targets.values()), several)
        target = values.get("target") or next(iter(targets.values()))
        model = next(key for key, code in targets.items() if code == target)
        return Choice(model, source, target, probability)

    def _detected(self, texts: Sequence[str], codes: Sequence[str]) -> tuple[str, float]:
        by_short = {[*known_language(code), code, code][1]: code for code in reversed(codes)}
        sample = "\n".join(texts[:_SAMPLE])[:_SAMPLE]
        ranks = _identifier(tuple(by_short)).rank(_TAG.sub(" ", sample))
        (short, probability), *_ = ranks
        if probability < self._least:
            each = ", ".join(f"{by_short[short]} {share:.2f}" for short, share in ranks[:5])
            raise HTTPException(400, f"cannot tell the source language ({each}); send source")
        return by_short[short], probability


def _check(key: str, code: Any, known: Collection[str], rest: str = "") -> None:
    if code is not None and code not in [*known]:
        raise HTTPException(400, f"{key} must be {' or '.join(known)}{rest}, got {shown(code)}")


@lru_cache(8)
def _identifier(codes: Sequence[str]) -> Any:
    """Return what tells some languages apart.

    Raises:
        HTTPException: if it is not installed, or knows fewer than two of them.
    """
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ModuleNotFoundError as error:
        line = f"source=auto needs py3langid; {install('detect')}, or send source"
        raise HTTPException(400, line) from error
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    if known := {*codes} & {*identifier.nb_classes}:
        identifier.set_languages(known)
        return identifier
    raise HTTPException(400, "source=auto knows none of these languages; send source")
