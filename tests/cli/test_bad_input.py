"""What the user can mend ends in one clear line and exit code 2, and nothing half-written."""

import errno
import json
import os
import platform
import re
import shutil
from functools import partial

import pytest
import torch
from filelock import FileLock
from lightning import Trainer
from omegaconf import OmegaConf

from seqattn.cli.error_messages import in_words
from seqattn.inputs import read_yaml
from seqattn.training.fit import _is_theirs
from seqattn.training.run_directory import claimed
from tests.cli.small import (
    composed,
    listing,
    pairs,
    refusal,
    refused_before_work,
    run,
    succeed,
    train_arguments,
    write_corpus,
    write_split,
)
from tests.pages import files


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


def test_a_missing_root():
    assert refused_before_work("data=parallel_text") == (
        "missing required keys: data.root, data.source_suffix, data.target_suffix "
        "(add data.root=... data.source_suffix=... data.target_suffix=...)"
    )


def test_a_missing_file_to_validate_on(refused, broken):
    (broken / "val.de").unlink()
    held = ", ".join(sorted(path.name for path in broken.iterdir()))
    assert refused(root=broken) == (
        f"the val split requires val.de in {broken}, which contains {held}; or set "
        "data.hold_out=0.05 to validate on a share of train"
    )


def test_a_validation_split_of_which_no_pair_is_short_enough(refused, broken):
    write_split(broken, "val", [("a dog " * 40, "ein Hund")])
    text = refused(root=broken)
    assert text.startswith("the val split has no usable pairs: dropped 1 of 1 val pairs: 1 longer")


def test_a_training_without_targets(refused, tmp_path):
    file = tmp_path / "train.jsonl"
    rows = ({"english": en, "german": de} for en, de in pairs())
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [f"data.files.{split}={file}" for split in ("train", "val")]
    text = refused("data=table", *words, "data.source_column=english")
    assert text.startswith("training requires targets; set data.target")


def test_a_vocabulary_that_the_corpus_cannot_give(refused):
    text = refused("tokenizer.vocab_size=5000")
    assert text.startswith("tokenizer.vocab_size must be at most ")
    assert text.endswith("got 5000; lower it, or set null")
    assert "vocab_size must be at least " in refused("tokenizer.vocab_size=9")


# --- names and values ---------------------------------------------------------------------------


def test_sentences_longer_than_learned_positions_are_refused_before_the_first_step(refused):
    text = refused("position=learned", "position.max_length=5")
    assert text.startswith("position.max_length is 5 tokens, but the longest ")
    assert "set loader.max_length=5 to drop or shorten longer ones" in text
    for multiple, advice in ((3, "set loader.max_length=3 to drop"), (6, "lower loader.round_to")):
        words = ("position=learned", "position.max_length=5", f"loader.round_to={multiple}")
        assert f"; {advice}" in refused(*words)


def test_sentences_that_training_leaves_out_are_no_surprise_to_pictures_and_scores(
    capfd, corpus, tmp_path
):
    short = ("position=learned", "position.max_length=15", "loader.max_length=15")
    words = train_arguments(corpus, *short, f"run_dir={tmp_path}", steps=2, draws=True)
    text = refusal(capfd, "train", *words)
    assert text.startswith("position.max_length is 15 tokens, but the val split, on")
    assert run(capfd, "train", *words, "loader.long_sources=truncate").code == 0
    assert run(capfd, "train", *words, "task.final=null", f"run_dir={tmp_path}/two").code == 0
    assert len(list(tmp_path.glob("two/heatmaps/*.png"))) == 1


def test_sentences_longer_than_an_attention_takes_are_refused_by_its_key_not_by_positions(refused):
    text = refused("attention@encoder_attention=linformer", "encoder_attention.kernel.max_length=5")
    assert text.startswith("encoder_attention.kernel.max_length is 5 tokens, but the longest ")
    assert text.endswith("or raise encoder_attention.kernel.max_length")


