"""`export to=argos`: packages that are read here as Argos Translate 1.11 reads them."""

import json
import zipfile
from dataclasses import replace
from itertools import chain

import pytest
from sentencepiece import SentencePieceProcessor

import seqattn
from seqattn.bundle.files import write_bundle
from seqattn.data.truecasing import Truecaser
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.errors import UserError
from seqattn.extras.exchange.argos_export import PACKAGE, write_argos
from seqattn.settings.assembly import Architecture, Vocabularies
from seqattn.tokens import EOS, UNK
from tests.cli.small import pairs, refusal, succeed
from tests.extras.exchange.cards import write_beginning

ctranslate2 = pytest.importorskip("ctranslate2")
SENTENCES = [source for source, _ in pairs()]
FILES = [
    "README.md", "metadata.json", "model/config.json", "model/model.bin",
    "model/shared_vocabulary.json", "sentencepiece.model",
]  # fmt: skip
CODES = {"source_language": "en", "target_language": "de"}


def installed(package, folder):
    """Install a package as Argos does; return its folder."""
    with zipfile.ZipFile(package) as archive:
        archive.extractall(folder)
    [home] = folder.iterdir()
    return home


def processor(home):
    return SentencePieceProcessor(model_file=str(home / "sentencepiece.model"))


def decoded(home, pieces):
    text = processor(home).decode_pieces(pieces).replace("▁", " ").replace("_", " ")
    return text.removeprefix(" ")


def translated(home, sentences, **options):
    """Translate a text of sentences as Argos does, in float32."""
    translator = ctranslate2.Translator(str(home / "model"), compute_type="float32")
    batches = translator.translate_batch(
        [processor(home).encode(sentence, out_type=str) for sentence in sentences],
        target_prefix=None, replace_unknowns=True, max_batch_size=32, batch_type="tokens",
        beam_size=4, num_hypotheses=1, length_penalty=0.2, return_scores=True, **options,
    )  # fmt: skip
    return decoded(home, [piece for batch in batches for piece in batch.hypotheses[0]])


@pytest.fixture(scope="module")
def plain(trained):
    return seqattn.load(trained / "model")


@pytest.fixture
def rewritten(plain, tmp_path):
    """Writes a bundle with another tokenizer, and random weights; returns it."""

    def write(tokenizer, **nodes):
        model = {**plain.config["model"], "share_embeddings": "none"}
        config = {**plain.config, "model": model, **nodes}
        built = Architecture.of(config).build(Vocabularies.of(tokenizer)).eval()
        path = tmp_path / tokenizer.fingerprint
        write_bundle(path, config, built, tokenizer, {})
        return seqattn.load(path)

    return write


@pytest.fixture
def tokenizer(tmp_path):
    def train(**settings):
        sides = zip(*pairs(), strict=True)
        return train_tokenizer(*sides, TokenizerConfig(**settings), tmp_path / "cache")

    return train


def test_a_package_says_what_its_bundle_says(bundle, tmp_path, capfd):
    out = tmp_path / "out"
    table = succeed(capfd, "export", f"bundle={bundle}", "to=argos", f"output={out}")
    assert f"{(out / PACKAGE).stat().st_size:,} bytes in float32 (" in table
    assert "English to German" in table
    assert "no model that splits texts is in the package" in table
    home = installed(out / PACKAGE, tmp_path / "packages")
    assert sorted(str(file.relative_to(home)) for file in home.rglob("*.*")) == FILES
    assert json.loads((home / "metadata.json").read_text()) == {
        "package_version": "1.0", "argos_version": "1.11.0", "from_code": "en",
        "from_name": "English", "to_code": "de", "to_name": "German",
    }  # fmt: skip
    assert (home / "README.md").read_text() == (out / "README.md").read_text()
    settings = {"beam_size": 4, "length_penalty": 0.2, "limit": {"ratio": 0, "extra": 12}}
    expected = seqattn.load(bundle).generate(SENTENCES, "beam", **settings, sentences=None)
    assert len({*expected}) > 1
    for sentence, output in zip(SENTENCES, expected, strict=True):
        assert translated(home, [sentence], max_decoding_length=12) == output
    assert translated(home, SENTENCES[:3], max_decoding_length=12) == " ".join(expected[:3])


