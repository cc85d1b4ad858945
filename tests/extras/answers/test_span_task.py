"""The span task: one big batch's gradient, and scores of real answers."""

import itertools
import math
from dataclasses import fields, replace

import pytest
import torch
import torch.nn.functional as F
from lightning import Callback

from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError
from seqattn.extras.answers.scorers import QaScorer, exact_match, f1
from seqattn.extras.answers.span_batch import collate_windows
from seqattn.extras.answers.span_data import SpanData
from seqattn.extras.answers.span_options import SpanOptions
from seqattn.extras.answers.span_recurrent import SpanRecurrentConfig
from seqattn.extras.answers.span_search import Answerer, SpanSearch
from seqattn.extras.answers.span_task import SpanPlaces, SpanTask, span_validation
from seqattn.extras.answers.tasks import ExtractiveAnswering
from seqattn.models.transformer import Slots
from seqattn.ops.cross_entropy import LossTerms
from seqattn.positions import Position
from seqattn.training.forcing import TeacherForcing
from seqattn.training.optim import adamw
from seqattn.training.schedules import constant
from seqattn.training.task_options import ValidationOptions
from seqattn.training.tasks.settings import Optimization
from tests.builders import heads
from tests.extras.answers.small_spans import ROWS, FewQuestions
from tests.forked_ranks import join, run_ranks
from tests.nodes import made
from tests.training.tasks.test_devices import assert_counted_on_its_device
from tests.training.tasks.test_effective_batch import assert_same, fit_batches, no_steps, trainer_of
from tests.training.tasks.test_second_pass import ALPHA, transformer

SIZES = (3, 1, 4, 2)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    data = data_in(tmp_path_factory.mktemp("cache"))
    data.load()
    return data


def data_in(cache):
    options = SpanOptions(max_tokens=256, window=48, stride=24)
    return SpanData(FewQuestions(), TokenizerConfig(vocab_size=80), options, str(cache))


class Recorded(SpanTask):
    """Keeps the gradient of every optimizer step, as it is before clipping."""

    def on_before_optimizer_step(self, optimizer):
        super().on_before_optimizer_step(optimizer)
        self.gradients = [*getattr(self, "gradients", []), gradients_of(self.model)]


def gradients_of(model):
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()]


def model_of(data, **config):
    torch.manual_seed(0)
    shape = SpanRecurrentConfig(**{"dim": 12, "dropout": 0.0, **config})
    slots = Slots([], [], [heads(2, 2)], Position)
    return shape.build(data.tokenizer.source_size, slots)


def in_double(batch):
    return replace(batch, match=batch.match.double())


def all_windows(data, split):
    found = data._splits[split]
    return found.windows(range(len(found)))


@pytest.mark.parametrize("window", [1, 3])
def test_accumulated_uneven_batches_give_the_gradient_of_the_one_big_batch(data, window):
    task = Recorded(model_of(data).double(), Optimization(no_steps, constant(0)))
    everything = iter(all_windows(data, "train"))
    several = [list(itertools.islice(everything, size)) for size in SIZES]
    batches = [in_double(collate_windows(windows)) for windows in several]
    fit_batches(task, batches, accumulate_grad_batches=window)
    groups = [several[start : start + window] for start in range(0, len(several), window)]
    assert len(task.gradients) == len(groups)
    for got, group in zip(task.gradients, groups, strict=True):
        batch = in_double(collate_windows(list(itertools.chain(*group))))
        task.model.zero_grad()
        start, end, _ = task.model(batch)
        (F.cross_entropy(start, batch.start) + F.cross_entropy(end, batch.end)).backward()
        for mine, theirs in zip(got, gradients_of(task.model), strict=True):
            torch.testing.assert_close(mine, theirs, atol=1e-10, rtol=1e-10)


def validated(data, limit=0, every=1, **options):
    model = model_of(data, dim=32)
    answerer = Answerer(model, data.encoder(), SpanSearch(threshold=0.5))
    plan = span_validation(answerer, lambda: data.rows("val"), every=every, limit=limit)
    task = SpanTask(model, Optimization(lambda m, fused: adamw(m, 1e-2), constant(0)), plan)
    trainer = trainer_of(**options)
    trainer.fit(task, data.loader("train", trainer), data.loader("val", trainer))
    return task, trainer.callback_metrics, answerer