def test_a_gpu_where_there_is_none(refused, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert refused("trainer=gpu") == "trainer=gpu found no GPU; use trainer=cpu"


def test_an_attention_that_cannot_serve_a_slot_names_those_it_fits(refused, monkeypatch):
    from dataclasses import replace

    from seqattn.attention.kernels.softmax import SoftmaxKernel

    forwards = replace(SoftmaxKernel.abilities, causal=False)
    monkeypatch.setattr(SoftmaxKernel, "abilities", forwards)
    assert refused() == (
        "attention=mha cannot be used as decoder attention; it fits these slots: "
        "attention@encoder_attention=mha or attention@cross_attention=mha"
    )


# --- run directories ----------------------------------------------------------------------------


def test_a_run_directory_that_holds_a_run_is_left_as_it_is(capfd, corpus, trained):
    before = listing(trained)
    words = train_arguments(corpus, f"run_dir={trained}", "resume=false")
    assert refusal(capfd, "train", *words) == (
        f"run_dir={trained} already holds a run; continue it with resume=auto, or choose "
        "another directory"
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
                f"run_dir={run_dir} is in use by another process; wait for it, or choose another"
            )
            assert listing(run_dir) == before
        (run_dir / ".lock").unlink()  # which other processes would have removed


@pytest.mark.parametrize(
    ("note", "holder"),
    [
        ("{here}\n{host}\n", "process {here} on {host}"),
        ("1\nelsewhere\n", "process 1 on elsewhere"),
        ("{gone}\n{host}\n", "another process"),  # of one that was killed
        ("no number", "another process"),
        ("-5\n{host}\n", "another process"),
    ],
)
def test_who_holds_a_run_directory_is_named(capfd, corpus, tmp_path, note, holder):
    gone = os.spawnlp(os.P_NOWAIT, "true", "true")
    os.waitpid(gone, 0)
    known = {"here": os.getpid(), "host": platform.node(), "gone": gone}
    with FileLock(tmp_path / ".lock"):
        (tmp_path / ".lock").write_text(note.format(**known))
        text = refusal(capfd, "train", *train_arguments(corpus, f"run_dir={tmp_path}"))
    in_use = f"run_dir={tmp_path} is in use by {holder.format(**known)}"
    assert text == f"{in_use}; wait for it, or choose another"


def test_a_run_notes_in_its_lock_who_it_is(tmp_path):
    (tmp_path / ".lock").write_text("99\nof a process that was killed, longer than this one's\n")
    with claimed(tmp_path):
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n{platform.node()}\n"


def test_an_empty_directory_of_the_users_own_survives_a_refusal(capfd, corpus, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    for place in (mine, mine / "new" / "newer"):
        refusal(
            capfd, "train", *train_arguments(corpus, f"run_dir={place}", "attention.num_heads=3")
        )
        assert [*tmp_path.rglob("*")] == [mine]


def test_files_of_the_users_own_survive_a_refusal(capfd, corpus, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    words = train_arguments(corpus, f"run_dir={tmp_path}", "attention.num_heads=3")
    refusal(capfd, "train", *words)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_overrides_of_a_run_that_cannot_be_read(capfd, tmp_path):
    for content in ("{", "word\n", "a: b\n", "- 5\n", "- 2020-13-45\n"):
        (tmp_path / "overrides.yaml").write_text(content)
        text = refusal(capfd, "train", f"resume={tmp_path}")
        assert text.startswith(f"cannot read {tmp_path}/overrides.yaml"), content


# --- bundles ------------------------------------------------------------------------------------


@pytest.fixture
def bundle(trained, tmp_path):
    """A copy of the bundle to break."""
    return shutil.copytree(trained / "model", tmp_path / "model")


@pytest.fixture
def use(capfd, corpus, tmp_path):
    """Refuses to use a bundle; nothing may be written."""

    def used(bundle):
        output = tmp_path / "output"
        words = (f"bundle={bundle}", f"input={corpus}/test.en", f"output={output}")
        text = refusal(capfd, "generate", *words)
        assert not output.exists()
        return text

    return used


def test_a_bundle_that_is_not_given(capfd):
    for subcommand in ("generate", "evaluate", "analyze", "convert"):
        told = refusal(capfd, subcommand)
        assert told.startswith("missing required key")
        assert "bundle=RUN/model" in told


def test_a_bundle_that_is_absent(use, tmp_path):
    absent = f"bundle {tmp_path}/no does not exist; training writes one to RUN/model"
    assert use(tmp_path / "no") == absent
    (tmp_path / "checkpoints").mkdir()  # of an interrupted run
    unfinished = f"training of {tmp_path} has not finished; run seqattn train resume={tmp_path}"
    assert use(tmp_path / "model").endswith(unfinished)


def test_a_directory_that_is_no_bundle(use, trained, tmp_path):
    """A run without a bundle, too: that of a finished run is used."""
    (tmp_path / "foreign").mkdir()
    assert use(tmp_path / "foreign") == (
        f"{tmp_path}/foreign is not a bundle: config.yaml is missing; use RUN/model"
    )
    shutil.copy(trained / "config.yaml", tmp_path / "foreign")
    text = use(tmp_path / "foreign")
    assert text.startswith(f"{tmp_path}/foreign/config.yaml: format must be 'seqattn bundle 2', ")
    assert text.endswith("; a run's bundle is RUN/model, written when training ends")


@pytest.mark.parametrize("part", ["data", "task"])
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
        f"error: {lacking} is missing from {bundle}/config.yaml: the bundle is damaged; retrain"
    )


# --- generate, evaluate, analyze ----------------------------------------------------------------


def test_a_sentence_longer_than_the_positions_of_the_model(capfd, corpus, tmp_path):
    run_dir, long = tmp_path / "run", tmp_path / "long.txt"
    words = ("position=learned", "position.max_length=50", f"run_dir={run_dir}")
    assert run(capfd, "train", *train_arguments(corpus, *words, steps=2)).code == 0
    long.write_text("a dog .\n" + "the cat " * 60 + "\n")
    text = refusal(
        capfd, "generate", f"bundle={run_dir}/model", f"input={long}", f"output={tmp_path}/out",
        "sentences=none",
    )  # fmt: skip
    assert text.startswith("source 2 has ")
    assert text.endswith(
        "tokens, but this model reads at most 50; shorten it, or train with a larger "
        "position.max_length"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("input", ("generate",)),
        ("links", ("align", "source={}/other", "target={}/other")),
        ("target", ("align", "source={}/other")),
        ("links", ("term_scores", "split=val")),
        ("terms.file", ("term_scores", "split=val", "links={}/other", "terms=glossary")),
    ],
)
@pytest.mark.parametrize("spelling", ["texts", "link", "folder/../texts", "./texts"])
def test_what_is_read_is_not_overwritten(capfd, trained, tmp_path, key, words, spelling):
    texts = tmp_path / "texts"
    texts.write_text("a dog .\n")
    (tmp_path / "other").write_text("a dog .\n")
    (tmp_path / "link").symlink_to(texts)
    (tmp_path / "folder").mkdir()
    output = f"{tmp_path}/{spelling}"
    words = [word.format(tmp_path) for word in words]
    words += [f"bundle={trained}/model", f"{key}={texts}", f"output={output}"]
    assert refusal(capfd, *words) == f"output={output} is also {key}; choose another"
    assert texts.read_text() == "a dog .\n"


def test_a_bundle_is_not_overwritten_by_scores_of_it(capfd, trained):
    words = ("evaluate", f"bundle={trained}/model", f"output={trained}/../{trained.name}/model")
    assert refusal(capfd, *words).endswith(" is also bundle; choose another")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("WORLD_SIZE", value) for value in ("abc", "0", "-3", "1000000000")),
        *(("RANK", "abc"), ("RANK", "5"), ("MASTER_PORT", "abc"), ("LOCAL_RANK", "x")),
    ],
)
def test_variables_of_a_launcher_that_are_wrong(capfd, trained, tmp_path, monkeypatch, name, value):
    for key, right in (("RANK", "0"), ("WORLD_SIZE", "2"), (name, value)):
        monkeypatch.setenv(key, value if key == name else right)
    words = (f"bundle={trained}/model", f"input={__file__}", f"output={tmp_path}/out")
    line = refusal(capfd, "generate", *words)
    assert name in line
    assert "in the environment" in line
    assert not [*tmp_path.iterdir()]


