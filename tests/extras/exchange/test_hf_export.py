"""Bundles as folders of transformers: what they say is what the bundle says."""

import json
import re
import shutil
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from unittest import mock

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors import SafetensorError

import seqattn
from seqattn.bundle.files import write_bundle
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.tokenizer_side import Begin
from seqattn.data.truecasing import Truecaser
from seqattn.errors import UserError
from seqattn.extras.exchange.hf_export import write_huggingface
from seqattn.extras.exchange.hf_folder import HFFolder
from seqattn.extras.exchange.hf_import import read_model
from seqattn.extras.exchange.hf_tokenizers import read_tokenizer
from seqattn.extras.exchange.hub_card import hub_card, left_out
from seqattn.extras.exchange.parity import TOLERANCE
from seqattn.generation import GreedySearch, LengthLimit
from seqattn.generation.generator import Generator
from seqattn.settings.assembly import Architecture, Vocabularies
from seqattn.settings.choices import choices
from seqattn.tokens import UNK
from tests.cli.small import SIZES, composed, listing, pairs, refusal, sampled, succeed
from tests.extras.exchange import foreign_models
from tests.extras.exchange.cards import program
from tests.extras.exchange.foreign_tokenizers import lines, nasty, pieces_of

AutoTokenizer = pytest.importorskip("transformers").AutoTokenizer
TEXTS = [source for source, _ in pairs()][::9]
HALVES = ("position=sinusoidal", "position.layout=halves")
GEMMA = (
    *("position=rope", "model.dim=24", "model.norm=rmsnorm", "model.branch_norm=true"),
    *("model.bias=false", "attention.bias=false", "model.activation=geglu_tanh"),
)
T5 = ("position=t5", "model.norm=rmsnorm", "model.bias=false", "attention.bias=false")


@pytest.fixture(scope="module")
def plain(trained):
    return seqattn.load(trained / "model")


def built(tokenizer, *overrides):
    """Settings of overrides, and their model with random weights."""
    settings, _ = composed("train", "run_dir=unused", *SIZES, "model.dim=20", *overrides)
    torch.manual_seed(0)
    model = Architecture.of(settings).build(Vocabularies.of(tokenizer)).eval()
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(torch.randn_like(weights), alpha=0.1)
    return settings, model


@pytest.fixture(scope="module")
def bundle(plain, tmp_path_factory):
    """Writes a bundle of random weights with the settings of overrides; returns its directory."""

    def write(*overrides, tokenizer=plain.tokenizer):
        settings, model = built(tokenizer, *overrides)
        config = {**plain.config, **{key: settings[key] for key in ("model", "attention")}}
        config["position"] = settings["position"]
        path = tmp_path_factory.mktemp("bundle") / "model"
        write_bundle(path, config, model, tokenizer, {})
        return path

    return write


FAMILIES = {
    "pre-norm": ("pegasus", ["position=sinusoidal"]),
    "pre-norm, halves": ("pegasus", [*HALVES, "model.activation=gelu", "model.output_bias=true"]),
    "an odd width": ("pegasus", ["position=sinusoidal", "model.dim=15", "attention.num_heads=3"]),
    "no scale": ("pegasus", ["position=sinusoidal", "model.embedding_scale=1.0"]),
    "an output apart": (
        "pegasus",
        ["position=sinusoidal", "model.share_embeddings=inputs", "model.embedding_scale=3.0"],
    ),
    "post-norm": ("marian", ["position=sinusoidal", "model.pre_norm=false"]),
    "post-norm, tables apart": (
        "marian",
        [*HALVES, "model.pre_norm=false", "model.share_embeddings=target"],
    ),
    "post-norm, all apart": (
        "marian",
        ["position=sinusoidal", "model.pre_norm=false", "model.share_embeddings=none"],
    ),
    "fairseq's sinusoids": (
        "m2m_100",
        ["position=sinusoidal", "position.first=2", "position.endpoint=true"],
    ),
    "learned, post-norm": (
        "bart",
        [
            *("position=learned", "position.max_length=60"),
            *("model.embedding_norm=true", "model.pre_norm=false"),
        ],
    ),
    "learned, pre-norm": (
        "mbart",
        ["position=learned", "position.max_length=60", "model.embedding_norm=true"],
    ),
    "t5": ("t5", [*T5, "position.num_buckets=8", "position.max_distance=20"]),
    "t5, not scaled": ("mt5", [*T5, "model.embedding_scale=1.0"]),
    "t5, gated, wide heads": (
        "t5",
        [
            *T5,
            "model.activation=geglu_tanh",
            "attention.head_dim=7",
            "model.share_embeddings=inputs",
        ],
    ),
    "rotary, grouped heads": (
        "t5gemma",
        [*GEMMA, "attention.num_kv_heads=2", "position.base=500", "model.output_softcap=2.0"],
    ),
    "rotary, tables apart": (
        "t5gemma",
        [*GEMMA, "model.activation=swiglu", "model.share_embeddings=none", "attention.head_dim=8"],
    ),
}


