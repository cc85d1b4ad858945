"""From multi-head to grouped-query bundles, and new runs that begin with a bundle."""

import json
import re
import shutil

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

import seqattn
from seqattn.attention.heads import MultiHeadAttention
from tests.cli.small import (
    checkpoint,
    data_of,
    listing,
    refusal,
    run,
    succeed,
    train_arguments,
)

TEXTS = ["a dog sees a ball .", "the child hears two birds ."]
SLOTS = {
    "encoder": "encoder.layers.0.self_attention",
    "decoder": "decoder.layers.0.self_attention",
    "cross": "decoder.layers.0.cross_attention",
}
HEADS, HEAD_DIM, DIM = 4, 4, 16


@pytest.fixture
def convert(capfd, trained, tmp_path):
    """Converts the trained bundle; gives the new one's directory and what was printed."""

    def call(*words, output="new"):
        words = (f"bundle={trained / 'model'}", f"output={tmp_path / output}", *words)
        out = succeed(capfd, "convert", *words, "generation.beam_size=2")
        return tmp_path / output, out

    return call


@pytest.fixture
def refused(capfd, trained, tmp_path):
    """Refuses a conversion, and leaves nothing behind."""

    def call(*words):
        given = {word.partition("=")[0] for word in words}
        usual = (f"bundle={trained / 'model'}", f"output={tmp_path / 'new'}")
        words = [*(word for word in usual if word.partition("=")[0] not in given), *words]
        text = refusal(capfd, "convert", *words)
        assert not (tmp_path / "new").exists()
        return text

    return call


def weights_of(bundle):
    return load_file(str(bundle / "model.safetensors"))


def pooled_by_hand(weight, num_kv_heads):
    """A group at a time, a head at a time."""
    size = HEADS // num_kv_heads
    heads = weight.split(HEAD_DIM)
    groups = [heads[g * size : (g + 1) * size] for g in range(num_kv_heads)]
    return torch.cat([sum(group) / size for group in groups])


@pytest.mark.parametrize(
    ("words", "groups"), [(("num_kv_heads=4",), 4), (("num_kv_heads=2",), 2), (("heads=mqa",), 1)]
)
def test_each_key_and_value_head_is_the_mean_of_its_group_and_the_rest_is_copied(
    convert, trained, words, groups
):
    new, _ = convert(*words, "scores=false")
    before, after = weights_of(trained / "model"), weights_of(new)
    assert before.keys() == after.keys()
    pooled = 0
    for name, weight in before.items():
        if re.search(r"attention\.(key|value)\.(weight|bias)$", name):
            weight = pooled_by_hand(weight, groups)
            pooled += 1
        torch.testing.assert_close(after[name], weight, atol=1e-7, rtol=1e-6)
    assert pooled == 3 * 4
    model = seqattn.load(str(new)).model
    found = [m.num_kv_heads for m in model.modules() if isinstance(m, MultiHeadAttention)]
    assert found == [groups] * 3


@pytest.mark.parametrize("slot", SLOTS)
def test_a_slot_alone_is_pooled(convert, trained, slot):
    new, _ = convert("heads=mqa", f"slots=[{slot}]", "scores=false")
    model = seqattn.load(str(new)).model
    for other, name in SLOTS.items():
        attention = model.get_submodule(name)
        assert attention.num_kv_heads == (1 if other == slot else HEADS)
    before, after = weights_of(trained / "model"), weights_of(new)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert {name.rpartition("attention.")[0] + "attention" for name in changed} == {SLOTS[slot]}


def test_what_is_pooled_is_named_by_its_heads_where_it_is_softmax_alone(
    capfd, convert, trained, tmp_path
):
    config = yaml.safe_load((trained / "model" / "config.yaml").read_text())
    config["attention"]["kernel"] = {"_type_": "SlidingWindowKernel", "window": 3}
    config["choices"]["attention"] = "sliding_window"
    windows = shutil.copytree(trained / "model", tmp_path / "windows")
    (windows / "config.yaml").write_text(yaml.safe_dump(config))
    words = ("heads=mqa", "scores=false", f"output={tmp_path / 'pooled'}")
    succeed(capfd, "convert", f"bundle={windows}", *words)
    assert "- `attention=sliding_window`" in (tmp_path / "pooled" / "README.md").read_text()

    cross, _ = convert("heads=mqa", "slots=[cross]", "scores=false")
    chosen = yaml.safe_load((cross / "config.yaml").read_text())["choices"]
    assert (chosen["attention"], chosen["attention@cross_attention"]) == ("mha", "mqa")