def test_ranks_that_cannot_meet_end_before_the_search(capfd, trained, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    words = (f"bundle={trained}/model", f"input={__file__}", f"output={tmp_path}/out")
    assert "also need MASTER_ADDR and MASTER_PORT" in refusal(capfd, "generate", *words)
    assert not [*tmp_path.iterdir()]


# --- the command itself -------------------------------------------------------------------------


def test_a_subcommand_or_an_option_that_is_not_there(capfd):
    text = refusal(capfd, "trian")
    assert text.startswith("unknown subcommand trian")
    assert "train" in text
    for word in ("--stpes", "-x", "--multi-run"):
        text = refusal(capfd, "train", word)
        setting = f"write {word.strip('-')}=VALUE, or choose from --help, "
        assert text.startswith(f"unrecognized arguments: {word}; {setting}")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("generate RUN/model hello", "generate bundle=RUN/model text=hello"),
        ("generate R/model He buys them. -m", "generate bundle=R/model text='He buys them.' -m"),
        ("generate bundle=R n_best=2 Hi", "generate text=Hi bundle=R n_best=2"),
        ("evaluate RUN/model", "evaluate bundle=RUN/model"),
        ("serve RUN/model port=80", "serve bundle=RUN/model port=80"),
        ("explain RUN/model Hi", "explain bundle=RUN/model text=Hi"),
        ("analyze RUN/model Hi output=d", "analyze bundle=RUN/model text=Hi output=d"),
        ("report RUN/model p.html", "report bundle=RUN/model output=p.html"),
        ("compare A B", "compare runs='[A,B]'"),
        ("train demo", "train experiment=demo"),
        ("train demo seed=2", "train experiment=demo seed=2"),
    ],
)
def test_words_without_keys_are_answered_with_the_command_to_type(capfd, words, meant):
    line = f"each argument needs a key; did you mean: seqattn {meant}"
    assert refusal(capfd, *words.split()) == line