@pytest.mark.parametrize("case", sampled(zip(FAMILIES), 2))
def test_every_family_says_what_the_bundle_says(case, bundle, tmp_path, capfd):
    kind, overrides = FAMILIES[case]
    path = bundle(*overrides, "model.decoder_layers=2")
    out = succeed(capfd, "export", f"bundle={path}", "to=huggingface", f"output={tmp_path}/new")
    assert f"(model_type {kind})" in out
    assert re.search(r"checked .* 9 pairs: no log-probability differs .* than \d+e-0[5-9]", out)
    own = seqattn.load(path).generate(TEXTS, "greedy", limit={"extra": 3})
    assert _outputs(tmp_path / "new", TEXTS, num_beams=1) == _spoken(own)
    if kind == "t5gemma":
        words = "import", f"source={tmp_path / 'new'}", f"output={tmp_path / 'again'}"
        assert "has model_type='t5gemma'; supported are marian, m2m_" in refusal(capfd, *words)
        return
    again = read_model(HFFolder(tmp_path / "new"))
    assert again.comparison.difference < TOLERANCE
    search = Generator(again.model, GreedySearch(limit=LengthLimit(extra=3)))
    found = search.generate(again.tokenizer.tokenizer.encode_source(TEXTS))
    assert again.tokenizer.tokenizer.decode_target([one[0].ids for one in found]) == own


def _spoken(texts):
    """Texts without unknown pieces, which transformers leaves out as special."""
    return [text.replace("⁇", "") for text in texts]


def _outputs(folder, texts, **settings):
    from transformers import AutoModelForSeq2SeqLM

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    outputs = []
    for text in texts:
        batch = tokenizer(text, return_tensors="pt")
        length = int(1.5 * batch["input_ids"].shape[1]) + 3
        [row] = model.generate(**batch, max_new_tokens=length, **settings)
        outputs.append(tokenizer.decode(row[1:], skip_special_tokens=True))
    return outputs


def _tokenizers(path):
    """Tokenizers by name, one for each way of segmenting text."""
    both, options = (
        [*lines("en"), *lines("de")],
        {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3},
    )
    kept = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, **options}

    def model(kind="unigram", size=400, **more):
        pieces_of(path / "model", both, size, kind, **more)
        return (path / "model").read_bytes()

    return {
        "unigram": Tokenizer(model(**kept)),
        "bpe": Tokenizer(model("bpe", **kept)),
        "bytes": Tokenizer(model("unigram", 500, byte_fallback=True, **kept)),
        "bytes of bpe": Tokenizer(model("bpe", 500, byte_fallback=True, **kept)),
        "nmt_nfkc": Tokenizer(model(**options)),
        "symbols": Tokenizer(model(user_defined_symbols=["<2de>", "@@"], **kept)),
        "apart": Tokenizer(model(**kept), model("bpe", **kept)),
        "fewer sources": Tokenizer(model(**kept), model("bpe", 430, **kept)),
        "fewer targets": Tokenizer(model("bpe", 430, **kept), model(**kept)),
        "begin": Tokenizer(model(**kept), begin=Begin(("a",), ("b",))),
    }


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    return _tokenizers(tmp_path_factory.mktemp("tokenizers"))