def test_a_converted_bundle_is_converted_again(convert, capfd, tmp_path, trained):
    first, _ = convert("num_kv_heads=2", "scores=false")
    words = (f"bundle={first}", f"output={tmp_path / 'second'}", "heads=mqa", "scores=false")
    succeed(capfd, "convert", *words)
    direct, _ = convert("heads=mqa", "scores=false", output="direct")
    for name, weight in weights_of(direct).items():
        torch.testing.assert_close(weights_of(tmp_path / "second")[name], weight)


def test_the_report_counts_parameters_and_bytes_and_scores_before_and_after(convert, trained):
    new, out = convert("heads=mqa", "split=test")
    rows = {
        cells[0].strip(): [cell.strip() for cell in cells[1:]]
        for cells in (line.strip("│┃ \n").split("│") for line in out.splitlines())
        if len(cells) == 3
    }
    fewer = 3 * 2 * (DIM + 1) * (HEADS - 1) * HEAD_DIM
    counts = [int(count.replace(",", "")) for count in rows["parameters"]]
    assert counts[0] - counts[1] == fewer
    numbers = 2 * HEADS * HEAD_DIM * 4  # keys and values of one layer, in float32
    assert rows["cache per target token (bytes)"] == [str(numbers), str(numbers // HEADS)]
    assert rows["keys and values per source token (bytes)"] == [str(numbers), str(numbers // HEADS)]
    assert "BLEU: nrefs:1|case:mixed|eff:no|tok:13a" in out
    scores = json.loads((new / "scores.json").read_text())
    assert scores["converted from"] == "translation"
    for file in (new / "scores.json", new / "config.yaml", new / "README.md"):
        assert str(trained.parent) not in file.read_text()
    assert f"{scores['test/chrF']:.2f}" == rows["test chrF"][1]
    assert scores["test/bleu signature"].startswith("nrefs:1")


def test_without_its_data_a_bundle_is_converted_and_not_scored(capfd, trained, tmp_path):
    words = (f"bundle={trained / 'model'}", f"output={tmp_path / 'new'}", "heads=mqa")
    ended = run(capfd, "convert", *words, f"data.root={tmp_path}/gone")
    assert ended.code == 0
    assert f"not scored: data.root={tmp_path}/gone is not a directory" in ended.err
    assert "BLEU" not in ended.out
    alone = shutil.copytree(trained / "model", tmp_path / "model")
    ended = run(capfd, "convert", f"bundle={alone}", f"output={tmp_path}/other", "heads=mqa")
    assert "not scored: data.root=DIR is not a directory" in ended.err
    assert seqattn.load(str(tmp_path / "new")).generate(TEXTS)
    words = (f"bundle={alone}", f"output={tmp_path}/no")
    for needing in (["prune=1"], ["heads=mqa", "uptrain_steps=1"]):
        text = refusal(capfd, "convert", *words, *needing)
        assert text == "missing required key: data.root (add data.root=...)"


def test_uptraining_moves_the_weights_and_is_scored_and_repeats(convert, corpus):
    words = ("heads=mqa", "uptrain_steps=3", f"cache_dir={corpus.parent / 'cache'}")
    new, out = convert(*words)
    assert "uptrained" in out
    again, _ = convert(*words, output="again")
    plain, _ = convert("heads=mqa", "scores=false", output="plain")
    moved, same = weights_of(new), weights_of(again)
    assert all(torch.equal(weight, same[name]) for name, weight in moved.items())
    other = weights_of(plain)
    assert any(not torch.equal(weight, other[name]) for name, weight in moved.items())


def test_uptraining_has_the_batches_and_the_loss_of_the_training(convert, trained, monkeypatch):
    from seqattn.subcommands import bundle_run
    from seqattn.training.tasks.seq2seq import Seq2SeqTask

    seen, step, load = [], Seq2SeqTask.training_step, bundle_run.load_bundle

    def loaded(*given, **more):
        bundle = load(*given, **more)
        bundle.config["task"]["r_drop"] = 2.0
        bundle.config["loader"]["step_batches"] = 3
        return bundle

    def watched(self, batch, number):
        seen.append((len(batch), self.optimization.terms.r_drop))
        return step(self, batch, number)

    monkeypatch.setattr(bundle_run, "load_bundle", loaded)
    monkeypatch.setattr(Seq2SeqTask, "training_step", watched)
    convert("heads=mqa", "uptrain_steps=1", "scores=false")
    assert seen == [(3, 2.0)]


def test_uptraining_drops_out_as_training_does(convert, monkeypatch):
    from seqattn.training.tasks.seq2seq import Seq2SeqTask

    modes, step = [], Seq2SeqTask.training_step

    def watched(self, batch, number):
        modes.extend(module.training for module in self.model.modules())
        return step(self, batch, number)

    monkeypatch.setattr(Seq2SeqTask, "training_step", watched)
    convert("heads=mqa", "uptrain_steps=1", "scores=false")
    assert modes
    assert all(modes)


def test_uptraining_needs_the_optimizer(refused, corpus, trained, tmp_path):
    shutil.copytree(trained / "model", tmp_path / "mine")
    file = tmp_path / "mine" / "config.yaml"
    config = yaml.safe_load(file.read_text())
    config["optimizer"]["_type_"] = "mine.optimizers.adam"
    file.write_text(yaml.safe_dump(config))
    bundle = f"bundle={tmp_path}/mine"
    assert refused("heads=mqa", "uptrain_steps=1", f"data.root={corpus}", bundle) == (
        f"uptrain_steps needs the optimizer of {tmp_path}/mine, which is from another package; "
        "add trust=[PACKAGE]"
    )


def test_the_same_command_is_finished_and_another_is_refused(
    convert, trained, corpus, tmp_path, capfd
):
    copied, moved = tmp_path / "copied", tmp_path / "moved"
    shutil.copytree(trained / "model", copied)
    shutil.copytree(corpus, moved)
    usual = (f"bundle={copied}", f"data.root={moved}", "generation.beam_size=2", "heads=mqa")
    new, _ = convert("heads=mqa")
    record = new / "made_from.json"  # as an earlier version wrote it
    record.write_text(record.read_text().replace('"subcommand": "convert"', '"verb": "convert"'))
    before = listing(new)
    said = run(capfd, "convert", *usual, f"output={new}")  # the same contents, elsewhere
    assert said == (0, "", f"output={new} is complete, nothing to do\n")
    text = (moved / "val.de").read_text()
    (moved / "val.de").write_text(text.replace("Hund", "hund"))
    other = load_file(str(copied / "model.safetensors"))
    for words, told in (
        ((), "different contents of data.val"),
        (("scores=false", "num_kv_heads=1"), "data=ParallelText, generation=BeamSearch, "),
        (("generation.beam_size=3",), "generation.beam_size=2, different contents of data.val"),
    ):
        text = refusal(capfd, "convert", *usual, *words, f"output={new}")
        assert text.startswith(f"output={new} was made with {told}")
    name = next(iter(other))
    save_file({**other, name: other[name] + 1}, str(copied / "model.safetensors"))
    text = refusal(capfd, "convert", *usual, f"output={new}", f"data.root={corpus}")
    assert text.startswith(f"output={new} was made with different contents of bundle; use the ")
    assert listing(new) == before


# --- quantize -----------------------------------------------------------------------------------


def test_weights_in_int8_are_scored_and_written_and_evaluated(convert, corpus, trained, capfd):
    new, out = convert("quantize=int8", "split=test")
    assert "int8" in out
    assert "tokens per second" in out
    sizes = [(path / "model.safetensors").stat().st_size for path in (new, trained / "model")]
    assert f"model.safetensors has {sizes[0]:,} bytes ({sizes[1]:,} before)" in out
    assert sizes[0] < 0.6 * sizes[1]
    assert yaml.safe_load((new / "config.yaml").read_text())["quantize"] == "int8"
    scores = json.loads((new / "scores.json").read_text())
    words = (f"bundle={new}", "split=test", "generation.beam_size=2", f"data.root={corpus}")
    assert f"{scores['test/bleu']:.2f}   {scores['test/bleu signature']}" in succeed(
        capfd, "evaluate", *words
    )


def test_heads_are_pooled_before_weights_are_rounded(convert):
    new, out = convert("heads=mqa", "quantize=int8")
    assert [name in out for name in ("before", "after", "int8", "cache")] == [True] * 4
    assert weights_of(new)[f"{SLOTS['cross']}.key.weight"].dtype == torch.int8
    assert weights_of(new)[f"{SLOTS['cross']}.key.weight"].shape == (HEAD_DIM, DIM)


def test_a_bundle_in_int8_is_not_converted_again_nor_trained_on(
    convert, refused, capfd, corpus, tmp_path
):
    new, _ = convert("quantize=int8", "scores=false", output="int8")
    assert refused("heads=mqa", f"bundle={new}") == (
        f"{new} is already quantized; convert the original bundle"
    )
    words = train_arguments(corpus, f"init_from={new}", f"run_dir={tmp_path}/run")
    assert refusal(capfd, "train", *words) == (
        f"init_from={new} is quantized and cannot be trained; use the bundle that it was "
        "converted from"
    )
    assert not (tmp_path / "run").exists()


# --- init_from ----------------------------------------------------------------------------------


def test_a_new_run_begins_with_the_weights_and_the_tokenizer_of_a_bundle(
    convert, capfd, corpus, tmp_path
):
    new, _ = convert("num_kv_heads=2", "scores=false")
    words = ("attention=gqa", f"init_from={new}", "optimizer.lr=0", f"run_dir={tmp_path}/run")
    succeed(capfd, "train", *train_arguments(corpus, *words, steps=2))
    begun = weights_of(tmp_path / "run" / "model")
    for name, weight in weights_of(new).items():
        assert torch.equal(begun[name], weight)
    for file in ("joint.model", "tokenizer.json"):
        assert (tmp_path / "run" / "model" / file).read_bytes() == (new / file).read_bytes()


def test_another_corpus_keeps_the_vocabulary_and_a_resumption_the_run_s_own_weights(
    convert, capfd, corpus, tmp_path
):
    new, _ = convert("num_kv_heads=2", "scores=false")
    other = tmp_path / "other"
    shutil.copytree(corpus, other)
    for file in other.iterdir():
        file.write_text(file.read_text().replace("dog", "zebra"))
    given = ("attention=gqa", f"init_from={new}", f"run_dir={tmp_path}/run")
    words = [w for w in train_arguments(other, *given) if not w.startswith("tokenizer")]
    succeed(capfd, "train", *words)
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["tokenizer"]["vocab_size"] == 60
    kept = tmp_path / "run" / "tokenizer" / "joint.model"
    assert kept.read_bytes() == (new / "joint.model").read_bytes()
    before = checkpoint(tmp_path / "run")["state_dict"]
    shutil.rmtree(new)
    words = (f"resume={tmp_path}/run", "trainer.max_steps=6", "optimizer.lr=0")
    succeed(capfd, "train", *words)
    after = checkpoint(tmp_path / "run")["state_dict"]
    assert before.keys() == after.keys()
    assert kept.read_bytes() == (tmp_path / "run" / "model" / "joint.model").read_bytes()


@pytest.mark.parametrize(
    ("position", "more"), [("rope", ""), ("learned", "; tables of positions begin at random")]
)
def test_settings_that_change_no_shape_are_told(capfd, trained, corpus, tmp_path, position, more):
    words = (f"position={position}", f"init_from={trained / 'model'}", f"run_dir={tmp_path}/run")
    ended = run(capfd, "train", *train_arguments(corpus, *words, steps=1, every=1))
    assert ended.code == 0, ended.err
    text = f"position=sinusoidal, but this run has position={position}{more}"
    assert f"init_from={trained / 'model'} was trained with {text}\n" in ended.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["attention=gqa"],
            "encoder.layers.0.self_attention.key.weight is (16, 16) in the bundle and (8, 16) in "
            "the model; the bundle was trained with attention=mha, but this run has attention=gqa",
        ),
        (
            ["attention=[mamba2,mha]"],
            "encoder.layers.0.self_attention.step_bias is missing in the bundle and (4,) in the "
            "model; the bundle was trained with attention=mha, but this run has "
            "attention=[mamba2,mha]",
        ),
        (
            ["model.encoder_layers=2"],
            "encoder.layers.1.self_attention.query.weight is missing in the bundle and (16, 16) "
            "in the model; the bundle was trained with model.encoder_layers=1, but this run has "
            "model.encoder_layers=2",
        ),
    ],
)
def test_a_model_that_the_weights_do_not_fit_is_refused(
    capfd, trained, corpus, tmp_path, words, text
):
    words = [*words, f"init_from={trained / 'model'}", f"run_dir={tmp_path}/run"]
    said = refusal(capfd, "train", *train_arguments(corpus, *words))
    assert said.startswith(f"init_from={trained / 'model'} does not fit: ")
    assert said.removeprefix(f"init_from={trained / 'model'} does not fit: ") == text
    assert not (tmp_path / "run").exists()


def test_another_tokenizer_than_the_bundle_s_is_refused(capfd, trained, corpus, tmp_path):
    words = ("tokenizer.vocab_size=50", f"init_from={trained / 'model'}", f"run_dir={tmp_path}/run")
    assert refusal(capfd, "train", *train_arguments(corpus, *words)) == (
        f"init_from={trained / 'model'} has its own tokenizer (tokenizer.vocab_size=60); remove "
        "tokenizer.vocab_size=50"
    )
    assert not (tmp_path / "run").exists()


# --- what cannot be converted -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            [],
            "nothing to convert; add heads=mqa, num_kv_heads=N, prune=N or quantize=int8",
        ),
        (["heads=gqa"], "heads=gqa needs the number of key heads; add num_kv_heads=N"),
        (["heads=mha"], "heads must be one of gqa, mqa or null, got 'mha'"),
        (["quantize=int4"], "quantize must be one of int8 or null, got 'int4'"),
        (
            ["quantize=int8", "uptrain_steps=2"],
            "uptrain_steps needs pooled or pruned heads; remove it, or add heads=mqa",
        ),
        (
            ["heads=mqa", "num_kv_heads=2"],
            "heads=mqa has one key head; remove num_kv_heads=2",
        ),
        (
            ["num_kv_heads=3"],
            "num_kv_heads must divide the self-attention's key heads (4), got 3",
        ),
        (
            ["num_kv_heads=8", "slots=[cross]"],
            "num_kv_heads must divide the cross attention's key heads (4), got 8",
        ),
        (
            ["heads=mqa", "slots=[encoder,decoders]"],
            "slots must be one or more of encoder, decoder, cross, got ['encoder', 'decoders']",
        ),
        (
            ["quantize=int8", "slots=[cross]"],
            "slots applies only to pooled heads; remove it, or add heads=mqa",
        ),
        (["heads=mqa", "slots=[]"], "slots must be one or more of encoder, decoder, cross, got []"),
        (
            ["heads=mqa", "uptrain_steps=-1"],
            "uptrain_steps must be a whole number from 0 to 1,000,000,000, got -1",
        ),
    ],
)
def test_what_cannot_be_is_refused(refused, words, text):
    assert refused(*words) == text