def test_a_text_alone_is_no_bundle(capfd):
    assert refusal(capfd, "generate", "He buys them.").endswith(
        "seqattn generate bundle=RUN/model text='He buys them.'"
    )


@pytest.mark.parametrize(
    "words",
    ["generate text = hi", "generate text=two words more", "train gqa", "export A B C"],
)
def test_words_whose_keys_are_unclear(capfd, words):
    assert "is not key=value; write no spaces around =" in refusal(capfd, *words.split())


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to ..."),
    ],
)
def test_no_memory_is_said_in_a_line(error):
    assert (in_words(error, started=True) or "").startswith("out of memory; lower gen")
    assert in_words(RuntimeError("a bug"), started=True) is None


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--cfg foo", "argument --cfg/-c: invalid choice: 'foo' (choose from 'job', "),
        ("--info foo", "argument --info/-i: invalid choice: 'foo' (choose from 'all', "),
        ("--config-name my", "--config-name my needs --config-dir DIR, and in DIR/my.yaml the "),
        ("--config-name my --config-dir .", "--config-name my needs --config-dir DIR, and in "),
        ("-m seed=range(0,0)", "-m has no jobs: a range, choice or glob has no values"),
        ("-m seed=glob(*)", "-m has no jobs: a range, choice or glob has no values"),
    ],
)
def test_what_hydra_refuses_with_its_usage_or_not_at_all(tmp_path, monkeypatch, words, text, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text("seed: 2\n")
    assert refusal(capfd, "train", *words.split(), "run_dir=run").startswith(text)
    assert [file.name for file in tmp_path.iterdir()] == ["my.yaml"]


SENTENCES = [
    "a, b: {c} [d", '"Yes," he said, "no."', "'Tis the dogs' books'", "'a', 'b'", '"a\\"',
    "${seed}", "it's", "a=b", "5", "[a]", "true", "\\",
]  # fmt: skip
ASKED = [("analyze", "target"), ("explain", "target"), ("probe", "word"), ("generate", "question")]


@pytest.mark.parametrize(
    ("subcommand", "key", "text"),
    [
        *(("analyze", "text", text) for text in SENTENCES),
        *((*each, SENTENCES[4]) for each in ASKED),
    ],
)
def test_a_sentence_is_text_unless_it_is_one_quoted_string(trained, subcommand, key, text):
    words = (f"bundle={trained}/model", *(["output=out"] if subcommand == "analyze" else []))
    assert composed(subcommand, *words, f"{key}={text}")[0][key] == text
    if text == SENTENCES[0]:
        assert composed(subcommand, *words, f'{key}="one, two"')[0][key] == "one, two"


def test_a_config_of_ones_own_includes_the_subcommand(tmp_path, capfd):
    (tmp_path / "my.yaml").write_text("defaults: [train, _self_]\nseed: 2345\n")
    words = ("--config-name", "my", "--config-dir", str(tmp_path), "--cfg", "job")
    assert "seed: 2345" in succeed(capfd, "train", *words)


def test_a_config_of_ones_own_has_a_list_of_attentions_and_their_keys(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)  # outside the project
    (tmp_path / "my.yaml").write_text(files("configuration.md")["my.yaml"])
    words = ("--config-dir", ".", "--config-name", "my", "run_dir=run", "trainer=cpu",
             "trainer.fast_dev_run=true", "task.final=null", "cache_dir=cache")  # fmt: skip
    succeed(capfd, "train", *words)
    config = read_yaml(tmp_path / "run" / "config.yaml")
    heads = [(one["num_heads"], one["num_kv_heads"]) for one in config["attention"]]
    assert (heads, config["choices"]["attention"]) == ([(2, 2), (2, 2)], "[mha,gqa]")
    assert (config["model"]["dim"], config["seed"]) == (64, 2)
    (tmp_path / "my.yaml").write_text("defaults: [train, _self_]\nattention: [mha, gqa]\n")
    said = refusal(capfd, "train", *words)
    assert said.startswith("the config 'my' has a list where keys belong, or the reverse; name")


def test_a_job_that_fails_is_said_in_its_line_and_the_last(capfd, corpus, tmp_path):
    words = train_arguments(corpus, f"run_dir={tmp_path}/run", "seed=a,b")
    ended = run(capfd, "train", "-m", *words)
    lines = ended.err.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "job 0 (1 of 2)", "job 0", "job 1 (2 of 2)", "job 1", "error"
    ]  # fmt: skip
    assert (ended.code, lines[-1]) == (2, "error: jobs 0, 1 failed (messages above)")


