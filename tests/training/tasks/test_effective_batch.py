"""However an optimizer step's batches are cut, its gradient is that of one big batch."""

import itertools
from dataclasses import replace
from functools import partial

import lightning
import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch.plugins import MixedPrecision
from torch.utils.data import DataLoader

from seqattn.data.batch import collate
from seqattn.ops.cross_entropy import LossTerms
from seqattn.training.optim import adamw
from seqattn.training.precision import OnceUnscaled
from seqattn.training.schedules import constant
from seqattn.training.tasks.seq2seq import Optimization, Seq2SeqTask
from tests.builders import VOCABULARY, make_transformer
from tests.forked_ranks import join, run_ranks

SMOOTHING = 0.1
SIZES = (3, 1, 4, 2, 1, 2)  # rows of each batch; five of them leave a short last window


class Recorded(Seq2SeqTask):
    """Keeps the gradient of every optimizer step."""

    def on_before_optimizer_step(self, optimizer):
        super().on_before_optimizer_step(optimizer)
        if not hasattr(self, "gradients"):
            self.gradients = []
        self.gradients.append([p.grad.clone() for p in self.model.parameters()])


def rows(count, seed):
    source = torch.Generator().manual_seed(seed)

    def sentence():
        length = int(torch.randint(1, 9, (1,), generator=source))
        return [*torch.randint(4, VOCABULARY, (length,), generator=source).tolist(), 3]

    return [sentence() for _ in range(count)], [sentence() for _ in range(count)]


def batch_of(sources, targets):
    return collate(sources, targets, index=range(len(sources)))


def sides(sizes=SIZES):
    return [rows(size, seed) for seed, size in enumerate(sizes)]


def joined(several):
    return batch_of(*(list(itertools.chain(*parts)) for parts in zip(*several)))


def no_steps(model, fused):
    """Weights stand still, so that every window meets the same ones."""
    return torch.optim.SGD(model.parameters(), lr=0.0)


def task_of(optimizer=no_steps, dtype=torch.float64, kind=Recorded, **config):
    model = make_transformer(dropout=0.0, **config).to(dtype).train()
    return kind(
        model, Optimization(optimizer, constant(0), terms=LossTerms(label_smoothing=SMOOTHING))
    )


def trainer_of(**options):
    return lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        **{"devices": 1, "max_epochs": 1, "num_sanity_val_steps": 0, **options},
    )


def fit(task, several, **options):
    return fit_batches(task, [batch_of(*pair) for pair in several], **options)


def fit_batches(task, batches, accumulate_grad_batches=1, gradient_clip_val=None, **options):
    """A training whose steps have so many batches on each rank."""
    starts = range(0, len(batches), accumulate_grad_batches)
    steps = [batches[start : start + accumulate_grad_batches] for start in starts]
    task.optimization = replace(task.optimization, clip=gradient_clip_val)
    loader = DataLoader(steps, batch_size=None, generator=torch.Generator())
    trainer_of(**options).fit(task, loader)
    return task


def reference(model, batch):
    """The gradient of the loss per real token, by PyTorch's own cross-entropy."""
    model.zero_grad()
    logits = model(batch.source, batch.target_input)
    F.cross_entropy(
        logits.flatten(0, 1),
        batch.target_output.flatten(),
        ignore_index=0,
        label_smoothing=SMOOTHING,
    ).backward()
    return [p.grad.clone() for p in model.parameters()]


def assert_same(got, wanted, tolerance):
    for mine, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("number", [1, 5, 6])
@pytest.mark.parametrize("window", [1, 3])
def test_accumulated_uneven_batches_give_the_gradient_of_the_one_big_batch(number, window):
    several = sides()[:number]
    task = fit(task_of(), several, accumulate_grad_batches=window)
    windows = [several[start : start + window] for start in range(0, number, window)]
    assert len(task.gradients) == len(windows)
    for got, part in zip(task.gradients, windows, strict=True):
        assert_same(got, reference(task.model, joined(part)), 1e-10)


def test_it_holds_to_1e_6_in_float32_and_a_mean_of_means_does_not():
    several = sides()[:3]
    task = fit(task_of(dtype=torch.float32), several, accumulate_grad_batches=3)
    wanted = reference(task.model, joined(several))
    assert_same(task.gradients[0], wanted, 1e-6)
    parts = [reference(task.model, batch_of(*pair)) for pair in several]
    means = [torch.stack(three).mean(0) for three in zip(*parts)]
    assert max(float((m - w).abs().max()) for m, w in zip(means, wanted)) > 1e-3


def test_the_windows_of_a_second_epoch_are_clean_of_the_first():
    several = sides()[:4]
    task = fit(task_of(), several, accumulate_grad_batches=3, max_epochs=2)
    assert len(task.gradients) == 4
    for first, second in zip(task.gradients[:2], task.gradients[2:]):
        assert_same(first, second, 1e-12)


class Told(Recorded):
    """Keeps what is logged in each step: the last figure before the weights move."""

    def log_dict(self, figures, **options):
        self.figure = float(figures["train/loss"])

    def on_before_optimizer_step(self, optimizer):
        super().on_before_optimizer_step(optimizer)
        self.told = [*getattr(self, "told", []), self.figure]


