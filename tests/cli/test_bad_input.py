"""What the user can mend ends in one clear line and exit code 2, and nothing half-written."""

import json
import shutil

import pytest
from filelock import FileLock

from tests.cli.small import (
    data_of,
    pairs,
    refusal,
    refused_before_work,
    run,
    sampled,
    train_arguments,
    write_corpus,
    write_split,
)


@pytest.fixture
def refused(capfd, corpus, tmp_path):
    """Refuses a training with these overrides; its run directory must not be there after."""
    run_dir = tmp_path / "run"

    def train(*overrides, root=corpus):
        words = train_arguments(root, f"run_dir={run_dir}", *map(str, overrides))
        text = refusal(capfd, "train", *words)
        assert not run_dir.exists()
        return text

    return train


@pytest.fixture
def broken(corpus, tmp_path):
    """A corpus of one's own to break."""
    return write_corpus(tmp_path / "broken" / "corpus")


# --- text ---------------------------------------------------------------------------------------


def test_a_root_that_is_not_there(refused, tmp_path):
    text = refused(f"data.root={tmp_path}/no")
    assert text == f"the data's root must be a directory, {tmp_path}/no is not"


def test_a_missing_root():
    assert refused_before_work("data=parallel_text") == (
        "data.root, data.source_suffix, data.target_suffix must be given: "
        "add data.root=... data.source_suffix=... data.target_suffix=..."
    )


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_missing_file(refused, broken, split):
    (broken / f"{split}.de").unlink()
    held = ", ".join(sorted(path.name for path in broken.iterdir()))
    assert refused(root=broken) == (
        f"the {split} split needs {split}.de in {broken}, which holds {held}"
    )


@pytest.mark.parametrize("split", ["train", "val"])
def test_sides_of_unequal_length_with_both_counts(refused, broken, split):
    file = broken / f"{split}.de"
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    file.write_text("".join(lines[:-1]), encoding="utf-8")
    assert refused(root=broken) == (
        f"both sides must have as many lines, {broken}/{split}.en has {len(lines)} and "
        f"{broken}/{split}.de has {len(lines) - 1}"
    )


@pytest.mark.parametrize("split", ["train", "val"])
def test_an_empty_corpus(refused, broken, split):
    write_split(broken, split, [("", "")])
    for suffix in ("en", "de"):
        (broken / f"{split}.{suffix}").write_text("")
    assert refused(root=broken) == (
        f"the {split} split must hold text, {broken}/{split}.en is empty"
    )


def test_a_corpus_of_empty_lines(refused, broken):
    write_split(broken, "train", [("", "")] * 5)
    assert refused(root=broken) == "the joint corpus must hold some text, every line is empty"


def test_a_validation_split_of_which_no_pair_is_short_enough(refused, broken):
    write_split(broken, "val", [("a dog " * 40, "ein Hund")])
    text = refused(root=broken)
    assert text.startswith("the val split must keep some pairs, dropped 1 of 1 val pairs: 1 longer")


def test_text_that_is_not_utf_8_with_its_file_and_line(refused, broken):
    file = broken / "train.de"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:6], "schön\n".encode("latin-1"), *lines[7:]]))
    assert refused(root=broken) == (
        f"{file} must be UTF-8 text, line 7 is not (byte 0xf6 at column 4)"
    )


def test_a_column_that_is_not_there_lists_those_that_are(refused, tmp_path):
    file = tmp_path / "train.jsonl"
    rows = ({"english": en, "german": de} for en, de in pairs())
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [f"data.files.{split}={file}" for split in ("train", "val")]
    text = refused("data=table", *words, "data.source_column=english", "data.target_column=dutch")
    assert text == f"{file} has no column 'dutch', it has english, german"
    text = refused("data=table", *words, "data.source_column=english")
    assert text.startswith(
        "training needs both sides and there is no target; name it by data.target"
    )


def test_a_table_from_nowhere(refused):
    text = refused("data=table")
    assert text.startswith("a table must come from data.files or from data.dataset, got neither")


