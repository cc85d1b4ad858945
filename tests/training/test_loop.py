"""The page of the training loop says what a run does, and in which order."""

import re
from types import SimpleNamespace

from lightning import Callback, LightningModule

from seqattn.training import loop as page
from tests.cli.small import run, train_arguments

HOOKS = r"on_(?!train_batch|train_epoch|.*_checkpoint|exception)|validation_step$|pause$"
HOOKS += r"|(begin|end)($|_validation)"


def hooks_of(part, base=object):
    """The methods that a part or task has itself, and that are called around steps."""
    own = {name for kind in type(part).__mro__ for name in vars(kind) if re.match(HOOKS, name)}
    return [name for name in own if getattr(type(part), name) is not getattr(base, name, None)]


def test_the_calls_around_steps_are_those_of_the_page(capfd, corpus, tmp_path, monkeypatch):
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
        for name, part in vars(loop).items():
            if name != "options" and type(part).__module__.startswith("seqattn.training"):
                for hook in hooks_of(part, Callback if isinstance(part, Callback) else object):
                    record(part, hook, f"{name}.{hook}")
        for hook in hooks_of(setup.task, LightningModule):
            record(setup.task, hook, f"task.{hook}")
        record(loop, "save_settings", "loop.save_settings")

    monkeypatch.setattr(page.TrainingLoop, "prepare", prepared)
    words = ("checkpoint.patience=1", "task.final=null", f"run_dir={tmp_path}/run")
    ended = run(capfd, "train", *train_arguments(corpus, *words, steps=1, every=1))
    assert ended.code == 0, ended.err
    written = re.findall(r"^    (\w+\.\w+)  ", page.__doc__, re.M)
    assert list(dict.fromkeys(calls)) == written  # a validation has several batches
    assert len(set(written)) == len(written)