@pytest.mark.parametrize("together", [1, 2, 3])
def test_the_loss_that_is_logged_is_that_of_all_batches_of_the_step(together):
    several = sides()[:5]
    task = fit(task_of(kind=Told), several, accumulate_grad_batches=together)
    windows = [several[start : start + together] for start in range(0, 5, together)]
    with torch.no_grad():
        sums = [task.loss(joined(part)) for part in windows]
    wanted = [float(one.smoothed / one.tokens) for one in sums]
    assert task.told == pytest.approx(wanted, rel=1e-6)


class Clipped(Seq2SeqTask):
    """Keeps the norm that the optimizer sees, and the one before it."""

    def _clip(self):
        def norm():
            return float(torch.cat([p.grad.flatten() for p in self.model.parameters()]).norm())

        before = norm()
        found = super()._clip()
        self.norms = (before, norm())
        return found

    def log_dict(self, figures, **options):
        self.told = float(figures["train/gradient_norm"])


@pytest.mark.parametrize("limit", [0.05, 1e6, None])
def test_clipping_bounds_the_norm_of_the_normalized_gradient(limit):
    task = fit(
        task_of(kind=Clipped), sides()[:3], accumulate_grad_batches=3, gradient_clip_val=limit
    )
    before, after = task.norms
    wanted = torch.cat([g.flatten() for g in reference(task.model, joined(sides()[:3]))]).norm()
    assert before == pytest.approx(float(wanted), rel=1e-9)
    assert task.told == pytest.approx(before)
    assert after == pytest.approx(min(before, limit or before), rel=1e-4)


def test_fp16_clips_unscaled_gradients_and_skips_those_that_overflow():
    def trained(scale):
        task = task_of(
            lambda model, fused: torch.optim.SGD(model.parameters(), lr=1.0), torch.float32
        )
        before = [p.detach().clone() for p in task.model.parameters()]
        scaler = OnceUnscaled("cpu", init_scale=scale)
        plugin = MixedPrecision("16-mixed", "cpu", scaler)
        fit(task, sides()[:2], accumulate_grad_batches=2, gradient_clip_val=0.05, plugins=[plugin])
        return task, before, scaler

    task, before, scaler = trained(2.0**10)
    moved = torch.cat([(a - b).flatten() for a, b in zip(before, task.model.parameters())])
    assert float(task.gradient_norm) > 0.1
    assert float(moved.norm()) == pytest.approx(0.05, rel=1e-3)
    (gradient,) = [torch.cat([g.flatten() for g in one]) for one in task.gradients]
    torch.testing.assert_close(moved, gradient, atol=1e-6, rtol=1e-4)
    assert scaler.get_scale() == 2.0**10

    task, before, scaler = trained(2.0**40)
    assert all(map(torch.equal, before, task.model.parameters()))
    assert scaler.get_scale() == 2.0**39


def test_a_step_moves_the_weights_as_the_big_batch_would():
    several = sides()[:3]
    sgd = partial(lambda model, fused: torch.optim.SGD(model.parameters(), lr=0.5))
    task = task_of(sgd)
    before = [p.detach().clone() for p in task.model.parameters()]
    gradient = reference(task.model, joined(several))
    task.model.zero_grad()
    fit(task, several, accumulate_grad_batches=3)
    for weight, old, step in zip(task.model.parameters(), before, gradient, strict=True):
        torch.testing.assert_close(weight.detach(), old - 0.5 * step, atol=1e-10, rtol=1e-9)


class Falling:
    """A schedule of one's own that is an object."""

    def __init__(self, share):
        self.share = share

    def __call__(self, step):
        return self.share**step


def test_a_run_goes_on_by_its_new_schedule_where_that_is_an_object():
    def made(share):
        task = Recorded(make_transformer(), Optimization(partial(adamw, lr=1.0), Falling(share)))
        task.trainer = trainer_of()
        return task.configure_optimizers()["lr_scheduler"]["scheduler"]

    before, after = made(0.5), made(0.1)
    after.load_state_dict(before.state_dict())
    assert {rate(2) for rate in after.lr_lambdas} == {0.1**2}


def _rank(rank, port, path):
    join(rank, port, 2)
    torch.manual_seed(rank)  # ranks agree through the first one's weights alone
    own = sides()[rank::2]
    task = fit(task_of(), own, devices=2, strategy="ddp", accumulate_grad_batches=2)
    torch.save(task.gradients, path / f"{rank}.pt")


def test_two_ranks_of_uneven_batches_give_the_gradient_of_the_one_big_batch(tmp_path):
    run_ranks(_rank, 2, tmp_path)
    several = sides()
    windows = [several[:4], several[4:]]  # two batches on each of two ranks, then one on each
    model = task_of().model
    for rank in (0, 1):
        gradients = torch.load(tmp_path / f"{rank}.pt")
        assert len(gradients) == 2
        for got, part in zip(gradients, windows, strict=True):
            assert_same(got, reference(model, joined(part)), 1e-10)


def test_each_batch_of_a_step_draws_for_itself(monkeypatch):
    task, batches, seeds = task_of(), sides(), []
    monkeypatch.setattr(torch, "manual_seed", seeds.append)
    fit(task, batches, accumulate_grad_batches=2, max_epochs=2)
    assert len(set(seeds)) == len(seeds) == 2 * len(SIZES)
