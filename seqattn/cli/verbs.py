"""What the verbs do, with a configuration as Hydra composed it."""

import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from seqattn.bundle.nodes import TARGET, build
from seqattn.config.compose import choices, settle
from seqattn.config.overrides import is_filled
from seqattn.errors import UserError
from seqattn.runs.run_directory import remove_empty

Action = Callable[[DictConfig], float | None]


def _as_run(verb: str, name: str) -> Action:
    """Return the action of a verb that is a class with `run`. Args: name: its path in seqattn."""

    def run(config: DictConfig) -> None:
        settings = settle(verb, config)
        if settings.get("bundle") and sys.stderr is not None and sys.stderr.isatty():
            print(f"loading {settings['bundle']}", file=sys.stderr)
        build({TARGET: f"seqattn.{name}", **settings}).run()  # where torch is imported

    return run


def require_extra(verb: str) -> None:
    """Check that the extra of a verb is installed, and the extras that it needs.

    Raises:
        UserError: one is not.
    """
    waiting = [EXTRAS_OF_VERBS[verb]] if verb in EXTRAS_OF_VERBS else []
    while waiting:
        name = f"seqattn.extras.{waiting.pop()}"
        try:
            waiting += import_module(name).NEEDS
        except ModuleNotFoundError as error:
            raise UserError(f"{name} is not installed, and {verb} needs it") from error


def run_home() -> Path:
    """Where the files of the job that Hydra runs go."""
    home = Path(HydraConfig.get().runtime.output_dir)
    return home.relative_to(Path.cwd()) if home.is_relative_to(Path.cwd()) else home


def train(config: DictConfig) -> float | None:
    """Returns the number that a sweeper watches."""
    home = run_home()
    try:
        settings = settle("train", config, run_dir=str(home))
        several = HydraConfig.get().mode == RunMode.MULTIRUN
        if several and isinstance(settings["resume"], str) and settings["resume"] != "auto":
            raise UserError(
                f"resume={settings['resume']} goes on with one run, and each job of a multirun "
                "has its own; leave one of resume and -m out"
            )
        told = [one for one in HydraConfig.get().overrides.task if not is_filled(one)]
        kept = [one for one in told if one.partition("=")[0] not in ("resume", "run_dir")]
        own: dict[str, object] = {
            TARGET: "seqattn.runs.train.Training",
            "choices": choices(),
            "overrides": kept,
        }
        if several:
            own["sweep"] = home.parent.name
        run = build({**settings, **own})
        result: float | None = run.find_rate() if run.find_lr else run.run().monitored
        return result
    finally:
        remove_empty(home)  # Hydra made it, and where nothing came of it none is left


def search(config: DictConfig) -> None:
    """Searches for a model, by trainings of the same command line."""
    home = run_home()
    try:
        settings = settle("search", config, run_dir=str(home))
        own = {key: settings.pop(key) for key in ("space", "budget", "jobs")}
        words = [
            word
            for word in HydraConfig.get().overrides.task
            if word.partition("=")[0].partition(".")[0] not in ("run_dir", *own)
        ]
        sources = HydraConfig.get().runtime.config_sources
        added = [one.path for one in sources if one.provider == "command-line"]
        others = HydraConfig.get().overrides.hydra
        paths = [one for one in others if one.startswith("hydra.searchpath=")]
        own |= {
            TARGET: "seqattn.extras.search.search.ModelSearch",
            "run_dir": str(home),
            "seed": settings["seed"],
            "overrides": words,
            "options": [*(word for path in added for word in ("--config-dir", path)), *paths],
        }
        run = build(own)
        replace(run, settings=settings).run()
    finally:
        remove_empty(home)


_RUNS = {
    "prepare": "extras.shards.prepare.Preparation",
    "generate": "runs.generate.Generation",
    "evaluate": "runs.evaluate.Evaluation",
    "compare": "extras.compare.compare.Comparison",
    "distil": "extras.corpora.distil.Distillation",
    "backtranslate": "extras.corpora.backtranslate.BackTranslation",
    "retrieve": "extras.corpora.retrieve.Retrieval",
    "analyze": "runs.analyze.Analysis",
    "report": "extras.report.report.Report",
    "heads": "extras.explain.heads.HeadAnalysis",
    "probe": "extras.explain.probe.Probing",
    "explain": "extras.explain.explain.Explaining",
    "convert": "extras.convert.convert.Conversion",
    "export": "extras.exchange.export.Export",
    "serve": "extras.serve.serve.Serving",
}
EXTRAS_OF_VERBS = {
    "search": "search",
    **{verb: path.split(".")[1] for verb, path in _RUNS.items() if path.startswith("extras.")},
}
"""The extra that each verb belongs to, but for those of the core."""
VERBS: dict[str, Action] = {
    "train": train,
    "search": search,
    **{verb: _as_run(verb, name) for verb, name in _RUNS.items()},
}
"""What each verb does."""
