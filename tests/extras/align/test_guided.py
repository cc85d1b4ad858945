"""One head of a cross-attention is trained on links, and alignments are read from it."""

import itertools
import random

import pytest
import torch

import seqattn
from seqattn import ops
from seqattn.analysis.capture import capture
from seqattn.analysis.word_alignment import AlignmentReading, words_of
from seqattn.attention.kernels.weighted import WeightedKernel
from seqattn.data.options import LoaderOptions
from seqattn.data.sources import ParallelText
from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError
from seqattn.extras.align.guided import GuidedTask, guided_loss
from seqattn.extras.align.guided_data import LinkedBatch, LinkedData, WordNumbers
from seqattn.ops.cross_entropy import LossTerms
from seqattn.training import captured_passes
from seqattn.training.schedules import constant
from seqattn.training.task_options import GuidedAlignment
from seqattn.training.tasks.settings import Optimization
from tests.absent import printed_without
from tests.builders import HEAD_DIM, make_transformer
from tests.cli.small import checkpoint, refusal, train, train_arguments, write_corpus
from tests.forked_ranks import join, run_ranks
from tests.models.recurrents import make_recurrent
from tests.training.tasks.test_auxiliary import Logged
from tests.training.tasks.test_effective_batch import (
    SMOOTHING,
    assert_same,
    batch_of,
    fit_batches,
    no_steps,
    rows,
    sides,
)
from tests.training.tasks.test_halving import fails_forward

WEIGHT = 0.7


class Guided(GuidedTask, Logged):
    """Keeps gradients, and what is logged."""


def task_of(model=None, kind=Guided, terms=None, **guide):
    model = model or make_transformer()
    guide = GuidedAlignment(links="FILE", weight=WEIGHT, **guide)
    terms = terms or LossTerms(label_smoothing=SMOOTHING)
    plan = Optimization(no_steps, constant(0), terms=terms)
    return kind(model.double().train(), plan, guide=guide)


def linked(sources, targets, share=0.3):
    """A batch with the same links whatever its other rows are; the last token has none."""
    batch = batch_of(sources, targets)
    links = torch.zeros(*batch.target_output.shape, batch.source.shape[1], dtype=torch.bool)
    for n, (source, target) in enumerate(zip(sources, targets)):
        for t in range(len(target) - 1):
            for s in range(len(source) - 1):
                links[n, t, s] = random.Random(f"{source} {target} {t} {s}").random() < share
    return LinkedBatch(**vars(batch), links=links)


def fit(task, batches, **options):
    return fit_batches(task, batches, **options)


def by_hand(weights, links):
    """Minus the log of each link's weight over the row, divided by the number of its links."""
    total = 0.0
    for row, labels in zip(weights.flatten(0, 1).double(), links.flatten(0, 1)):
        for s in labels.nonzero()[:, 0].tolist():
            total -= (row[s] / row.sum()).log() / int(labels.sum())
    return total


def test_the_loss_is_the_papers_in_value_and_gradient():
    weights = torch.rand(2, 4, 5, dtype=torch.float64, requires_grad=True)
    links = torch.rand(2, 4, 5) < 0.4
    links[0, 1] = False
    ours, paper = guided_loss(weights, links), by_hand(weights, links)
    torch.testing.assert_close(ours, paper, rtol=1e-12, atol=0)
    assert_same(torch.autograd.grad(ours, weights), torch.autograd.grad(paper, weights), 1e-12)
    assert guided_loss(weights, torch.zeros_like(links)) == 0
    exact = torch.zeros(1, 1, 3).index_fill(2, torch.tensor(0), 1.0)  # no infinite loss
    assert guided_loss(exact, torch.tensor([[[False, True, False]]])).isfinite()
    assert guided_loss(0 * exact, exact == exact) == 0  # past the end of the source


