"""`seqattn VERB ...`, or `python -m seqattn VERB ...`; the page of help imports nothing."""

import sys
from collections.abc import Sequence

ABOUT = {
    "train": "trains a model and writes a bundle to RUN/model",
    "search": "finds the attention, heads, window, position and depth that suit some data",
    "prepare": "makes shards of a large corpus, for train data=shards",
    "generate": "writes an output for each line of text, with a trained bundle",
    "evaluate": "scores a bundle on a split, by its task's own scorer",
    "compare": "compares systems over seeds, with intervals and tests",
    "distil": "writes a corpus for a student: training sources with what a teacher makes of them",
    "backtranslate": "writes a corpus of target texts with sources that a model made",
    "retrieve": "writes a corpus whose sources begin with targets of like training sources",
    "analyze": "draws where a bundle's attention looks in one sentence or question",
    "report": "makes a page on what bundles make of some sentences, in one file",
    "heads": "tells what each head does and how much it matters, and takes heads out",
    "probe": "tells what the encoder's states hold of context and of labels, layer by layer",
    "explain": "says what outputs are owed to, and how far each method can be trusted",
    "convert": "makes a bundle with fewer key heads, or with weights in int8, from a bundle",
    "export": "writes a bundle for CTranslate2, an engine in C++, and checks it",
    "serve": "answers requests with a bundle, as JSON over HTTP",
}
"""What each verb is for."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `seqattn VERB [name=value ...]` and returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        verbs = "\n".join(f"  {name:<13} {about}" for name, about in ABOUT.items())
        print(f"usage: seqattn VERB [name=value ...]\n\n{verbs}\n\nseqattn VERB --help says more.")
        return 0
    from seqattn.cli.main import run_verb  # Hydra takes a quarter of a second to import

    return run_verb(arguments[0], arguments[1:])


if __name__ == "__main__":
    sys.exit(main())
