"""`train`: from a configuration to a bundle."""

from omegaconf import DictConfig

from seqattn.config.check import check_keys
from seqattn.config.compose import choices, run_directory, settle, typed
from seqattn.runs.run_directory import remove_empty


def train(config: DictConfig) -> float | None:
    """Runs the verb as Hydra composed it; returns the number that a sweeper watches."""
    home = run_directory()
    try:
        settings = settle("train", config, run_dir=str(home))
        check_keys("train", settings)
        from seqattn.config.build import training  # torch takes seconds to import

        return training(settings, choices(), typed()).run().monitored
    finally:
        remove_empty(home)  # Hydra made it, and where nothing came of it none is left
