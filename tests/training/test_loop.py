"""The page of the training loop says what a run does, and in which order."""

import re
from types import SimpleNamespace

from lightning import Callback, LightningModule
from torch.optim.optimizer import register_optimizer_step_post_hook

from seqattn.training import loop as page
from tests.cli.small import run, train_arguments

HOOKS = r"on_(?!.*_checkpoint)|training_step|validation_step|backward|configure_gradient|lr_sched"


def hooks_of(part, base):
    """The hooks that a callback or task has itself."""
    own = {name for kind in type(part).__mro__ for name in vars(kind) if re.match(HOOKS, name)}
    default = ("lr_scheduler_step",)
    return [
        name
        for name in own
        if name in default or getattr(type(part), name) is not getattr(base, name, None)
    ]


def test_the_calls_of_a_run_of_one_step_are_those_of_the_page(capfd, corpus, tmp_path, monkeypatch):
    calls = []
    terminal = SimpleNamespace(stderr=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(page, "sys", terminal)  # so that there is a bar

    def record(owner, name, label):
        own = getattr(owner, name)

        def recorded(*args, **more):
            calls.append(label)
            return own(*args, **more)

        object.__setattr__(owner, name, recorded)

    prepare = page.TrainingLoop.prepare

    def prepared(loop, setup, *rest):
        prepare(loop, setup, *rest)
        parts = {name: part for name, part in vars(loop).items() if isinstance(part, Callback)}
        for name, part in parts.items():
            for hook in hooks_of(part, Callback):
                record(part, hook, f"{name}.{hook}")
        for hook in hooks_of(setup.task, LightningModule):
            record(setup.task, hook, f"task.{hook}")
        record(loop, "save_settings", "loop.save_settings")

    monkeypatch.setattr(page.TrainingLoop, "prepare", prepared)
    steps = register_optimizer_step_post_hook(lambda *_: calls.append("optimizer.step"))
    words = ("checkpoint.patience=1", "task.final=null", f"run_dir={tmp_path}/run")
    try:
        ended = run(capfd, "train", *train_arguments(corpus, *words, steps=1, every=1))
    finally:
        steps.remove()
    assert ended.code == 0, ended.err
    written = re.findall(r"^    (\w+\.\w+)  ", page.__doc__, re.M)
    assert list(dict.fromkeys(calls)) == written  # a validation has several batches
    assert len(set(written)) == len(written)