@pytest.mark.parametrize(
    ("make", "guide"),
    [
        (make_transformer, {"layer": 0, "head": 2}),
        (make_transformer, {"layer": 1, "head": None, "shifted": True}),
        (lambda: make_transformer(checkpoint_activations=True), {"layer": 1, "head": 1}),
        (lambda: make_recurrent("bahdanau"), {}),
        (lambda: make_recurrent("luong_general"), {"shifted": True}),
    ],
)
def test_a_step_minimizes_it_per_real_token_and_logs_it(make, guide):
    batch = linked(*rows(3, seed=1))
    task = fit(task_of(make(), **guide), [batch])
    model = task.model
    model.zero_grad()
    head, links = guide.get("head", 0), batch.links
    if guide.get("shifted"):  # row t reads the word that row t - 1 predicts
        links = torch.cat((torch.zeros_like(links[:, :1]), links[:, :-1]), dim=1)
    with capture(model) as maps:  # which stays for layers that are computed again
        plain = task.loss(batch).smoothed
        name = [name for name in maps if name.endswith("cross_attention")][guide.get("layer", 0)]
        weights = maps[name][0]
        guided = by_hand(weights.mean(1) if head is None else weights[:, head], links)
        ((plain + WEIGHT * guided) / batch.target_tokens).backward()
    assert_same(task.gradients[0], [p.grad for p in model.parameters()], 1e-9)
    each = float(guided.detach()) / batch.target_tokens
    assert task.logged["train/alignment"] == pytest.approx(each, rel=1e-5)
    assert not any(part.observers for part in model.modules() if hasattr(part, "observers"))


def test_its_passes_are_not_captured_as_graphs_that_would_show_no_weights(monkeypatch):
    monkeypatch.setattr(captured_passes, "may_replay", lambda device: True)
    reason = captured_passes.why_not(task_of(), torch.device("cpu"))
    assert reason == "its loss reads attention weights"


def test_its_gradient_reaches_the_model_through_that_heads_weights_alone():
    task = task_of(make_transformer(layers=(2, 3)), layer=1, head=2)
    batch = linked(*rows(3, seed=1))
    both = task.training_loss(batch).total
    plain = task.loss(batch).smoothed
    named = dict(task.model.named_parameters())
    gradients = torch.autograd.grad(both - plain, [*named.values()], allow_unused=True)
    found = {name: g for name, g in zip(named, gradients) if g is not None and g.abs().max() > 1e-9}
    layer = "decoder.layers.1.cross_attention"
    own = slice(2 * HEAD_DIM, 3 * HEAD_DIM)
    for name in (f"{layer}.query.weight", f"{layer}.key.weight"):
        heads = found.pop(name).unflatten(0, (-1, HEAD_DIM)).abs().amax((1, 2)) > 1e-9
        assert heads.tolist() == [False, False, True, False]
        assert named[name][own].shape == (HEAD_DIM, named[name].shape[1])
    assert not {f"{layer}.value.weight", f"{layer}.output.weight"} & set(found)
    assert not [name for name in found if name.startswith("decoder.layers.2")]
    assert [name for name in found if name.startswith("encoder.layers.0")]


def test_only_its_layer_writes_weights_out(monkeypatch):
    written, fused = [], []
    weights, attention = WeightedKernel.weights, ops.attention

    def writing(kernel, *args):
        written.append(kernel)
        return weights(kernel, *args)

    def attending(*args):
        fused.append(args)
        return attention(*args)

    monkeypatch.setattr(WeightedKernel, "weights", writing)
    monkeypatch.setattr(ops, "attention", attending)
    task = task_of(layer=0)
    task.training_loss(linked(*rows(3, seed=1)))
    assert written == [task.guided]
    assert len(fused) == 2 + 2 * 2  # every attention of two layers on each side, that one, too


def test_batches_of_a_step_halves_and_two_passes_give_the_gradient_of_one(monkeypatch):
    several = [rows(size, seed) for size, seed in ((2, 1), (4, 2))]
    together = [[row for pair in several for row in pair[side]] for side in (0, 1)]
    (whole,) = fit(task_of(), [linked(*together)]).gradients
    (plain,) = fit(task_of(), [linked(*together, share=0.0)]).gradients
    assert not torch.allclose(whole[0], plain[0])
    parts = [linked(*pair) for pair in several]
    (summed,) = fit(task_of(), parts, accumulate_grad_batches=2).gradients
    assert_same(summed, whole, 1e-10)
    # without dropout both passes are equal, and R-Drop adds nothing else
    terms = LossTerms(label_smoothing=SMOOTHING, r_drop=3.0)
    (twice,) = fit(task_of(terms=terms), [linked(*together)]).gradients
    assert_same(twice, whole, 1e-10)
    fails_forward(monkeypatch, 5)
    (halved,) = fit(task_of(), [linked(*together)]).gradients
    assert_same(halved, whole, 1e-10)


def _rank(rank, port, path):
    join(rank, port, 2)
    several = [linked(*pair) for pair in sides()[rank:4:2]]
    task = fit(task_of(), several, devices=2, strategy="ddp")
    torch.save(task.gradients, path / f"{rank}.pt")