DIFFERING = {
    "unigram": None,
    "bpe": None,
    "bytes": None,
    "bytes of bpe": None,
    "nmt_nfkc": "\u0301",  # after a letter that normalization changes
    "symbols": None,
    "apart": "[▁▅\U0010fffb-\U0010fffd]",  # sentencepiece alone does not escape them
    "begin": "^$",
}
"""For each tokenizer the lines, as a pattern, that transformers may read otherwise."""


@pytest.mark.parametrize("name", DIFFERING)
def test_a_tokenizer_gives_the_same_ids_for_nasty_lines(name, tokenizers, bundle, tmp_path, capfd):
    own = tokenizers[name]
    words = ["position=sinusoidal", "model.pre_norm=false"]
    words += ["model.share_embeddings=none"] if name == "apart" else []
    path = bundle(*words, tokenizer=own)
    succeed(capfd, "export", f"bundle={path}", "to=huggingface", f"output={tmp_path}/new")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "new")
    texts = [*nasty(), "<2de> a<2de> @@", "\U0010fffb\U0010fffc \U0010fffc"]
    texts = [text for text in texts if not (DIFFERING[name] and re.search(DIFFERING[name], text))]
    assert len(texts) > 850
    ids = theirs(texts)["input_ids"]
    assert ids == own.encode_source(texts)
    config = json.loads((tmp_path / "new/config.json").read_text())
    again = read_tokenizer(tmp_path / "new", config)
    read = again.tokenizer.encode_source(texts)
    assert [[again.rows[one] for one in row] for row in read] == ids
    if name not in ("nmt_nfkc", "apart"):
        known = [number for number, row in enumerate(ids) if UNK not in row]
        decoded = [theirs.decode(ids[number], skip_special_tokens=True) for number in known]
        assert decoded == own.decode_target([ids[number] for number in known])


@pytest.mark.parametrize("family", ["post-norm, all apart", "rotary, tables apart"])
@pytest.mark.parametrize("name", ["fewer sources", "fewer targets"])
def test_two_vocabularies_of_any_size_go_out(name, family, tokenizers, bundle, tmp_path, capfd):
    path = bundle(*FAMILIES[family][1], tokenizer=tokenizers[name])
    succeed(capfd, "export", f"bundle={path}", "to=huggingface", f"output={tmp_path}/new")
    own = seqattn.load(path).generate(TEXTS, "greedy", limit={"extra": 3})
    assert _outputs(tmp_path / "new", TEXTS, num_beams=1) == _spoken(own)


@pytest.mark.parametrize("name", sampled(zip(foreign_models.FAMILIES), 2))
def test_an_imported_model_goes_out_as_its_own_family(name, tmp_path, capfd):
    folder = tmp_path / "folder"
    folder.mkdir()
    theirs, _ = foreign_models.save(name, folder)
    succeed(capfd, "import", f"source={folder}", f"output={tmp_path}/model")
    out = succeed(
        capfd, "export", f"bundle={tmp_path}/model", "to=huggingface", f"output={tmp_path}/new"
    )
    kind = theirs.config.model_type
    assert f"(model_type {'t5' if kind == 'mt5' else kind})" in out
    assert re.search(r"checked .* 9 pairs: no log-probability differs .* than \d+e-0[5-9]", out)
    own = seqattn.load(tmp_path / "model")
    again, vocabulary = (
        AutoTokenizer.from_pretrained(tmp_path / "new"),
        own.tokenizer.source_vocabulary(),
    )
    texts = lines("en")[:20]
    if name != "marian apart":  # whose names are those of the target side
        expected = [[vocabulary[n] for n in row] for row in own.tokenizer.encode_source(texts)]
        assert [*map(again.convert_ids_to_tokens, again(texts)["input_ids"])] == expected
    outputs = own.generate(texts[:2], "greedy", limit={"extra": 3})
    assert _outputs(tmp_path / "new", texts[:2], num_beams=1) == _spoken(outputs)