def test_a_missing_output(capfd, trained):
    text = refusal(capfd, "convert", f"bundle={trained / 'model'}", "heads=mqa")
    assert text == "missing required key: output (add output=...)"


def test_an_attention_without_key_heads_of_its_own(capfd, corpus, tmp_path, refused):
    words = ("attention=moa", f"run_dir={tmp_path}/run")
    succeed(capfd, "train", *train_arguments(corpus, *words, steps=1, every=1))
    bundle = f"bundle={tmp_path}/run/model"
    assert refused("heads=mqa", bundle) == (
        "the self-attention (attention=moa) has no key heads to pool; choose slots with key heads: "
        "slots=[cross]"
    )
    words = (bundle, "heads=mqa", "slots=[cross]", f"output={tmp_path}/cross", "scores=false")
    succeed(capfd, "convert", *words)
    model = seqattn.load(str(tmp_path / "cross")).model
    assert model.decoder.layers[0].cross_attention.num_kv_heads == 1


def test_layers_of_a_list_without_key_heads_are_left_as_they_are(capfd, corpus, tmp_path, refused):
    words = ("attention=[mamba2,mha]", "model.encoder_layers=2", f"run_dir={tmp_path}/run")
    words = (*words, "attention@decoder_attention=ssru")
    succeed(capfd, "train", *train_arguments(corpus, *words, steps=1, every=1))
    bundle = f"bundle={tmp_path}/run/model"
    assert refused("heads=mqa", bundle) == (
        "the decoder attention (attention=ssru) has no key heads to pool; choose slots with key "
        "heads: slots=[encoder,cross]"
    )
    words = (bundle, "heads=mqa", "slots=[encoder,cross]", f"output={tmp_path}/new", "scores=false")
    succeed(capfd, "convert", *words)
    new, old = (seqattn.load(f"{tmp_path}/{name}").model for name in ("new", "run/model"))
    layers = [layer.self_attention for layer in new.encoder.layers]
    assert type(layers[0]) is type(old.encoder.layers[0].self_attention)
    assert layers[1].num_kv_heads == new.decoder.layers[0].cross_attention.num_kv_heads == 1
    before, after = old.state_dict(), new.state_dict()
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert {name.rpartition(".")[0].rpartition(".")[2] for name in changed} == {"key", "value"}


