"""`analyze`: where a bundle's attention looks in one sentence."""

from collections.abc import Sequence
from pathlib import Path

from seqattn.cli.carried import compose_with_bundle
from seqattn.cli.config import plain, quoted
from seqattn.cli.kinds import check_kinds
from seqattn.errors import UserError


def analyze(overrides: Sequence[str]) -> None:
    """Runs the verb on the user's overrides."""
    config, _ = compose_with_bundle("analyze", [_as_text(o) for o in overrides], {})
    settled = plain(config)
    check_kinds(settled)
    text = str(settled["text"])
    if not text.strip():
        raise UserError('text must hold some words: text="A dog runs."')
    from seqattn.analysis.look import Sentence, look
    from seqattn.analysis.plots import save
    from seqattn.cli.bundle import load_bundle

    bundle = load_bundle(settled["bundle"], settled["device"])
    tokenizer = bundle.tokenizer
    target = settled["target"]
    said = bundle.generate([text])[0] if target is None else str(target)
    source_ids = tokenizer.encode_source([text])[0]
    target_ids = tokenizer.encode_target([said])[0]
    figures = look(
        bundle.model,
        Sentence(source_ids, tokenizer.source_pieces(source_ids)),
        Sentence(target_ids, tokenizer.target_pieces(target_ids)),
    )
    output = Path(settled["output"]).expanduser()
    print(f"source:    {text}\nsaid:      {said}")
    pictures = [save(figure, output / f"{name}.png") for name, figure in figures.items()]
    print(f"pictures:  {' '.join(str(picture) for picture in pictures)}", flush=True)


def _as_text(override: str) -> str:
    """Quotes a sentence, so that its commas and colons are no grammar of Hydra's."""
    key, _, value = override.partition("=")
    as_it_is = value == "null" or (len(value) > 1 and value[0] == value[-1] and value[0] in "'\"")
    return override if key not in ("text", "target") or as_it_is else f"{key}={quoted(value)}"