def test_two_ranks_give_the_gradients_of_one(tmp_path):
    run_ranks(_rank, 2, tmp_path)
    several = [linked(*pair) for pair in sides()[:4]]
    wanted = fit(task_of(), several, accumulate_grad_batches=2).gradients
    for rank in (0, 1):
        for mine, one in zip(torch.load(tmp_path / f"{rank}.pt"), wanted, strict=True):
            assert_same(mine, one, 1e-10)


def test_word_numbers_are_those_of_the_reading():
    pieces = ["<pad>", "<unk>", "<s>", "</s>", "▁a", "b", "▁", "↵", "▁c↵", "<0xC3>", ">>de<<"]
    numbers, draw = WordNumbers(pieces, [10]), random.Random(4)
    for _ in range(300):
        length = draw.randint(1, 9)
        ids = [*draw.choices([1, 4, 5, 6, 7, 8, 9], k=length), 3, 0]
        ids = [10, *ids] if draw.random() < 0.5 else ids
        expected = [-1] * len(ids)
        names = ["<s>" if one == 10 else pieces[one] for one in ids]
        for number, (_, places) in enumerate(words_of(names)):
            for place in places:
                expected[place] = number
        assert numbers(torch.tensor([ids]).numpy()).tolist() == [expected]


def write_links(corpus, name, lines):
    (corpus / name).write_text("".join(f"{line}\n" for line in lines))
    return corpus / name


def texts_of(corpus, split="train"):
    return [(corpus / f"{split}.{side}").read_text().splitlines() for side in ("en", "de")]


@pytest.fixture(scope="module")
def links_file(corpus):
    """Random links of the corpus; every seventh line is empty."""
    draw = random.Random(1)
    lines = []
    for number, pair in enumerate(zip(*texts_of(corpus))):
        one, other = (range(len(text.split())) for text in pair)
        some = {f"{draw.choice(one)}-{draw.choice(other)}" for _ in range(4)}
        lines.append("" if number % 7 == 0 else " ".join(sorted(some)))
    return write_links(corpus, "random.align", lines)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("bpe", {}),
        ("unigram", {"subword_sampling": 0.3}),
        ("bpe", {"subword_sampling": 0.3}),
        ("unigram", {"long_sources": "truncate", "max_source_length": 7}),
        ("bpe", {"long_sources": "window", "max_source_length": 6, "window_stride": 2}),
    ],
)
def test_pieces_are_linked_as_their_words(corpus, links_file, tmp_path, kind, options):
    data = LinkedData(
        ParallelText(str(corpus), "en", "de"), TokenizerConfig(kind, 60),
        LoaderOptions(**options), str(tmp_path), 1, None, links={"train": ("links", links_file)},
    )  # fmt: skip
    tokenizer = data.tokenizer
    data.load()
    loader, lines = data.loader("train"), links_file.read_text().splitlines()
    seen = set()
    for epoch in (0, 1):
        loader.set_epoch(epoch)
        for place in range(len(loader.data)):
            loader.data.epoch = epoch
            batch = loader.data.batch([place])
            row = int(batch.index)
            source, _ = (texts[row] for texts in texts_of(corpus))
            start, ids = 0, batch.source[0].tolist()
            if options.get("long_sources") == "window":
                start, [ids] = int(loader.data.starts[place]), tokenizer.encode_source([source])
            sides = (
                (tokenizer.source_pieces, ids),
                (tokenizer.target_pieces, batch.target_output[0]),
            )
            sources, targets = (words_of(name(some)) for name, some in sides)
            wanted = torch.zeros_like(batch.links[0])
            for link in lines[row].split():
                i, j = map(int, link.split("-"))
                for s in sources[i][1] if i < len(sources) else ():
                    if 0 <= s - start < batch.source.shape[1] - 1:
                        wanted[targets[j][1], s - start] = True
            assert torch.equal(batch.links[0], wanted)
            seen.add(bool(wanted.any()))
    assert seen == {True, False}