@pytest.mark.parametrize(
    ("name", "changed"),
    [("t5", {"decoder_start_token_id": 9}), ("tied mt5", {})],
)
def test_an_imported_model_of_another_start_or_tables_goes_out(name, changed, tmp_path, capfd):
    folder = tmp_path / "folder"
    folder.mkdir()
    tied = {"model_type": "mt5", "tie_word_embeddings": True}
    make = {"tied mt5": (foreign_models.FAMILIES["t5"][0], tied)}
    with mock.patch.dict(foreign_models.FAMILIES, make):
        foreign_models.save(name, folder)
    for file in ("config.json", "generation_config.json"):
        content = json.loads((folder / file).read_text()) | changed
        (folder / file).write_text(json.dumps(content))
    succeed(capfd, "import", f"source={folder}", f"output={tmp_path}/model")
    words = f"bundle={tmp_path}/model", "to=huggingface", f"output={tmp_path}/new"
    assert re.search(r"9 pairs: no .* than \d+e-0[5-9]", succeed(capfd, "export", *words))
    own = seqattn.load(tmp_path / "model")
    texts = lines("en")[:2]
    outputs = own.generate(texts, "greedy", limit={"extra": 3})
    assert _outputs(tmp_path / "new", texts, num_beams=1) == _spoken(outputs)


@pytest.fixture(scope="module")
def sinusoidal(bundle):
    """A bundle of the first family, which tests must not change."""
    return bundle("position=sinusoidal")


def test_the_program_of_its_page_says_what_the_bundle_says(sinusoidal, tmp_path, capfd):
    words = f"bundle={sinusoidal}", "to=huggingface", f"output={tmp_path}/new"
    assert "its README.md explains how to run it" in succeed(capfd, "export", *words)
    before = listing(tmp_path)
    assert succeed(capfd, "export", *words) == ""  # complete, nothing to do
    assert listing(tmp_path) == before
    for text in TEXTS[:3]:
        exec(program(tmp_path / "new", text), {})
    said = capfd.readouterr().out.splitlines()
    assert said == _spoken(seqattn.load(sinusoidal).generate(TEXTS[:3]))


def test_the_card_names_languages_scores_license_and_what_is_left_out(trained, tmp_path, capfd):
    words = f"bundle={trained}", "to=huggingface", f"output={tmp_path}/new", "license=mit"
    assert "settings of training and data" in succeed(capfd, "export", *words)
    card, scores = ModelCard.load(tmp_path / "new/README.md"), seqattn.load(trained).scores
    data = card.data
    assert (data.license, data.library_name) == ("mit", "transformers")
    assert (data.language, data.pipeline_tag) == (["en", "de"], "translation")
    assert [(one.metric_type, one.metric_value, one.metric_args) for one in data.eval_results] == [
        ("bleu", round(scores["val/bleu"], 2), {"signature": scores["val/bleu signature"]}),
        ("chrf", round(scores["val/chrF"], 2), {"signature": scores["val/chrF signature"]}),
    ]
    for part in ("Left out", "Data", "Scores", "Settings", "Training", "Limits"):
        assert f"\n## {part}\n" in card.text
    assert "\n- splitting of texts into lines\n" in card.text
    assert "all other settings are in the bundle's `config.yaml`\n" in card.text


def test_parts_that_the_export_lacks_are_named(plain):
    def lacking(**nodes):
        bundle = replace(plain, config={**plain.config, **nodes})
        return [part for part in left_out(bundle) if part not in left_out(plain)]

    assert lacking(calibration={"a": 1}) == ["calibration of quality=true"]
    assert lacking(alignment={"a": 1}) == ["alignment settings"]
    sampled = choices("generation")["mbr"]
    assert lacking(generation=sampled) == ["minimum bayes risk (sampling instead)"]
    covered = {**plain.config["generation"], "coverage_penalty": 0.2}
    assert lacking(generation=covered) == ["coverage_penalty"]