@pytest.mark.parametrize(
    "argument",
    ["val_check_interval=100", "num_sanity_val_steps=x", "check_val_every_n_epoch=0",
     "detect_anomaly=maybe", "benchmark=5", "callbacks=[x]"],
)  # fmt: skip
def test_what_lightning_refuses_when_training_begins_is_one_line(corpus, argument, tmp_path, capfd):
    more = ("trainer.val_check_interval=1.0", f"+trainer.lightning.{argument}")
    words = train_arguments(corpus, *more, f"run_dir={tmp_path}/run")
    assert refusal(capfd, "train", *words).startswith("trainer")


def test_errors_of_ones_own_code_are_no_refusals_of_lightning():
    def in_own_code():
        raise ValueError("a bug")

    for call, theirs in ((in_own_code, False), (partial(Trainer, max_steps="x"), True)):
        with pytest.raises((ValueError, TypeError), match="") as caught:
            call()
        assert _is_theirs(caught.value) == theirs


@pytest.mark.parametrize("subcommand", ["export", "convert", "evaluate", "analyze", "generate"])
def test_an_output_that_is_a_link_to_itself_is_refused_in_one_line(
    places, subcommand, capfd, monkeypatch
):
    monkeypatch.chdir(places.folder)
    (places.folder / "out").symlink_to("out")
    subcommand, words = places.usual(subcommand)
    assert re.search("link|out: File exists", refusal(capfd, subcommand, *words))