def test_a_recurrent_bundle(capfd, corpus, tmp_path, refused):
    words = [
        word
        for word in train_arguments(corpus, f"run_dir={tmp_path}/run", steps=1, every=1)
        if not word.startswith("model.")
    ]
    succeed(capfd, "train", "model=rnn", "model.dim=16", *words)
    assert refused("heads=mqa", f"bundle={tmp_path}/run/model") == (
        f"{tmp_path}/run/model holds a Recurrent, which has no key heads to pool; use a Transformer"
    )
    words = (f"bundle={tmp_path}/run/model", "quantize=int8", f"output={tmp_path}/int8")
    assert "val BLEU" in succeed(capfd, "convert", *words)
    after = weights_of(tmp_path / "int8")
    assert after["source_embedding.table.weight"].dtype == torch.int8
    assert after["encoder.ahead.0.weight_hh_l0"].dtype == torch.float32


# --- heads that are removed ---------------------------------------------------------------------


def test_pruned_heads_are_gone_from_the_weights(convert):
    new, out = convert("prune=5")
    assert "converted (pruned)" in " ".join(out.split())
    attentions = attentions_of(new)
    assert sum(attention.num_heads for attention in attentions) == 3 * HEADS - 5
    for attention in attentions:
        assert attention.query.weight.shape == (attention.num_heads * HEAD_DIM, DIM)
        assert attention.output.weight.shape == (DIM, attention.num_heads * HEAD_DIM)


