"""`convert`: a bundle with fewer key and value heads, made from another."""

from omegaconf import DictConfig

from seqattn.config.check import check_keys
from seqattn.config.compose import settle


def convert(config: DictConfig) -> None:
    """Runs the verb as Hydra composed it."""
    settings = settle("convert", config)
    check_keys("convert", settings)
    from seqattn.runs.convert import Conversion  # torch takes seconds to import
    from seqattn.runs.search import from_settings

    from_settings(Conversion, settings).run()