def test_packages_of_a_bundle_are_equal(plain, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_argos(plain, tmp_path / name, "int8", **CODES)
    one, two = ((tmp_path / name / PACKAGE).read_bytes() for name in ("one", "two"))
    assert one == two
    assert sorted(file.name for file in (tmp_path / "two").iterdir()) == ["README.md", PACKAGE]


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "bpe", "vocab_size": 60},
        {"vocab_size": 30, "joint": False},
        {"kind": "bpe", "vocab_size": 320, "joint": False, "byte_fallback": True},
        {"kind": "bpe", "vocab_size": 60, "normalization": "nmt_nfkc_cf"},
        {"kind": "symbols"},
    ],
    ids=str,
)
def test_any_sentencepiece_model_reads_and_writes_as_the_bundle(
    rewritten, tokenizer, settings, tmp_path
):
    own = tokenizer(**settings)
    (tmp_path / "new").mkdir()
    write_argos(rewritten(own), tmp_path / "new", **CODES)
    home = installed(tmp_path / "new" / PACKAGE, tmp_path / "packages")
    texts = [*map(" ".join, pairs()), "The Dog  sees ½ 中文 ☃ ."]
    ids = {piece: number for number, piece in enumerate(own.source_vocabulary())}
    for text, expected in zip(texts, own.encode_source(texts), strict=True):
        pieces = processor(home).encode(text, out_type=str)
        assert [*(ids.get(piece, UNK) for piece in pieces), EOS] == expected
    names, ids = own.target_vocabulary(), own.encode_target([target for _, target in pairs()])
    rows = [[names[number] for number in row] for row in ids]
    expected = own.decode_target(ids)
    assert [decoded(home, row) for row in rows] == expected
    assert decoded(home, [*chain(*rows)]) == " ".join(expected)


@pytest.mark.parametrize(
    ("data", "given", "codes"),
    [
        ({"source_language": "en-US", "target_language": "pt"}, {}, "en_pt"),
        ({"source_column": "eng", "target_column": "deu_Latn"}, {}, "en_de"),
        ({"source": "fr", "target": "cs"}, {}, "fr_cs"),
        ({"source": "fr", "target": "cs"}, {"target_language": "zt"}, "fr_zt"),
        ({"source": "src", "target": "cs"}, CODES, "en_de"),
    ],
)
def test_languages_are_those_of_the_data_or_given(plain, tmp_path, data, given, codes):
    named = replace(plain, config={**plain.config, "data": data})
    write_argos(named, tmp_path, **given)
    assert installed(tmp_path / PACKAGE, tmp_path / "packages").name == f"translate-{codes}"


@pytest.mark.parametrize(
    "given", [{}, {"source_language": "en"}, {**CODES, "target_language": "DE"}]
)
def test_what_is_no_code_is_refused(plain, tmp_path, given):
    unnamed = replace(plain, config={**plain.config, "data": {"source": "src", "target": ["de"]}})
    with pytest.raises(UserError, match="set source_language and target_language to codes such"):
        write_argos(unnamed, tmp_path, **given)


@pytest.mark.parametrize(
    ("nodes", "line"),
    [
        ({"task": {"name": "summarization"}}, "runs task=translation, not task=summarization"),
        ({"data": {"tag_columns": ["domain"]}}, "train without data.tag_columns"),
        ({"data": {"documents": "lines"}, "loader": {"long_sources": "window"}}, "documents"),
    ],
)
def test_what_argos_does_not_do_is_refused(plain, tmp_path, nodes, line):
    nodes = {name: {**plain.config[name], **node} for name, node in nodes.items()}
    with pytest.raises(UserError, match=line):
        write_argos(replace(plain, config={**plain.config, **nodes}), tmp_path, **CODES)
    assert [*tmp_path.iterdir()] == []


def test_other_vocabularies_are_refused(plain, rewritten, tokenizer, tmp_path, capfd):
    cased = replace(plain, tokenizer=tokenizer(vocab_size=60))
    cased.tokenizer.truecaser = Truecaser.learnt(["Ann met Ben ."])
    own = rewritten(tokenizer(vocab_size=60))
    head = own.path / "tokenizer.json"
    head.write_text(json.dumps({**json.loads(head.read_text()), "side": "mine.words.WordSide"}))
    for other, line in [
        (cased, "restores no capital letters; train with tokenizer.truecase=false"),
        (own, "needs a sentencepiece model that puts a space before each text; train with"),
        (rewritten(tokenizer(kind="characters")), "puts a space before each text; train with"),
    ]:
        with pytest.raises(UserError, match=line):
            write_argos(other, tmp_path / "new", **CODES)
    write_beginning(plain.path, tmp_path / "begun")
    words = f"bundle={tmp_path}/begun", "to=argos", f"output={tmp_path}/new"
    line = "Argos Translate puts no language codes before texts; use to=ctranslate2"
    assert refusal(capfd, "export", *words) == line
    assert not (tmp_path / "new").exists()


def test_languages_are_for_argos_alone(plain, capfd):
    text = refusal(capfd, "export", f"bundle={plain.path}", "output=new", "source_language=en")
    assert text == "to=ctranslate2 does not support source_language; remove source_language=en"