def test_what_a_person_wrote_in_the_bundle_s_card_goes_along(trained, tmp_path, capfd):
    bundle = seqattn.load(shutil.copytree(trained / "model", tmp_path / "model"))
    card = bundle.path / "README.md"
    card.write_text("---\nlicense: cc0-1.0\nlanguage: [tlh]\n---\n# Mine\n\n## Use\n\nNone.\n")
    table = {"_target_": "seqattn.data.table.Table", "dataset": "org/pairs"}
    on_hub = replace(bundle, config={**bundle.config, "data": table})
    data = ModelCard(hub_card(on_hub, "usage", [], None)).data
    assert (data.license, data.language, data.datasets) == ("cc0-1.0", ["tlh"], ["org/pairs"])
    text = hub_card(bundle, "usage", [], None)
    assert "\n# Mine\n\nusage\n" in text
    assert text.endswith("\n## Use\n\nNone.\n")
    card.write_text("---\na: [\n---\n")
    with pytest.raises(UserError, match=r"README.md has invalid metadata; mend the YAML"):
        hub_card(bundle, "usage", [], None)
    for text in ("---\nlicense: unknown\n---\n", ""):
        card.write_text(text)
        assert not ModelCard(hub_card(bundle, "usage", [], None)).data.license
        told = "the card names no license; set license=ID, such as apache-2.0\n"
        assert capfd.readouterr().err.endswith(told)
    words = f"bundle={trained}", "to=huggingface", f"output={tmp_path}/new", "license=MIT"
    assert refusal(capfd, "export", *words).startswith("unknown license=MIT; use one of https://")


def test_the_search_goes_out_and_comes_back(tmp_path, capfd):
    """Also the processors that an imported target's first pieces put off."""
    (tmp_path / "folder").mkdir()
    foreign_models.save("nllb", tmp_path / "folder")
    file = tmp_path / "folder/generation_config.json"
    settings = {
        "max_length": 9, "min_length": 4, "num_beams": 3, "repetition_penalty": 1.5,
        "no_repeat_ngram_size": 2, "encoder_no_repeat_ngram_size": 3, "bad_words_ids": [[50, 60]],
        "length_penalty": 0.5,
    }  # fmt: skip
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    words = f"bundle={tmp_path}/model", "to=huggingface", f"output={tmp_path}/new"
    succeed(capfd, "import", f"source={tmp_path}/folder", f"output={tmp_path}/model")
    succeed(capfd, "export", *words)
    written = json.loads((tmp_path / "new/generation_config.json").read_text())
    words = {name: written[name] for name in settings if name != "bad_words_ids"}
    assert words == {name: settings[name] for name in words}
    tokenizer, theirs = (AutoTokenizer.from_pretrained(tmp_path / one) for one in ("new", "folder"))
    banned = [tokenizer.convert_ids_to_tokens(word) for word in written["bad_words_ids"]]
    assert theirs.convert_ids_to_tokens([50, 60]) in banned
    settings = "generation=sampling", "generation.temperature=0.5", "generation.top_k=3"
    path = tmp_path / "sampled"
    file.unlink()
    succeed(capfd, "import", f"source={tmp_path}/folder", f"output={path}", *settings)
    words = f"bundle={path}", "to=huggingface", f"output={tmp_path}/other"
    succeed(capfd, "export", *words)
    written = json.loads((tmp_path / "other/generation_config.json").read_text())
    assert [written[key] for key in ("do_sample", "temperature", "top_k")] == [True, 0.5, 3]


