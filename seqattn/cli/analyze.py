"""`analyze`: where a bundle's attention looks in one sentence, or in one question."""

from omegaconf import DictConfig

from seqattn.config.check import check_keys
from seqattn.config.compose import settle


def analyze(config: DictConfig) -> None:
    """Runs the verb as Hydra composed it."""
    settings = settle("analyze", config)
    check_keys("analyze", settings)
    from seqattn.runs.analyze import Analysis  # torch takes seconds to import
    from seqattn.runs.search import from_settings

    from_settings(Analysis, settings).run()
