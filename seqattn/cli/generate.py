"""`generate`: texts in, texts out."""

from omegaconf import DictConfig

from seqattn.config.check import check_keys
from seqattn.config.compose import settle


def generate(config: DictConfig) -> None:
    """Runs the verb as Hydra composed it."""
    settings = settle("generate", config)
    check_keys("generate", settings)
    from seqattn.runs.generate import Generation  # torch takes seconds to import
    from seqattn.runs.search import from_settings

    from_settings(Generation, settings).run()
