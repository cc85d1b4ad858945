"""`analyze`: where a bundle's attention looks in one sentence."""

from collections.abc import Sequence
from pathlib import Path

from seqattn.cli.carried import compose_with_bundle
from seqattn.cli.config import plain
from seqattn.errors import UserError


def analyze(overrides: Sequence[str]) -> None:
    """Runs the verb on the user's overrides."""
    config, _ = compose_with_bundle("analyze", overrides, {})
    settled = plain(config)
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