def test_a_vocabulary_that_the_corpus_cannot_give(refused):
    text = refused("tokenizer.vocab_size=5000")
    assert text.startswith("vocab_size must be at most ")
    assert text.endswith("or less, or null")
    assert "got 5,000" in text
    assert "vocab_size must be at least " in refused("tokenizer.vocab_size=9")


# --- names and values ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("atention=gqa", "there is no key atention; did you mean attention?"),
        (
            "attention=gqaa",
            "there is no attention=gqaa; did you mean gqa?; the choices are: bahdanau, ",
        ),
        ("model.dimm=16", "there is no key model.dimm; did you mean model.dim?"),
        ("max_steps=16", "there is no key max_steps; did you mean trainer.max_steps?"),
        ("attention.heads=4", "there is no key attention.heads; did you mean attention.num_heads?"),
        ("attention=[mha,gqb]", "there is no attention=gqb; did you mean gqa?"),
        ("attention@cros_attention=mqa", "there is no key attention@cros_attention; did you mean"),
        ("experiment=demmo", "there is no experiment=demmo; did you mean demo?"),
        ("logger=[csv,wandbb]", "there is no logger=wandbb; did you mean wandb?"),
        ("model.dim", "cannot read the argument 'model.dim': write name=value"),
        ("model.dim=[16", "cannot read the argument 'model.dim=[16': write name=value"),
        ("+model.width=16", "there is no key model.width"),
        ("+foo=1", "there is no key foo"),
        ("+choices.x=1", "there is no key choices"),
        ("~seed", "seed must be given; leave ~seed out"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest_right_one(word, text):
    assert refused_before_work(word).startswith(text)


VALUES = [
    ("model.dim=abc", "model.dim must be a whole number from 1 to 65,536, got 'abc'"),
    ("model.dim=1.5", "model.dim must be a whole number from 1 to 65,536, got 1.5"),
    ("model.dim=true", "model.dim must be a whole number from 1 to 65,536, got True"),
    ("model.dim=null", "model.dim must be a whole number from 1 to 65,536, got None"),
    ("model.dim=0", "model.dim must be a whole number from 1 to 65,536, got 0"),
    ("model.ffn_dim=0", "model.ffn_dim must be a whole number from 1 to 65,536, got 0"),
    (
        "model.encoder_layers=-1",
        "model.encoder_layers must be a whole number from 0 to 1,000, got -1",
    ),
    ("model.pre_norm=maybe", "model.pre_norm must be true or false, got 'maybe'"),
    ("model.dropout=1.5", "model.dropout must be a number of at least 0 and below 1, got 1.5"),
    ("model.norm=batchnorm", "model.norm must be one of layernorm, rmsnorm, got 'batchnorm'"),
    ("model.activation=tanh", "model.activation must be one of relu, gelu, swiglu, got 'tanh'"),
    ("model.share_embeddings=some", "model.share_embeddings must be one of all, target, none"),
    ("tokenizer.joint=false tokenizer.vocab_size=30", "model.share_embeddings=all needs one v"),
    ("attention.num_heads=3", "num_heads must divide query_dim (16), got 3"),
    (
        "attention.num_heads=0",
        "attention.num_heads must be a whole number from 1 to 1,000,000,000, got 0",
    ),
    ("attention.num_heads=two", "attention.num_heads must be a whole number from 1 to "),
    ("attention.num_kv_heads=3", "num_kv_heads must divide num_heads (4), got 3"),
    ("attention.dropout=1", "attention.dropout must be a number of at least 0 and below 1"),
    ("optimizer.lr=abc", "optimizer.lr must be a number from 0 to 1,000,000,000, got 'abc'"),
    ("optimizer.lr=-1", "optimizer.lr must be a number from 0 to 1,000,000,000, got -1"),
    ("optimizer.betas=[0.9]", "optimizer.betas must be a list of 2 numbers, got [0.9]"),
    ("optimizer.betas=[0.9,1]", "optimizer.betas must be a list of 2 numbers, got [0.9, 1]"),
    (
        "optimizer.weight_decay=-1",
        "optimizer.weight_decay must be a number from 0 to 1,000,000,000, got -1",
    ),
    (
        "schedule.warmup_steps=abc",
        "schedule.warmup_steps must be a whole number from 0 to 1,000,000,000, got",
    ),
    ("schedule=cosine trainer.max_steps=2", "schedule.total_steps must be above"),
    (
        "trainer.max_steps=-1",
        "a training must end: trainer.max_steps and trainer.max_epochs are",
    ),
    ("trainer.devices=-2", "trainer.devices must be "),
    ("optimizer.lr=nan", "optimizer.lr must be a number from 0 to 1,000,000,000, got nan"),
    ("optimizer.lr=inf", "optimizer.lr must be a number from 0 to 1,000,000,000, got inf"),
    ("model.dim=1000000000000", "model.dim must be a whole number from 1 to 65,536, got 10"),
    (
        "trainer.max_steps=abc",
        "trainer.max_steps must be a whole number from -1 to 1,000,000,000, got 'abc'",
    ),
    (
        "trainer.max_steps=-7",
        "trainer.max_steps must be a whole number from -1 to 1,000,000,000, got -7",
    ),
    (
        "trainer.accumulate_grad_batches=0",
        "trainer.accumulate_grad_batches must be a whole number from 1 to 1,000,000,000,",
    ),
    ("trainer.acumulate=2", "there is no key trainer.acumulate; did you mean trainer.acc"),
    ("trainer.devices=0", "trainer.devices must be at least 1, or auto for all, got 0"),
    ("trainer.accelerator=abacus", "trainer.accelerator must be one of auto, cpu, gpu, "),
    (
        "trainer.val_check_interval=1.5",
        "trainer.val_check_interval must be a whole number from 1 to 1,000,000,000 or ",
    ),
    ("trainer.precision=8", "trainer.precision must be one of 32, bf16-mixed, 16-mixed, got 8"),
    ("trainer.precision=16-mixed", "trainer.precision=16-mixed needs a GPU; use 32"),
    (
        "loader.max_tokens=0",
        "loader.max_tokens must be a whole number from 1 to 1,000,000,000, got 0",
    ),
    (
        "loader.max_tokens=abc",
        "loader.max_tokens must be a whole number from 1 to 1,000,000,000, got 'abc'",
    ),
    ("loader.max_tokens=20", "max_tokens and max_square must hold a row of max_length (50)"),
    (
        "loader.num_workers=-1",
        "loader.num_workers must be a whole number from 0 to 256, got -1",
    ),
    (
        "generation.beam_size=0",
        "generation.beam_size must be a whole number from 1 to 1,000, got 0",
    ),
    (
        "generation.beam_size=abc",
        "generation.beam_size must be a whole number from 1 to 1,000, got 'abc'",
    ),
    (
        "generation.batch_size=-1",
        "generation.batch_size must be a whole number from 0 to 1,000,000,000, got -1",
    ),
    (
        "generation.batch_size=abc",
        "generation.batch_size must be a whole number from 0 to 1,000,000,000, got 'a",
    ),
    (
        "generation.limit.ratio=-1",
        "generation.limit.ratio must be a number from 0 to 1,000, got -1",
    ),
    (
        "task.label_smoothing=2",
        "task.label_smoothing must be a number of at least 0 and below 1, got 2",
    ),
    (
        "task.label_smoothing=abc",
        "task.label_smoothing must be a number of at least 0 and below 1, got 'abc'",
    ),
    ("task.r_drop=-1", "task.r_drop must be a number from 0 to 1,000,000,000, got -1"),
    (
        "task.validation.every=-1",
        "task.validation.every must be a whole number from 0 to 1,000,000,000, got -1",
    ),
    (
        "task.validation.every=x",
        "task.validation.every must be a whole number from 0 to 1,000,000,000, got 'x'",
    ),
    ("task.scorer.tokenize=13b", "scorer.tokenize must be one of "),
    ("tokenizer.kind=words", "tokenizer.kind must be one of unigram, bpe, got 'words'"),
    (
        "tokenizer.vocab_size=abc",
        "tokenizer.vocab_size must be a whole number from 5 to 1,000,000 or null, got",
    ),
    ("seed=abc", "seed must be a whole number from 0 to 4,294,967,295, got 'abc'"),
    ("seed=-1", "seed must be a whole number from 0 to 4,294,967,295, got -1"),
    ("checkpoint.monitor=val/los", "checkpoint.monitor must be one of val/loss, val/nll, "),
    (
        "checkpoint.monitor=val/bleu task.validation.every=2",
        "checkpoint.monitor=val/bleu needs that score at every validation: set",
    ),
    (
        "checkpoint.patience=0",
        "checkpoint.patience must be a whole number from 1 to 1,000,000,000 or null, got",
    ),
    ("checkpoint.average=all", "checkpoint.average must be one of best, last, got 'all'"),
    ("checkpoint.count=0", "checkpoint.count must be a whole number from 1 to 1,000, got 0"),
    (
        "checkpoint.count=abc",
        "checkpoint.count must be a whole number from 1 to 1,000, got 'abc'",
    ),
    (
        "checkpoint.patience=abc",
        "checkpoint.patience must be a whole number from 1 to 1,000,000,000 or null, got",
    ),
    ("position=rope attention.num_heads=16", "position=rope needs an even head width, got 1"),
    ("position=learned position.max_length=0", "position.max_length must be a whole number"),
    ("data.source_suffix=5", "data.source_suffix must be text, got 5"),
    (
        "logger=null",
        "Config group override must be a string or a list. Got NoneType; name a c",
    ),
    ("name=${nowhere}", "Interpolation key 'nowhere' not found"),
]


@pytest.mark.parametrize(("word", "text"), sampled(VALUES, every=2))
def test_a_value_out_of_its_range_or_kind_is_refused_before_any_work(corpus, word, text):
    words = train_arguments(corpus, "run_dir=nowhere", *word.split())
    assert refused_before_work(*words).startswith(text)


def test_sentences_longer_than_learned_positions_are_refused_before_the_first_step(refused):
    text = refused("position=learned", "position.max_length=5")
    assert text.startswith("position.max_length is 5 tokens and the longest ")
    assert "set loader.max_length=5 to leave out what is beyond" in text


def test_a_gpu_where_there_is_none(refused, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert refused("trainer=gpu") == "trainer=gpu finds no GPU here; use trainer=cpu"


def test_an_attention_that_cannot_serve_a_slot_names_those_it_fits(refused, monkeypatch):
    from dataclasses import replace

    from seqattn.attention.kernels.softmax import SoftmaxKernel

    forwards = replace(SoftmaxKernel.abilities, causal=False)
    monkeypatch.setattr(SoftmaxKernel, "abilities", forwards)
    assert refused() == (
        "attention=mha cannot serve as decoder attention; give it a slot that it fits: "
        "attention@encoder_attention=mha or attention@cross_attention=mha"
    )


# --- run directories ----------------------------------------------------------------------------


def listing(directory):
    return {path: path.read_bytes() if path.is_file() else None for path in directory.rglob("*")}


def test_a_run_directory_that_holds_a_run_is_left_as_it_is(capfd, corpus, trained):
    before = listing(trained)
    words = train_arguments(corpus, f"run_dir={trained}", "resume=false")
    assert refusal(capfd, "train", *words) == (
        f"run_dir={trained} already holds a run; go on with it by resume=auto, or name another "
        "directory"
    )
    assert listing(trained) == before


def test_a_run_directory_that_is_in_use(capfd, corpus, trained, tmp_path):
    for run_dir, argument in ((tmp_path / "new", "run_dir"), (trained, "resume")):
        run_dir.mkdir(exist_ok=True)
        with FileLock(run_dir / ".lock"):
            before = listing(run_dir)
            words = [f"resume={trained}"]
            if argument == "run_dir":
                words = train_arguments(corpus, f"run_dir={run_dir}")
            assert refusal(capfd, "train", *words) == (
                f"run_dir={run_dir} is in use by another process; wait for it, or name another"
            )
            assert listing(run_dir) == before
        (run_dir / ".lock").unlink()  # which other processes would have removed


def test_a_run_directory_that_is_a_file(capfd, corpus, tmp_path):
    (tmp_path / "file").write_text("mine")
    words = train_arguments(corpus, f"run_dir={tmp_path}/file")
    assert refusal(capfd, "train", *words) == f"{tmp_path}/file: File exists"
    assert (tmp_path / "file").read_text() == "mine"


def test_files_of_the_users_own_survive_a_refusal(capfd, corpus, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    words = train_arguments(corpus, f"run_dir={tmp_path}", "attention.num_heads=3")
    refusal(capfd, "train", *words)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_overrides_of_a_run_that_cannot_be_read(capfd, tmp_path):
    for content in ("{", "word\n", "a: b\n", "- 5\n"):
        (tmp_path / "overrides.yaml").write_text(content)
        text = refusal(capfd, "train", f"resume={tmp_path}")
        assert text.startswith(f"{tmp_path}/overrides.yaml cannot be read"), content


# --- bundles ------------------------------------------------------------------------------------


@pytest.fixture
def bundle(trained, tmp_path):
    """A copy of the bundle to break."""
    return shutil.copytree(trained / "model", tmp_path / "model")


@pytest.fixture(params=["generate", "evaluate", "analyze"])
def use(request, capfd, corpus, tmp_path):
    """Refuses to use a bundle with each verb that needs one; nothing may be written."""
    output = tmp_path / "output"
    words = {
        "generate": [f"input={corpus}/test.en", f"output={output}"],
        "evaluate": [f"output={output}", f"data.root={corpus}"],
        "analyze": ["text=a dog", f"output={output}"],
    }[request.param]

    def used(bundle, *more):
        text = refusal(capfd, request.param, f"bundle={bundle}", *words, *more)
        assert not output.exists()
        return text

    return used


def test_a_bundle_that_is_not_given(capfd):
    for verb in ("generate", "evaluate", "analyze"):
        told = refusal(capfd, verb)
        assert told.startswith("bundle")
        assert " must be given: add bundle=RUN/model" in told


def test_a_bundle_that_is_absent(use, tmp_path):
    absent = f"there is no bundle at {tmp_path}/no; training writes one to RUN/model"
    assert use(tmp_path / "no") == absent


def test_a_directory_that_is_no_bundle(use, trained, tmp_path):
    (tmp_path / "foreign").mkdir()
    assert use(tmp_path / "foreign") == (
        f"{tmp_path}/foreign is no bundle, config.yaml is not in it; give RUN/model"
    )
    text = f"{trained}/config.yaml: it is not of the format 'seqattn bundle 2', it says "
    assert use(trained).startswith(text)


@pytest.mark.parametrize(
    "target", ["os.system", "seqattn.cli.main.run_verb", "seqattn.no.such", "nowhere"]
)
def test_a_bundle_that_names_code_of_others(use, bundle, target):
    file = bundle / "config.yaml"
    text = file.read_text()
    assert "_type_: SoftmaxKernel" in text
    file.write_text(text.replace("_type_: SoftmaxKernel", f"_type_: {target}"))
    assert use(bundle).startswith(f"{file}: attention.kernel names ")


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"- a\n", b"format: other\n", b"", b"5"])
def test_a_configuration_that_is_garbage(use, bundle, content):
    (bundle / "config.yaml").write_bytes(content)
    text = use(bundle)
    assert text.startswith((f"{bundle}/config.yaml: it ", f"{bundle}/config.yaml cannot be read"))


@pytest.mark.parametrize("part", ["model", "attention", "generation", "data", "task", "position"])
def test_a_configuration_that_lacks_a_part(capfd, corpus, bundle, tmp_path, part):
    """Whatever needs the part says that the bundle is damaged; what does not need it may work."""
    import yaml

    config = yaml.safe_load((bundle / "config.yaml").read_text())
    del config[part]
    (bundle / "config.yaml").write_text(yaml.safe_dump(config))
    words = (f"bundle={bundle}", f"output={tmp_path}/out", f"data.root={corpus}")
    ended = run(capfd, "evaluate", *words)
    assert ended.code == 2
    lacking = "task.scorer" if part == "task" else part
    assert ended.err.splitlines()[-1] == (
        f"error: {bundle}/config.yaml lacks {lacking}; the bundle is damaged: train again"
    )


@pytest.mark.parametrize("kept", [0, 7, 100, -5])
def test_truncated_weights(use, bundle, kept):
    file = bundle / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    text = use(bundle)
    assert text.startswith(f"{file} cannot be read (")
    assert text.endswith("); copy it anew or train again")


def test_weights_of_another_model(use, bundle):
    from safetensors.torch import load_file, save_file

    file = bundle / "model.safetensors"
    weights = load_file(file)
    name = "decoder.layers.0.feedforward.inner.bias"
    for changed in ({**weights, name: weights[name][:5].clone()}, {"other": weights[name]}):
        save_file(changed, file)
        assert use(bundle).startswith(f"{file} cannot be read (")


@pytest.mark.parametrize("name", ["config.yaml", "model.safetensors", "tokenizer.json"])
def test_a_bundle_that_lacks_a_file_names_it(use, bundle, name):
    (bundle / name).unlink()
    assert name in use(bundle)


def test_a_tokenizer_that_is_truncated_or_foreign(use, bundle):
    file = bundle / "joint.model"
    whole = file.read_bytes()
    for content in (whole[:100], whole + b"more", b"", None):
        file.unlink()
        if content is not None:
            file.write_bytes(content)
        assert use(bundle).startswith(f"{file} ")
    file.write_bytes(whole)
    head = bundle / "tokenizer.json"
    written = head.read_text()
    for content in ("{", "[]", '{"format": "other"}', written.replace('"joint.model"', '"../x"')):
        head.write_text(content)
        foreign = f"{head} must be a tokenizer of seqattn (seqattn-tokenizer-1), it is not"
        assert use(bundle) == foreign


@pytest.mark.parametrize("device", ["cuda:99", "gpu", "tpu", "5"])
def test_a_device_that_is_not_there(use, bundle, device):
    assert use(bundle, f"device={device}").startswith(f"device={device} cannot be used here") or (
        device == "5"
    )


# --- generate, evaluate, analyze ----------------------------------------------------------------


@pytest.fixture
def generated(capfd, trained, corpus, tmp_path):
    def generate(*words):
        text = refusal(
            capfd,
            "generate",
            f"bundle={trained / 'model'}",
            f"input={corpus / 'test.en'}",
            f"output={tmp_path / 'output'}",
            *words,
        )
        assert not (tmp_path / "output").exists()
        assert not list(tmp_path.glob(".output*"))
        return text

    return generate


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("input=no.txt", "input=no.txt is not a file"),
        ("output=no/where.txt", "output=no/where.txt: the directory no is not there; make it"),
        (
            "generation=greedy n_best=2",
            "generation=greedy gives one hypothesis; n_best needs beam or sampling",
        ),
        ("n_best=9", "n_best must be from 1 to generation.beam_size (2), got 9"),
        ("n_best=0", "n_best must be a whole number from 1 to 1,000,000,000 or null, got 0"),
        ("n_best=two", "n_best must be a whole number from 1 to 1,000,000,000 or null, got 'two'"),
        (
            "generation.beam_size=0",
            "generation.beam_size must be a whole number from 1 to 1,000, got 0",
        ),
        (
            "generation.beam_size=abc",
            "generation.beam_size must be a whole number from 1 to 1,000, got 'abc'",
        ),
        ("generation.beam_siz=3", "there is no key generation.beam_siz; did you mean generation.b"),
        ("generation=bean", "there is no generation=bean; did you mean beam?; the choices are: "),
        (
            "generation=sampling generation.top_p=0",
            "generation.top_p must be a number above 0 and of at most 1, got 0",
        ),
        (
            "generation=sampling generation.temperature=0",
            "generation.temperature must be a number above 0",
        ),
        ("bundel=x", "there is no key bundel; did you mean bundle?"),
        ("scores=perhaps", "scores must be true or false, got 'perhaps'"),
        ("format=xml", "format must be one of text, tsv, jsonl or null, got 'xml'"),
        ("scores=true format=tsv", "scores=true writes JSON lines, not format=tsv"),
        ("text=a", "text, question and input are given together; leave all but one out"),
        ("question=a", 'a question needs its context: question="Who runs?" context="A dog runs."'),
        ("input=null question=a context=b", "this bundle takes text=..., not a question"),
    ],
)
def test_what_generate_refuses(generated, words, text):
    assert generated(*words.split()).startswith(text)