def attentions_of(path):
    return [m for m in seqattn.load(path).model.modules() if isinstance(m, MultiHeadAttention)]


@pytest.mark.slow
def test_a_run_goes_on_with_the_heads_that_are_left(convert, capfd, corpus, tmp_path):
    new, _ = convert("prune=5", "scores=false")
    words = [f"init_from={new}", *data_of(corpus), f"run_dir={tmp_path}/run", "trainer=cpu"]
    steps = ("trainer.max_steps=1", "trainer.max_epochs=-1", "schedule.warmup_steps=1")
    succeed(capfd, "train", *words, *steps)
    before, after = attentions_of(new), attentions_of(tmp_path / "run" / "model")
    assert [one.kept_heads for one in before] == [one.kept_heads for one in after]
    assert not torch.equal(before[0].query.weight, after[0].query.weight)


def test_a_pruned_bundle_is_not_pooled(convert, capfd, tmp_path):
    new, _ = convert("prune=2", "scores=false")
    pruned = next(
        slot for slot in SLOTS if seqattn.load(new).config.get(f"{slot}_attention") is not None
    )
    words = (f"bundle={new}", f"output={tmp_path}/other", "heads=mqa", f"slots=[{pruned}]")
    assert "attention is pruned; pool before" in refusal(capfd, "convert", *words)


def test_heads_of_a_model_that_answers_by_spans_are_not_pruned(capfd, answering, tmp_path):
    words = (f"bundle={answering}/model", f"output={tmp_path}/new", "prune=1")
    text = refusal(capfd, "convert", *words)
    assert text.startswith("pruning needs a bundle that outputs text, but ")
