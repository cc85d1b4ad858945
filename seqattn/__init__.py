"""Sequence-to-sequence models with any attention: train them, decode them, look inside."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqattn.bundle.bundle import Bundle
    from seqattn.training.result import TrainingResult

__version__ = "0.1.0"
__all__ = ["__version__", "load", "train"]


def load(
    path: str | Path,
    device: str = "cpu",
    trust: Collection[str] = (),
    ensemble: Sequence[str | Path] = (),
) -> "Bundle":
    """Load a bundle written by training.

        model = seqattn.load("RUN/model")
        model.generate("A dog runs.")  # one text for one text
        model.generate(["A dog runs.", "He sings."], "beam", beam_size=2)  # a list for a list

    Args:
        path: the bundle's directory, `RUN/model`; its run, `RUN`, is accepted too.
        device: device of the model, such as `cpu` or `cuda`.
        trust: third-party packages whose classes the bundle may name; they are imported and run.
            By default a bundle runs no code of its own.
        ensemble: further bundles with the same vocabulary; the mean probability of all models is
            used at every step, with the tokenization and search of the first.

    Returns:
        A `Bundle` with `generate` and `hypotheses`; of a task of question answering, a bundle
        with `answer`.

    Raises:
        UserError: if the directory is missing, incomplete or not a bundle, or names a package that
            is not trusted; or the vocabularies of an ensemble differ.
    """
    from seqattn.bundle.load import load_bundle  # torch takes seconds to import

    bundle: Any = load_bundle(path, device, trust, ensemble)
    return bundle


def train(*words: str, **values: Any) -> "TrainingResult":
    """Train, with arguments of the command line or the same as plain values.

        result = seqattn.train("attention=gqa", "model.dim=128", run_dir="runs/mine", seed=2)
        seqattn.load(result.bundle)

    Args:
        *words: such as `attention=gqa`, as after `python train.py`.
        **values: values by key: numbers, texts, paths, True, False, None, lists and dicts of these;
            `**{"trainer.max_steps": 500}` for keys with dots.

    Returns:
        Paths of the run and its bundle, steps and scores.

    Raises:
        UserError: as for the command, with the same message.
        Stopped: if a signal has stopped it; call it again with the same `run_dir` to resume.
    """
    from seqattn.cli.from_python import train_from

    return train_from([*words], values)


def __dir__() -> list[str]:
    return list(__all__)