@pytest.mark.parametrize(
    "swept",
    [
        ["seed=range(0,100000000)"],
        ["seed=shuffle(range(0,100000000))"],
        ["seed=range(0,200)", "optimizer.lr=range(0.01,1,0.01)"],
    ],
)
def test_a_sweep_of_very_many_jobs_is_refused_by_their_number(capfd, corpus, tmp_path, swept):
    words = train_arguments(corpus, f"run_dir={tmp_path}/sweep")
    line = "-m has more than 10,000 jobs; use fewer values, or hydra/sweeper"
    assert refusal(capfd, "train", "-m", *words, *swept) == line
    assert not (tmp_path / "sweep").exists()


def test_a_full_device_is_named_with_the_folder_of_a_sweep(capfd, corpus, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(OmegaConf, "save", full)
    words = train_arguments(corpus, f"run_dir={tmp_path}/sweep")
    assert refusal(capfd, "train", "-m", *words) == f"{tmp_path}/sweep: No space left on device"


def test_a_typo_in_one_job_of_a_sweep_is_refused_before_any(capfd, corpus, tmp_path):
    run_dir = tmp_path / "sweep"
    words = train_arguments(corpus, f"run_dir={run_dir}")
    assert refusal(capfd, "train", "-m", *words, "attention=mha,gqaa").startswith(
        "unknown choice attention=gqaa; did you mean gqa?"
    )
    assert [path.name for path in run_dir.iterdir()] == ["multirun.yaml"]
    assert refusal(capfd, "train", *words) == (
        f"run_dir={run_dir} holds the jobs of -m; repeat their command, with -m, to resume them, "
        "or choose another run_dir"
    )


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("data.source=en", "; data=multi30k has it"),  # rather than task.scorer
        ("data.sauce=en", "; choose from data.alignments"),
        ("data.root=x", "; data=aeslc|multi30k|parallel_text|shards|squad has it"),
        ("model.cell=gru", "; model=rnn|span_rnn has it"),
        ("attention.0.dropout=0", "; attention.KEY=VALUE sets KEY in all of a list that have it"),
        ("model.num_heads=2", "; did you mean attention.num_heads?"),
        ("trainer.max_length=9", "; did you mean loader.max_length?"),
    ],
)
def test_a_wrong_key_is_looked_for_in_its_own_group_first(word, hint):
    wrong = word.partition("=")[0].removesuffix(".dropout")
    assert refused_before_work(word) == f"unknown key {wrong}{hint}"


@pytest.mark.parametrize("word", ["data.root=x", "data.path=x"])
def test_a_place_of_data_in_files_is_named(word):
    refused = refused_before_work("data=table", word)
    assert refused == f"unknown key {word[:-2]}; did you mean data.files.train?"


def test_a_missing_test_split_points_to_validation(capfd, trained, tmp_path):
    words = (f"bundle={trained}/model", f"output={tmp_path}/out", "data.test=tst")
    text = refusal(capfd, "evaluate", *words)
    assert text.endswith("; or use split=val")
    assert "use split" not in refusal(capfd, "evaluate", *words, "data.val=no", "split=val")