def test_input_that_is_not_utf_8(generated, tmp_path):
    file = tmp_path / "latin.txt"
    file.write_bytes("a dog\n\nschön\n".encode("latin-1"))
    assert generated(f"input={file}") == (
        f"{file} must be UTF-8 text, line 3 is not (byte 0xf6 at column 4)"
    )


def test_a_sentence_longer_than_the_positions_of_the_model(capfd, corpus, tmp_path):
    run_dir, long = tmp_path / "run", tmp_path / "long.txt"
    words = ("position=learned", "position.max_length=50", f"run_dir={run_dir}")
    assert run(capfd, "train", *train_arguments(corpus, *words, steps=2)).code == 0
    long.write_text("a dog .\n" + "the cat " * 60 + "\n")
    text = refusal(
        capfd, "generate", f"bundle={run_dir}/model", f"input={long}", f"output={tmp_path}/out"
    )
    assert text.startswith("source 2 has ")
    assert text.endswith(
        "tokens and this model reads at most 50; shorten it, or train with a larger "
        "position.max_length"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("split=dev", "split must be one of train, val, test, got 'dev'"),
        ("data.root=/no/where", "the data's root must be a directory, /no/where is not"),
        ("data.test=tst", "the test split needs tst.en in "),
        ("data.target_suffix=null", "the test split has no references to score against"),
        ("scorer.tokenize=13b", "scorer.tokenize must be one of "),
        (
            "generation.beam_size=0",
            "generation.beam_size must be a whole number from 1 to 1,000, got 0",
        ),
    ],
)
def test_what_evaluate_refuses(capfd, trained, tmp_path, words, text):
    output = tmp_path / "output"
    bundle = f"bundle={trained / 'model'}"
    assert refusal(capfd, "evaluate", bundle, f"output={output}", words).startswith(text)
    assert not output.exists()