def test_without_transformers_the_folder_is_imported_again(
    sinusoidal, bundle, tmp_path, capfd, monkeypatch
):
    def version(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("seqattn.extras.exchange.parity.version", version)
    for number, path in enumerate((sinusoidal, bundle(*T5))):
        words = f"bundle={path}", "to=huggingface", f"output={tmp_path}/{number}"
        out = succeed(capfd, "export", *words)
        assert "names and shapes; install transformers to compare log-probabilities" in out
    monkeypatch.setattr("seqattn.extras.exchange.hf_export._in_halves", lambda name, tensor: tensor)
    words = f"bundle={sinusoidal}", "to=huggingface", f"output={tmp_path}/new", "license=mit"
    assert "the written model says something else, by " in refusal(capfd, "export", *words)
    assert not (tmp_path / "new").exists()


def test_what_says_something_else_is_not_written(sinusoidal, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("seqattn.extras.exchange.hf_export._in_halves", lambda name, tensor: tensor)
    words = f"bundle={sinusoidal}", "to=huggingface", f"output={tmp_path}/new", "license=mit"
    assert "log-probabilities differ from those of transformers" in refusal(capfd, "export", *words)
    assert [*tmp_path.iterdir()] == []  # nor a directory for it


def test_a_full_disk_leaves_nothing(sinusoidal, tmp_path, capfd, monkeypatch):
    def full(*_):
        raise SafetensorError("I/O error: No space left on device")

    monkeypatch.setattr("seqattn.extras.exchange.hf_export.save_file", full)
    words = f"bundle={sinusoidal}", "to=huggingface", f"output={tmp_path}/new"
    said = refusal(capfd, "export", *words)
    assert said == "cannot write model.safetensors: I/O error: No space left on device"
    assert [*tmp_path.iterdir()] == []


SETTINGS = {
    # each setting that a family lacks, and the one that it has
    ("model.norm=rmsnorm", "model.norm=layernorm"): [],
    ("model.activation=swiglu", "model.activation=silu"): [],
    ("model.bias=false", "model.bias=true"): [],
    ("model.branch_norm=true", "model.branch_norm=false"): [],
    ("model.embedding_norm=true", "model.embedding_norm=false"): [],
    ("model.share_embeddings=target", "model.share_embeddings=all"): [],
    ("model.embedding_scale=3.0", "model.embedding_scale=null"): [],
    ("attention.bias=false", "attention.bias=true"): [],
    ("attention.head_dim=7", "attention.head_dim=null"): [],
    ("position.first=5", "position.first=0"): [],
    ("attention.num_kv_heads=2", "attention.num_kv_heads=4"): [],
    ("model.norm=layernorm", "model.norm=rmsnorm"): ["position=rope", "model.dim=24"],
    ("model.activation=relu", "model.activation=geglu_tanh"): GEMMA,
    ("model.branch_norm=false", "model.branch_norm=true"): GEMMA,
    ("position.scaling=2.0", "position.scaling=1.0"): GEMMA,
    ("position.endpoint=true", "position.endpoint=false"): ["model.pre_norm=false"],
    ("model.embedding_norm=false", "model.embedding_norm=true"): ["position=learned"],
    ("model.pre_norm=false", "model.pre_norm=true"): T5,
    ("model.bias=true", "model.bias=false"): ["position=t5", "model.norm=rmsnorm"],
    ("model.activation=geglu", "model.activation=geglu_tanh"): T5,
    ("model.embedding_scale=2.0", "model.embedding_scale=null"): T5,
    ("model.output_softcap=30.0", "model.output_softcap=null"): ["model.pre_norm=false"],
}
OTHERS = {
    "linear biases": (
        ["position=alibi"],
        "train with position=sinusoidal, learned, t5 or rope",
    ),
    "a window": (["attention=sliding_window"], "train with attention=mha"),
    "copying": (["model.copy=true"], "train with model.copy=false"),
    "two widths": (
        ["model.encoder_dim=16", "model.share_embeddings=target"],
        "train with model.encoder_dim=null",
    ),
    "an output bias": (
        [*T5, "model.output_bias=true"],
        "train with model.output_bias=false, or an imported model with freeze=[embeddings,head]",
    ),
    "no encoder": (["model.encoder_layers=0"], "train with model.encoder_layers=1"),
    "fewer heads": (["+attention.kept_heads=[0,1]"], "export the original bundle"),
}


@pytest.mark.parametrize("case", [*SETTINGS, *OTHERS], ids=str)
def test_what_no_family_has_is_refused_with_the_override(case, plain, tmp_path):
    if isinstance(case, tuple):
        overrides, texts = [*SETTINGS[case], case[0]], (f" {case[0]}", f" {case[1]}")
    else:
        overrides, texts = OTHERS[case][0], ("", OTHERS[case][1])
    start = [] if "position=" in str(overrides) else ["position=sinusoidal"]
    _, model = built(plain.tokenizer, *start, *overrides)
    with pytest.raises(UserError) as caught:
        write_huggingface(replace(plain, model=model), tmp_path)
    wrong, override = str(caught.value).split("; ")
    assert texts[0] in wrong
    assert texts[1] in override
    assert [*tmp_path.iterdir()] == []


def test_all_settings_are_named_at_once(bundle, capfd):
    path = bundle("position=rope", "model.dim=24")
    said = refusal(capfd, "export", f"bundle={path}", "to=huggingface", "output=DIR")
    assert said == (
        "transformers has rotary positions only in T5Gemma, which has no model.norm=layernorm, "
        "model.bias=true, model.activation=relu, model.branch_norm=false, attention.bias=true; "
        "train with position=sinusoidal (Pegasus), or with model.norm=rmsnorm model.bias=false "
        "model.activation=geglu_tanh model.branch_norm=true attention.bias=false"
    )


def test_an_imported_model_with_pooled_heads_or_rounded_weights_is_refused(tmp_path, capfd):
    foreign_models.save("marian", tmp_path)
    succeed(capfd, "import", f"source={tmp_path}", f"output={tmp_path}/model")
    words = "heads=gqa", "num_kv_heads=2", "scores=false", f"output={tmp_path}/pooled"
    succeed(capfd, "convert", f"bundle={tmp_path}/model", *words)
    words = "quantize=int8", "scores=false", f"output={tmp_path}/int8"
    succeed(capfd, "convert", f"bundle={tmp_path}/model", *words)
    for name, text in (
        ("pooled", "no attention.num_kv_heads=2; train with attention.num_kv_heads=4"),
        ("int8", "is already quantized; export the original bundle"),
    ):
        words = f"bundle={tmp_path}/{name}", "to=huggingface", f"output={tmp_path}/new"
        assert text in refusal(capfd, "export", *words)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"truecaser": Truecaser.learnt(["Ann met Ben ."])},
            "transformers cannot restore case; train with tokenizer.truecase=false",
        ),
        ({"begin": Begin(("a",), ("b", "c"))}, "forces one piece to begin outputs, got 2"),
    ],
)
def test_a_tokenizer_that_cannot_go_out_is_refused(options, text, bundle, tmp_path, capfd):
    both = [*lines("en"), *lines("de")]
    pieces_of(tmp_path / "model", both, 300, pad_id=0, unk_id=1, bos_id=2, eos_id=3)
    tokenizer = Tokenizer((tmp_path / "model").read_bytes(), **options)
    path = bundle("position=sinusoidal", tokenizer=tokenizer)
    said = refusal(capfd, "export", f"bundle={path}", "to=huggingface", f"output={tmp_path}/new")
    assert text in said
    assert not (tmp_path / "new").exists()


def test_symbols_and_line_breaks_that_transformers_would_change_are_refused(
    bundle, tmp_path, capfd
):
    both, marks = [*lines("en"), *lines("de")], {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
    for kind, symbol, text in (
        ("bpe", "<2de>", "a symbol of a BPE vocabulary; train with tokenizer=unigram"),
        ("unigram", "<DE>", "normalize '<DE>', a symbol; train with tokenizer.normalization="),
        ("unigram", "\n", "set line breaks apart; train with tokenizer.line_breaks=false"),
    ):
        pieces_of(tmp_path / "model", both, 300, kind, user_defined_symbols=[symbol], **marks)
        path = bundle("position=sinusoidal", tokenizer=Tokenizer((tmp_path / "model").read_bytes()))
        words = f"bundle={path}", "to=huggingface", f"output={tmp_path}/new"
        assert text in refusal(capfd, "export", *words)


def test_a_setting_of_another_target_is_refused(sinusoidal, capfd):
    words = f"bundle={sinusoidal}", "to=huggingface", "output=DIR", "quantize=int8"
    said = refusal(capfd, "export", *words)
    assert said == "to=huggingface does not support quantize; remove quantize=int8"
