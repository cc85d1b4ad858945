"""A vocabulary of one's own: model files in place of training one, and symbols of a trained one."""

import io

import pytest
import sentencepiece
import yaml

import seqattn
from tests.cli.small import SIZES, data_of, pairs, refusal, run, succeed, train, train_arguments

OWN = tuple(word for word in SIZES if not word.startswith("tokenizer"))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with models of both sides and of each, in sentencepiece's own layout of marks."""
    folder, (sources, targets) = tmp_path_factory.mktemp("models"), zip(*pairs(), strict=True)
    for name, kind, texts in (
        ("joint", "unigram", sources + targets),
        ("source", "bpe", sources),
        ("target", "bpe", targets),
    ):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts), model_writer=model, vocab_size=50, model_type=kind,
            hard_vocab_limit=False, minloglevel=2,
        )  # fmt: skip
        (folder / f"{name}.model").write_bytes(model.getvalue())
    (folder / "text.model").write_text("ein Text\n")
    (folder / "words.model").write_bytes(b"\x0a\x09\x0a\x05<unk>\x18\x02\x12\x02\x18\x03")
    (folder / "empty.model").write_bytes(b"")
    return folder


def words(corpus, *more):
    return [word for word in train_arguments(corpus, *more) if not word.startswith("tokenizer.v")]


def segmented(models, name, text):
    return sentencepiece.SentencePieceProcessor(str(models / f"{name}.model")).encode(
        text, out_type=str
    )


def test_a_run_uses_the_model_of_both_sides_and_goes_on(capfd, corpus, models, tmp_path):
    run_dir, text = tmp_path / "run", "the cat hears a ball ."
    arguments = [f"run_dir={run_dir}", "tokenizer=files", f"tokenizer.source={models}/joint.model"]
    train(words(corpus, *arguments))
    bundle = seqattn.load(run_dir / "model")
    [ids] = bundle.tokenizer.encode_source([text])
    assert bundle.tokenizer.joint
    assert bundle.tokenizer.source_pieces(ids)[:-1] == segmented(models, "joint", text)
    assert bundle.generate(text) is not None
    kept = yaml.safe_load((run_dir / "model" / "config.yaml").read_text())["tokenizer"]
    assert kept == {"_type_": "TokenizerFiles", "source": "???", "target": None, "symbols": None}

    train(words(corpus, *arguments, "trainer.max_steps=6", f"resume={run_dir}"))
    again = seqattn.load(run_dir / "model").tokenizer
    assert again.fingerprint == bundle.tokenizer.fingerprint
    other = tmp_path / "other"
    train(words(corpus, f"run_dir={other}", f"init_from={run_dir}/model"))
    assert seqattn.load(other / "model").tokenizer.fingerprint == again.fingerprint


def test_each_side_has_its_own_model_in_a_run_from_prepared_shards(capfd, corpus, models, tmp_path):
    files = [f"tokenizer.{side}={models}/{side}.model" for side in ("source", "target")]
    prepare = [*data_of(corpus), "tokenizer=files", *files, "workers=1", f"output={tmp_path}/p"]
    succeed(capfd, "prepare", *prepare)
    assert "nothing to do" in run(capfd, "prepare", *prepare).err
    data = ["data=shards", f"data.root={tmp_path}/p", "model.share_embeddings=none"]
    places = [f"cache_dir={tmp_path}/c", f"run_dir={tmp_path}/r"]
    train([*OWN, *data, *places, "trainer.max_steps=2", "trainer.max_epochs=-1"])
    tokenizer, [(source, target), *_] = seqattn.load(tmp_path / "r" / "model").tokenizer, pairs()
    assert not tokenizer.joint
    for text, encode, pieces, name in (
        (source, tokenizer.encode_source, tokenizer.source_pieces, "source"),
        (target, tokenizer.encode_target, tokenizer.target_pieces, "target"),
    ):
        assert pieces(encode([text])[0])[:-1] == segmented(models, name, text)

    changed = [word for word in prepare if "tokenizer.target" not in word]
    ended = run(capfd, "prepare", *changed, f"tokenizer.target={models}/joint.model")
    assert (ended.code, "different contents of vocabulary" in ended.err) == (2, True)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            ["tokenizer.source={}/none.model"],
            r"none.model does not exist; expected a sent",
        ),
        (["tokenizer.source={}"], "is not a regular file; expected a sentencepiece model"),
        (["tokenizer.source={}/text.model"], "text.model is not a sentencepiece model"),
        (["tokenizer.source={}/empty.model"], "empty.model is not a sentencepiece model"),
        (["tokenizer.source={}/words.model"], "words.model is a model of words or characters; use"),
        (
            [
                "tokenizer.source={}/source.model",
                "tokenizer.target={}/text.model",
                "model.share_embeddings=none",
            ],
            "text.model is not a sentencepiece model",
        ),
        ([], "missing required key: tokenizer.source"),
        (["tokenizer.source=null"], "missing required key: tokenizer.source"),
        (["tokenizer.source={}/joint.model", "tokenizer.kind=bpe"], "unknown key"),
        (["tokenizer.source={}/joint.model", "+tokenizer.vocab_size=5"], "unknown key tokenizer."),
        (
            ["tokenizer.source={}/joint.model", 'tokenizer.symbols=["<2de>"]'],
            "joint.model has no piece <2de>, which tokenizer.symbols requires; list only its own",
        ),
        (
            ["tokenizer.source={}/source.model", "tokenizer.target={}/target.model"],
            "model.share_embeddings=all needs one vocabulary",
        ),
    ],
)
def test_bad_files_are_refused_in_a_line(capfd, corpus, models, tmp_path, settings, reason):
    settings = [one.format(models) for one in settings]
    arguments = words(corpus, f"run_dir={tmp_path}/run", "tokenizer=files", *settings)
    assert reason in refusal(capfd, "train", *arguments)


def test_symbols_are_pieces_that_are_never_split(corpus, tmp_path):
    symbols = 'tokenizer.symbols=["<2de>","<2fr>"]'
    train(train_arguments(corpus, f"run_dir={tmp_path}/run", symbols, "tokenizer.vocab_size=null"))
    tokenizer = seqattn.load(tmp_path / "run" / "model").tokenizer
    [ids] = tokenizer.encode_source(["<2fr> the<2de> cat"])
    pieces = tokenizer.source_pieces(ids)
    assert pieces[:2] == ["▁", "<2fr>"]
    assert "<2de>" in pieces
    assert tokenizer.decode_target([ids]) == ["<2fr> the<2de> cat"]


@pytest.mark.parametrize("symbols", ['["a b"]', '["<s>"]', '["x","x"]', '[""]', '["▁x"]'])
def test_symbols_that_cannot_be_are_refused(capfd, corpus, tmp_path, symbols):
    arguments = train_arguments(corpus, f"run_dir={tmp_path}/run", f"tokenizer.symbols={symbols}")
    assert refusal(capfd, "train", *arguments).startswith("tokenizer.symbols must be ")