@pytest.mark.parametrize("rule", ["identity", "nmt_nfkc"])
def test_links_count_words_between_spaces_whatever_the_tokenizer_folds(tmp_path, capfd, rule):
    """As fast_align does: "!" after a no-break space is in the word before it."""
    lines = {"en": ["well\u00a0! no ."] * 30, "de": ["gut\u00a0! nein ."] * 30}
    for suffix, some in lines.items():
        (tmp_path / f"train.{suffix}").write_text("".join(f"{one}\n" for one in some))
    links = str(write_links(tmp_path, "links", ["0-0 1-1"] * 30))
    data = LinkedData(
        ParallelText(str(tmp_path), "en", "de", val="train"),
        TokenizerConfig(normalization=rule),
        LoaderOptions(), str(tmp_path), 1, None, links={"train": ("links", links)},
    )  # fmt: skip
    data.load()
    batch = data.first("train")
    texts = [data.tokenizer.source_pieces(batch.source[0].tolist())]
    texts.append(data.tokenizer.target_pieces(batch.target_output[0].tolist()))
    ends = [next(n for n, (word, _) in enumerate(words_of(one)) if word[0] == "n") for one in texts]
    assert ends == ([1, 1] if rule == "identity" else [2, 2])
    read, said = ([places for _, places in words_of(one)] for one in texts)
    wanted = torch.zeros_like(batch.links[0])
    for own, other in ((range(ends[0]), range(ends[1])), (ends[:1], ends[1:])):
        for i, j in itertools.product(own, other):
            wanted[torch.tensor(said[j])[:, None], torch.tensor(read[i])] = True
    assert torch.equal(batch.links[0], wanted)
    told = [line for line in capfd.readouterr().err.splitlines() if "eflomal" in line]
    assert len(told) == 1
    assert "30 pairs have some" in told[0]
    (tmp_path / "tabs.en").write_text("well\tno\n" * 30)
    (tmp_path / "tabs.de").write_text("gut\tnein\n" * 30)
    source = ParallelText(str(tmp_path), "en", "de", train="tabs", val="train")
    data = LinkedData(
        source, TokenizerConfig(), None, str(tmp_path), links={"train": ("links", links)}
    )
    with pytest.raises(UserError, match="links no words of this tokenizer, whose pieces must"):
        data.load()


def test_links_of_texts_without_spaces_are_told(tmp_path, capfd):
    for suffix, line in (("en", "he buys books"), ("zh", "他买书和狗。")):
        (tmp_path / f"train.{suffix}").write_text(f"{line}\n" * 30, encoding="utf-8")
    links = str(write_links(tmp_path, "links", ["1-0"] * 30))
    source = ParallelText(str(tmp_path), "en", "zh", val="train")
    data = LinkedData(
        source, TokenizerConfig(), LoaderOptions(), str(tmp_path), 1, None,
        links={"train": ("links", links)},
    )  # fmt: skip
    data.load()
    data.first("train")
    told = "links counts texts without spaces between words as one word each; split them"
    assert capfd.readouterr().err.count(told) == 1


def test_links_of_all_pairs_are_drawn_along_with_them(corpus, links_file, tmp_path):
    """Those of val as if they had been named; a file of the pairs left in train has no others."""
    lines, whole = links_file.read_text().splitlines(), [*zip(*texts_of(corpus))]

    def links_of(file, splits):
        data = LinkedData(
            ParallelText(str(corpus), "en", "de", hold_out=7), TokenizerConfig("bpe", 60),
            LoaderOptions(), str(tmp_path), 1, None, links={"train": ("links", str(file))},
        )  # fmt: skip
        data.load()
        rows = {one: data._rows(one) for one in splits}
        pairs = {one: [*zip(rows[one]["source"], rows[one]["target"])] for one in splits}
        read = {one: getattr(data._splits[one], "_links", None) for one in splits}
        return pairs, read, data.links.get("val")

    pairs, read, of_val = links_of(links_file, ("train", "val"))
    for split in ("train", "val"):
        own = [lines[whole.index(pair)] for pair in pairs[split]]
        assert [*map(len, pairs.values())] == [53, 7]
        links = [{tuple(map(int, one.split("-"))) for one in line.split()} for line in own]
        assert len(read[split]) == sum(map(len, links))
        assert {*map(tuple, read[split].tolist())} == {*itertools.chain(*links)}
    assert of_val == ("links", str(links_file))
    own = write_links(corpus, "own.align", [lines[whole.index(pair)] for pair in pairs["train"]])
    _, again, of_val = links_of(own, ("train", "val"))
    assert again["train"].tolist() == read["train"].tolist()
    assert (again["val"], of_val) == (None, None)
    other = write_links(corpus, "other.align", ["0-0"] * 59)
    line = "got 59 lines for 53 pairs, or 60 with those of other splits"
    with pytest.raises(UserError, match=line):
        links_of(other, ("train",))


