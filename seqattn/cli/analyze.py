"""`analyze`: where a bundle's attention looks in one sentence, or in one question."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqattn.cli.carried import compose_with_bundle
from seqattn.cli.config import plain, quoted
from seqattn.cli.fitting import learns
from seqattn.cli.kinds import check_kinds
from seqattn.errors import UserError

_TEXTS = ("text", "target", "question", "context")


def analyze(overrides: Sequence[str]) -> None:
    """Runs the verb on the user's overrides."""
    config, carried = compose_with_bundle("analyze", [_as_text(o) for o in overrides], {})
    settled = plain(config)
    check_kinds(settled)
    given = {name: str(settled[name] or "").strip() for name in _TEXTS}
    output = Path(settled["output"]).expanduser()
    if learns(carried) == "spans":
        if not (given["question"] and given["context"]):
            raise UserError(
                'a question needs its context: question="Who runs?" context="A dog runs."'
            )
        _question(settled, output)
        return
    if not given["text"]:
        raise UserError('text must hold some words: text="A dog runs."')
    _sentence(settled, output)


def _sentence(settled: Mapping[str, Any], output: Path) -> None:
    from seqattn.analysis.look import Sentence, look
    from seqattn.analysis.plots import save
    from seqattn.cli.bundle import load_text_bundle

    bundle = load_text_bundle(settled["bundle"], settled["device"], "analyze")
    tokenizer, text, target = bundle.tokenizer, str(settled["text"]), settled["target"]
    said = bundle.generate([text])[0] if target is None else str(target)
    source_ids = tokenizer.encode_source([text])[0]
    target_ids = tokenizer.encode_target([said])[0]
    views = look(
        bundle.model,
        Sentence(source_ids, tokenizer.source_pieces(source_ids)),
        Sentence(target_ids, tokenizer.target_pieces(target_ids)),
    )
    print(f"source:    {text}\nsaid:      {said}")
    if views.alignment is not None:
        words = views.alignment
        pairs = [f"{t} ← {words.source[i]}" for t, i in zip(words.target, words.links, strict=True)]
        print(f"looked at: {', '.join(pairs)}\nalignment: {words.pharaoh()}")
    pictures = [save(figure, output / f"{name}.png") for name, figure in views.figures.items()]
    print(f"pictures:  {' '.join(str(picture) for picture in pictures)}", flush=True)


def _question(settled: Mapping[str, Any], output: Path) -> None:
    from seqattn.analysis.plots import save
    from seqattn.cli.bundle import SpanBundle, load_bundle
    from seqattn.cli.spans import question_figure

    bundle = load_bundle(settled["bundle"], settled["device"])
    assert isinstance(bundle, SpanBundle)
    question, context = str(settled["question"]), str(settled["context"])
    found = bundle.answer([question], [context])[0]
    best = found.answers[0].text if found.answers else "(no answer)"
    print(f"question:  {question}\nanswer:    {best}")
    figure = question_figure(bundle.model, bundle.encoder, question, context)
    if figure is not None:
        print(f"picture:   {save(figure, output / 'question.png')}", flush=True)


def _as_text(override: str) -> str:
    """Quotes a sentence, so that its commas and colons are no grammar of Hydra's."""
    key, _, value = override.partition("=")
    as_it_is = value == "null" or (len(value) > 1 and value[0] == value[-1] and value[0] in "'\"")
    return override if key not in _TEXTS or as_it_is else f"{key}={quoted(value)}"