@pytest.mark.parametrize("limit", [0, 4])
def test_em_and_f1_are_those_of_answers_to_every_question_once(data, limit):
    task, scores, answerer = validated(data, limit)
    rows = data.rows("val")
    count = limit or len(ROWS)
    found = answerer.answer(rows.sources[:count], rows.contexts[:count])
    texts = [one.answers[0].text if one.answers else "" for one in found]
    gold = rows.references[:count]
    for name, measure in (("em", exact_match), ("f1", f1)):
        want = 100 * sum(map(measure, texts, gold)) / count
        assert float(scores[f"val/{name}"]) == pytest.approx(want)
    assert [(s.row, s.hypothesis) for s in task.samples] == list(enumerate(texts))[:8]
    assert task.samples[2].references == ROWS[2][3]


def _rank(rank, port, path, cache):
    join(rank, port, 2)
    torch.save(scores_of_all(cache, devices=2, strategy="ddp"), path / f"{rank}.pt")


def scores_of_all(cache, **options):
    """What an untrained model scores, validated by one rank or by several."""
    data = data_in(cache)
    model = model_of(data, dim=32)
    answerer = Answerer(model, data.encoder(), SpanSearch(threshold=0.5))
    plan = span_validation(answerer, lambda: data.rows("val"))
    task = SpanTask(model, Optimization(no_steps, constant(0)), plan)
    trainer = trainer_of(**options)
    trainer.validate(task, data.loader("val", trainer), verbose=False)
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


def test_a_validation_that_makes_no_output_has_no_samples(data):
    seen = []

    class Watch(Callback):
        def on_validation_end(self, trainer, pl_module):
            if not trainer.sanity_checking:
                seen.append((pl_module.generates_now, len(pl_module.samples) > 0))

    validated(data, every=2, max_epochs=3, callbacks=[Watch()])
    assert seen == [(False, False), (True, True), (False, False)]


def test_two_ranks_answer_every_question_once(data, tmp_path):
    run_ranks(_rank, 2, tmp_path, data.cache_dir)
    alone = scores_of_all(data.cache_dir)
    assert {"val/em", "val/f1", "val/loss"} <= alone.keys()
    for rank in (0, 1):
        assert torch.load(tmp_path / f"{rank}.pt") == pytest.approx(alone, rel=1e-5)


def test_validation_loss_is_per_window_over_all_batches(data):
    task, scores, _ = validated(data)
    batch = collate_windows(all_windows(data, "val"))
    start, end, _ = task.model.eval()(batch)
    want = F.cross_entropy(start, batch.start) + F.cross_entropy(end, batch.end)
    assert float(scores["val/loss"]) == pytest.approx(float(want), rel=1e-5)
    right = (start.argmax(1) == batch.start) & (end.argmax(1) == batch.end)
    assert float(scores["val/accuracy"]) == pytest.approx(float(right.float().mean()))


@torch.no_grad()
@pytest.mark.parametrize("every", [False, True])
def test_answers_that_are_not_located_add_no_loss(data, every):
    windows = all_windows(data, "val")
    lost = [window._replace(answers=None) for window in windows[::2]]
    mixed = [one for pair in zip(lost, windows[1::2]) for one in pair]
    known, each = collate_windows(windows[1::2][: len(lost)]), collate_windows(mixed)
    assert (each.start[::2] == -1).all()
    assert (each.start[1::2] >= 0).all()
    model, plan = model_of(data).eval().double(), Optimization(no_steps, constant(0))
    task = SpanTask(model, plan, every_answer=every)
    *want, _ = task.validation_sums(in_double(known))
    *found, count = task.validation_sums(in_double(each))
    assert count == known.windows
    assert list(map(float, found)) == pytest.approx(list(map(float, want)))
    empty = task.validation_sums(in_double(collate_windows(lost)))
    assert list(map(float, empty)) == [0, 0, 0]
    places = SpanPlaces()
    places.update(*empty)
    places.update(*found, count)
    assert float(places.compute()["loss"]) == pytest.approx(float(found[0]) / count)


