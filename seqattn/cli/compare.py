"""`compare`: evaluations side by side."""

from omegaconf import DictConfig

from seqattn.config.check import check_keys
from seqattn.config.compose import settle


def compare(config: DictConfig) -> None:
    """Runs the verb as Hydra composed it."""
    settings = settle("compare", config)
    check_keys("compare", settings)
    from seqattn.runs.compare import Comparison  # torch takes seconds to import
    from seqattn.runs.search import from_settings

    from_settings(Comparison, settings).run()