def test_a_guided_run_aligns_by_its_head_and_hides_its_paths(corpus, links_file, tmp_path):
    guided = (
        f"task.alignment.links={links_file}", "task.alignment.head=2",
        f"task.alignment.val_links={write_links(corpus, 'val.align', ['0-0 1-1'] * 6)}",
        "task.alignment.shifted=true",
    )  # fmt: skip
    train(train_arguments(corpus, *guided, f"run_dir={tmp_path}/run"))
    bundle = seqattn.load(tmp_path / "run/model")
    assert bundle.reading == AlignmentReading(True, None, 2, "training on links")
    assert bundle.scores["val/alignment"] > 0
    assert ".align" not in (tmp_path / "run/model/config.yaml").read_text()


@pytest.mark.slow
def test_a_stopped_run_resumes_to_the_bit(tmp_path):
    corpus = write_corpus(tmp_path / "corpus")
    links = write_links(corpus, "links", ["0-1 1-0 3-2"] * 60)
    words = train_arguments(
        corpus, f"task.alignment.links={links}", "task.alignment.weight=3",
        "loader.subword_sampling=0.2", steps=7, every=7,
    )  # fmt: skip
    train([*words, f"run_dir={tmp_path}/whole"])
    short = [word for word in words if not word.startswith("trainer.max_steps")]
    train([*short, "trainer.max_steps=3", f"run_dir={tmp_path}/cut"])
    train([f"resume={tmp_path}/cut", "trainer.max_steps=7"])
    states = [checkpoint(tmp_path / name)["state_dict"] for name in ("whole", "cut")]
    assert all(torch.equal(*pair) for pair in zip(*(one.values() for one in states), strict=True))


@pytest.mark.parametrize(
    ("lines", "words", "line"),
    [
        (["0-0"] * 59, (), "task.alignment.links=FILE must have one line per pair of the split, "
         "got 59 lines for 60 pairs"),
        (["", "0:0"], (), "FILE, line 2: a link must have the form 0-0 or 0p0, got '0:0'"),
        (["", "", "0-9"], (), "FILE, line 3: 0-9 refers to word 9 of the target, which has"),
        ([], (), "task.alignment.links links no words: all lines of the pairs that are read are "
         "empty"),
        (["0-0"], ("task.alignment.head=7",), "task.alignment.head must be below"),
        (["0-0"], ("task.alignment.layer=1",), "alignment.layer must be below 1, got 1"),
        (["0-0"], ("model=rnn", "attention=none"),
         "words cannot be aligned: the cross-attention of this model computes no weights"),
        (["0-0"], ("attention@cross_attention=differential", "cross_attention.num_heads=2"),
         "task.alignment cannot guide DifferentialKernel, whose weights may be negative; use"),
        (None, (), "task.alignment.links=FILE is not a file"),
        (None, ("task.alignment.links=null", "task.alignment.head=1"),
         "task.alignment.head has no effect without task.alignment.links"),
    ],
)  # fmt: skip
def test_what_cannot_guide_is_refused_in_a_line(capfd, corpus, tmp_path, lines, words, line):
    file = tmp_path / "links"
    if lines is not None:
        rest = [] if len(lines) == 59 else [""] * (60 - len(lines))
        file.write_text("".join(f"{one}\n" for one in [*lines, *rest]))
    given = [] if "task.alignment.links=null" in words else [f"task.alignment.links={file}"]
    words = train_arguments(corpus, *given, *words, f"run_dir={tmp_path}/run")
    if "model=rnn" in words:
        words = [word for word in words if "ffn_dim" not in word]
    told = refusal(capfd, "train", *words)
    assert line.replace("FILE", str(file)) in told


@pytest.mark.slow
def test_without_the_extra_a_line_says_what_is_missing(corpus, tmp_path):
    words = train_arguments(corpus, "task.alignment.links=FILE", f"run_dir={tmp_path}/run")
    program = (
        "import sys\nsys.stderr = sys.stdout\nfrom seqattn.cli.main import run_subcommand\n"
        f"print(run_subcommand('train', {words!r}))"
    )
    *_, line, code = printed_without(["seqattn.extras.align"], program).splitlines()
    assert (line, code) == (
        "error: task.alignment._target_=seqattn.extras.align.guided.GuidedSetup needs "
        "seqattn.extras.align, which is not installed",
        "2",
    )