@torch.no_grad()
@pytest.mark.parametrize("joint", [False, True])
def test_every_answer_or_the_first_is_made_likely(data, joint):
    model = model_of(data, joint_spans=joint).eval()
    batch = collate_windows(all_windows(data, "val"))
    scores = model(batch)
    assert batch.answers.shape[1] == 2  # of one question
    all_answers, first = [], []
    for row, answers in enumerate(batch.answers.tolist()):
        found = []
        for start, end in answers:
            if start < 0:
                continue
            if not joint:
                one = scores.start[row].log_softmax(0)[start] + scores.end[row].log_softmax(0)[end]
            else:
                spans, none = scores.spans(32)
                inside = start < batch.context.shape[1]
                one = spans[row, start, end - start] if inside else none[row]
            found.append(one)
        all_answers.append(torch.stack(found).logsumexp(0))
        first.append(found[0])
    for every, want in ((True, all_answers), (False, first)):
        task = SpanTask(model, Optimization(no_steps, constant(0)), every_answer=every)
        torch.testing.assert_close(task.loss(batch)[0], -torch.stack(want).sum())


def test_a_few_questions_are_learnt_by_heart(data):
    _, scores, _ = validated(data, every=80, max_epochs=80, check_val_every_n_epoch=80)
    assert float(scores["val/em"]) == 100
    assert float(scores["val/f1"]) == 100


def test_what_places_do_not_have_is_refused(data):
    forcing = TeacherForcing(start=0.5)
    with pytest.raises(UserError, match=r"^span models do not support teacher forcing; set "):
        SpanTask(model_of(data), Optimization(no_steps, constant(0), teacher_forcing=forcing))


@pytest.mark.parametrize("name", ["every", "sentences"])
def test_negative_numbers_are_refused(name):
    with pytest.raises(UserError, match=rf"^{name} must be a whole number from 0 to"):
        made(ValidationOptions, **{name: -1})


def test_a_loss_that_diverged_is_not_hidden_and_a_reset_forgets_it():
    scores = SpanPlaces()
    scores.update(torch.tensor(math.nan), torch.tensor(1), 2)
    scores.update(torch.tensor(3.0), torch.tensor(2), 2)
    assert math.isnan(scores.compute()["loss"])
    assert float(scores.compute()["accuracy"]) == 0.75
    scores.reset()
    scores.update(torch.tensor(3.0), torch.tensor(1), 4)
    assert {n: float(v) for n, v in scores.compute().items()} == {"loss": 0.75, "accuracy": 0.25}


def test_r_drop_is_at_both_places(data):
    windows = list(itertools.islice(all_windows(data, "train"), 3))
    batch = in_double(collate_windows(windows))
    model = model_of(data, dropout=0.3).double().train()
    task = SpanTask(model, Optimization(no_steps, constant(0), terms=LossTerms(r_drop=ALPHA)))
    torch.manual_seed(3)
    found = task.training_loss(batch)
    torch.manual_seed(3)
    twice = batch.twice()
    scores = model(twice)
    wanted = sum(
        F.cross_entropy(part, gold, reduction="sum")
        for part, gold in zip(scores, (twice.start, twice.end))
    )
    apart = 0.0
    for part in scores[:2]:
        one, other = part.log_softmax(-1).chunk(2)
        one, other = one[one.isfinite()], other[one.isfinite()]  # padding has no place
        apart += ((one.exp() - other.exp()) * (one - other)).sum()
    wanted = (wanted + ALPHA / 2 * apart) / 2
    torch.testing.assert_close(found.total, wanted)
    assert found.number == task.units(batch) == 3
    torch.testing.assert_close(found.means["divergence"], apart.detach() / 6)
    weights = [p for p in model.parameters() if p.requires_grad]
    got, want = (torch.autograd.grad(x, weights, allow_unused=True) for x in (found.total, wanted))
    assert_same([g for g in got if g is not None], [g for g in want if g is not None], 1e-9)


@pytest.mark.parametrize("name", [term.name for term in fields(LossTerms) if term.name != "r_drop"])
def test_terms_of_losses_of_text_are_refused(name):
    told = f"^task.{name} does not apply to this task; leave it at"
    terms = LossTerms(**{name: 0.4})
    with pytest.raises(UserError, match=told):
        SpanTask(transformer(), Optimization(no_steps, constant(0), terms=terms))
    with pytest.raises(UserError, match=told.replace("task.", "")):
        made(ExtractiveAnswering, name="x", scorer=QaScorer(), **{name: 0.4})


def test_a_loss_that_is_not_finite_is_counted_on_its_device(monkeypatch):
    assert_counted_on_its_device(SpanPlaces(), 2, monkeypatch)