def test_a_missing_test_split_is_named(capfd, trained, broken, tmp_path):
    (broken / "test.en").unlink()
    words = [f"bundle={trained / 'model'}", f"data.root={broken}", f"output={tmp_path}/out"]
    assert refusal(capfd, "evaluate", *words).startswith("the test split needs test.en in ")


@pytest.mark.parametrize("words", [["text="], ["text=  "]])
def test_analyze_needs_words(capfd, trained, tmp_path, words):
    bundle = f"bundle={trained / 'model'}"
    text = refusal(capfd, "analyze", bundle, f"output={tmp_path}/out", *words)
    assert text == 'text must hold some words: text="A dog runs."'
    assert refusal(capfd, "analyze", bundle, f"output={tmp_path}/out").startswith("text must hold")
    assert not (tmp_path / "out").exists()


# --- the command itself -------------------------------------------------------------------------


def test_a_verb_or_an_option_that_is_not_there(capfd):
    text = refusal(capfd, "trian")
    assert text.startswith("there is no verb trian")
    assert "train" in text
    for word in ("--stpes", "-x", "--multi-run"):
        text = refusal(capfd, "train", word)
        assert text.startswith(f"unrecognized arguments: {word}; the options are: --help, ")


def test_a_file_in_the_place_of_a_directory(capfd, trained, corpus, tmp_path):
    (tmp_path / "file").write_text("")
    words = ["text=a dog", f"output={tmp_path}/file/pictures"]
    text = refusal(capfd, "analyze", f"bundle={trained / 'model'}", *words)
    assert f"{tmp_path}/file" in text


def test_a_typo_in_one_job_of_a_sweep_is_refused_before_any(capfd, corpus, tmp_path):
    run_dir = tmp_path / "sweep"
    words = train_arguments(corpus, f"run_dir={run_dir}")
    assert refusal(capfd, "train", "-m", *words, "attention=mha,gqaa").startswith(
        "there is no attention=gqaa; did you mean gqa?"
    )
    assert [path.name for path in run_dir.iterdir()] == ["multirun.yaml"]


def test_the_words_of_the_data_are_used(corpus):
    """The helpers above give the data by words that the refusals can change."""
    assert f"data.root={corpus}" in data_of(corpus)
