"""`evaluate`: a bundle's scores on a split."""

from omegaconf import DictConfig

from seqattn.config.check import check_keys
from seqattn.config.compose import settle


def evaluate(config: DictConfig) -> None:
    """Runs the verb as Hydra composed it."""
    settings = settle("evaluate", config)
    check_keys("evaluate", settings)
    from seqattn.runs.evaluate import Evaluation  # torch takes seconds to import
    from seqattn.runs.search import from_settings

    from_settings(Evaluation, settings).run()
