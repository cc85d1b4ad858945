"""`train`: from a configuration to a bundle."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from seqattn.cli.config import compose_config, plain, require_values
from seqattn.cli.fitting import check_fit
from seqattn.cli.kinds import check_own_keys, check_targets
from seqattn.cli.quiet import quieten
from seqattn.cli.run_dir import choose_run_dir, claimed, is_first_rank
from seqattn.cli.train_checks import advice, check_lengths, check_training
from seqattn.errors import UserError

Config = dict[str, Any]


def train(overrides: Sequence[str]) -> None:
    """Runs one training from the user's overrides."""
    overrides = _with_saved(overrides)
    config = compose_config("train", overrides)
    require_values(config)
    given = plain(config)
    check_own_keys(given)
    run_dir = choose_run_dir(given["name"], given["run_dir"], given["resume"])
    config.run_dir = str(run_dir)
    settled = plain(config)
    check_targets(settled)
    check_fit(settled)
    check_training(settled)
    quieten()
    from lightning.pytorch.callbacks import LambdaCallback  # it and torch take seconds to import

    from seqattn.cli.build import build_data
    from seqattn.cli.run import Run
    from seqattn.cli.starting import begin_from, starting_bundle
    from seqattn.data.tokenizer import Tokenizer

    with claimed(run_dir):
        try:
            kept = run_dir / "tokenizer"
            start = starting_bundle(settled, overrides)
            tokenizer = Tokenizer.load(kept) if settled["resume"] else None
            data = build_data(settled, start.tokenizer if start else tokenizer)
            model = _seeded_model(settled, data.tokenizer)
            if start:
                begin_from(start, model, settled)
            data.setup("fit")
            check_lengths(data, model)
            run = Run(settled, run_dir, data, model)
        except UserError:
            _remove_if_empty(run_dir)
            raise
        if is_first_rank():
            own = getattr(data.source, "report", list)  # of what was mended while reading
            for line in [*advice(settled), *own(), *data.report()]:
                print(line, file=sys.stderr)
            data.tokenizer.save(kept)
            # once training begins: a resumption that is refused leaves the run's own settings
            keep = LambdaCallback(
                on_train_start=lambda trainer, task: _keep_config(run_dir, settled, overrides)
            )
            run.trainer.callbacks.append(keep)  # type: ignore[attr-defined]
        run.go()


def _with_saved(overrides: Sequence[str]) -> list[str]:
    """With `resume=RUN`: what that run was started with, then what is new."""
    run = next((o.partition("=")[2] for o in overrides if o.startswith("resume=")), "null")
    if run == "null":
        return list(overrides)
    saved = Path(run).expanduser() / "overrides.yaml"
    if not saved.is_file():
        raise UserError(f"resume={run} is no run: {saved} is not there")
    try:
        before = yaml.safe_load(saved.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        before = None
    if not isinstance(before, list) or not all(isinstance(o, str) for o in before):
        raise UserError(f"{saved} cannot be read; start a run anew")
    replaced = {"run_dir", "resume", *(override.partition("=")[0] for override in overrides)}
    return [*(o for o in before if o.partition("=")[0] not in replaced), *overrides]


def _seeded_model(config: Config, tokenizer: Any) -> Any:
    from lightning import seed_everything

    from seqattn.cli.build import build_model
    from seqattn.training.memory import keep_freed_memory

    keep_freed_memory()
    seed_everything(int(config["seed"]), verbose=False)
    return build_model(config, tokenizer)


def _remove_if_empty(run_dir: Path) -> None:
    (run_dir / ".lock").unlink(missing_ok=True)
    for path in (run_dir, *run_dir.parents):
        if path == Path() or not path.is_dir() or any(path.iterdir()):
            return
        path.rmdir()


def _keep_config(run_dir: Path, config: Config, overrides: Sequence[str]) -> None:
    written = yaml.safe_dump(config, sort_keys=False)
    (run_dir / "config.yaml").write_text(written, encoding="utf-8")
    (run_dir / "overrides.yaml").write_text(yaml.safe_dump(list(overrides)), encoding="utf-8")
