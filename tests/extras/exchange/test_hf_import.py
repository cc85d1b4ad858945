"""Models of Hugging Face as bundles: what they say is what transformers says."""

import itertools
import json
import re
import shutil
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file, save_file

import seqattn
from seqattn.errors import UserError
from seqattn.extras.exchange.families import family
from seqattn.extras.exchange.hf_folder import HFFolder
from seqattn.extras.exchange.hf_generation import recommended_search
from seqattn.extras.exchange.hf_import import imported_bundle, read_model
from seqattn.extras.exchange.parity import TOLERANCE, load_hf
from seqattn.generation import GreedySearch, LengthLimit
from seqattn.generation.generator import Generator
from seqattn.settings.choices import choices
from seqattn.settings.nodes import build
from tests.cli.small import refusal, run, succeed
from tests.extras.exchange.foreign_models import FAMILIES, save

transformers = pytest.importorskip("transformers")
AutoTokenizer, GenerationConfig = transformers.AutoTokenizer, transformers.GenerationConfig


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    return path, *save(request.param, path)


def test_log_probabilities_and_greedy_outputs_are_those_of_transformers(folder):
    path, theirs, _ = folder
    imported = read_model(HFFolder(path))
    assert imported.comparison.difference < TOLERANCE
    own, rows = imported.tokenizer.tokenizer, imported.tokenizer.target_rows
    lines = ["The dog sees the cat.", "A man", "He buys these books today."]
    search = GreedySearch(limit=LengthLimit(ratio=0.0, extra=12))
    for source in own.encode_source(lines):
        [[ours]] = Generator(imported.model, search).generate([source])
        ids = torch.tensor([[imported.tokenizer.rows[one] for one in source]])
        expected = theirs.generate(
            ids, num_beams=1, max_new_tokens=12, do_sample=False, forced_eos_token_id=None,
            forced_bos_token_id=None, bad_words_ids=[[theirs.config.pad_token_id]],
        )  # fmt: skip
        said = [one for one in expected[0, 1:].tolist() if one != theirs.config.eos_token_id]
        assert [rows[one] for one in ours.ids] == said


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["pegasus", "marian", "bart"])
def test_checkpoints_of_fewer_bits_keep_their_rounded_sinusoids(name, kind, tmp_path):
    theirs, _ = save(name, tmp_path)
    theirs.to(kind).save_pretrained(tmp_path)
    imported = read_model(HFFolder(tmp_path))
    assert imported.comparison.difference < TOLERANCE


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    """A folder, which tests must not change."""
    path = tmp_path_factory.mktemp("marian") / "opus"
    path.mkdir()
    save("marian", path)
    return path


@pytest.fixture
def copy(marian, tmp_path):
    """A copy of the folder, whose config.json can be changed by keywords."""
    path = tmp_path / "copy"
    shutil.copytree(marian, path)

    def change(**settings):
        file = path / "config.json"
        config = json.loads(file.read_text("utf-8"))
        config |= settings
        kept = {name: value for name, value in config.items() if value is not None}
        file.write_text(json.dumps(kept))
        return path

    return change


def test_a_folder_becomes_a_bundle_that_generates_and_trains(marian, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("SEQATTN_CACHE", str(tmp_path / "cache"))
    words = f"source={marian}", f"output={tmp_path / 'new'}"
    out = succeed(capfd, "import", *words)
    assert re.search(r"checked .* 9 pairs: no log-probability differs .* more than \de-0[5-9]", out)
    assert (
        run(capfd, "import", *words)[2] == f"output={tmp_path / 'new'} is complete, nothing to do\n"
    )
    said = succeed(capfd, "generate", f"bundle={tmp_path / 'new'}", "text=A dog")
    assert said == succeed(capfd, "generate", f"bundle={marian}", "text=A dog")
    card = (tmp_path / "new/README.md").read_text()
    assert "A `marian` of Hugging Face, imported by seqattn " in card
    assert "tags: [seqattn, marian]" in card
    assert not re.search("trained with|Trained on|data=NAME|a task|max_length", card)
    small = "task.validation.sentences=2", "task.final.sentences=2", "trainer.max_steps=1"
    words = f"init_from={marian}", f"run_dir={tmp_path / 'run'}", "position=learned"
    succeed(capfd, "train", *words, *small)
    pooled = f"bundle={tmp_path / 'run'}", f"output={tmp_path / 'pooled'}"
    succeed(capfd, "convert", *pooled, "heads=mqa", "scores=false")


def test_weights_in_several_files_are_the_same_model(marian, tmp_path):
    whole = read_model(HFFolder(marian)).model.state_dict()
    shutil.copytree(marian, tmp_path / "parts")
    (tmp_path / "parts/model.safetensors").unlink()
    load_hf(marian).save_pretrained(tmp_path / "parts", max_shard_size="60KB")
    assert len([*(tmp_path / "parts").glob("*.safetensors")]) > 2
    parts = read_model(HFFolder(tmp_path / "parts")).model.state_dict()
    assert all(torch.equal(parts[name], tensor) for name, tensor in whole.items())


def test_without_transformers_names_and_shapes_are_checked(marian, tmp_path, capfd, monkeypatch):
    def version(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("seqattn.extras.exchange.parity.version", version)
    out = succeed(capfd, "import", f"source={marian}", f"output={tmp_path / 'new'}")
    assert "names and shapes; install transformers to compare log-probabilities" in out


REFUSED = {
    "another family": ({"model_type": "bert"}, "has model_type='bert'; supported are marian, "),
    "an activation": ({"activation_function": "tanh"}, "activation_function='tanh'; only relu, "),
    "sizes of words": ({"d_model": "32"}, "has d_model='32', which must be a number from 1"),
    "a width too few": (
        {"d_model": 16},
        ", 32), but the model needs (",
    ),
    "layers too many": ({"encoder_layers": 3}, "the weight model.encoder.layers.2."),
    "layers too few": ({"encoder_layers": 1}, "the weight model.encoder.layers.1."),
    "heads": ({"encoder_attention_heads": 5}, "num_heads must divide model.dim (32), got 5"),
    "a table of another model": ({"vocab_size": 900}, "the tokenizer needs 900; it belongs to "),
    "other halves": ({"decoder_ffn_dim": 20}, "has decoder_ffn_dim=20; only 24 is supported"),
    "a missing key": ({"d_model": None}, "lacks d_model"),
    "a list of activations": ({"activation_function": ["relu"]}, "which must be a text"),
    "a word for true": ({"scale_embedding": "no"}, "which must be true or false"),
    "layers without end": ({"encoder_layers": 10**6}, "a number from 1 to 1,000"),
    "positions without end": ({"max_position_embeddings": 10**8}, "a number from 8 to 100,000"),
    "layers under another name": ({"num_hidden_layers": 10**5}, "; only 2 is supported"),
    "another vocabulary without end": ({"decoder_vocab_size": 10**9}, "of 1000000000 is too large"),
    "a text for a share": (
        {"encoder_layerdrop": "x"},
        # the reason of transformers, which is in its second line
        "Validation error for field 'encoder_layerdrop': TypeError: ",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_expressed_is_refused_in_one_line(case, copy, tmp_path, capfd):
    settings, text = REFUSED[case]
    path = copy(**settings)
    said = refusal(capfd, "import", f"source={path}", f"output={tmp_path / 'new'}")
    assert text in said
    assert "copy" in said  # the folder
    assert not (tmp_path / "new").exists()


UNREAD = {
    "num_labels": 10**9,
    "id2label": {str(number): "x" for number in range(1000)},
    "quantization_config": {"quant_method": "gptq", "bits": 4},
    "torch_dtype": "float1",
    "dtype": "../x",
    "attn_implementation": "flash_attention_9",
    "_attn_implementation_internal": "x",
    "chunk_size_feed_forward": 10**9,
    "pruned_heads": {"0": [0]},
    "max_length": 10**9,
    "problem_type": 5,
    "gradient_checkpointing": True,
    "is_encoder_decoder": None,
}


def test_settings_that_nothing_needs_do_not_reach_transformers(copy):
    assert read_model(HFFolder(copy(**UNREAD))).comparison.difference < TOLERANCE


def test_the_tokenizer_gets_no_settings_that_transformers_would_fill_tables_by(copy):
    loads = mock.patch.object(AutoTokenizer, "from_pretrained", wraps=AutoTokenizer.from_pretrained)
    with loads as load:
        read_model(HFFolder(copy(num_labels=5)))
    assert load.call_args.kwargs["config"].num_labels == 2


def test_a_weight_of_another_shape_than_transformers_needs_is_named(copy):
    path = copy()
    tensors = load_file(path / "model.safetensors")
    tensors["model.encoder.embed_positions.weight"] = torch.zeros(7, 5)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    said = r"model.encoder.embed_positions.weight is \(7, 5\), but must be \(90, 32\)\)$"
    with pytest.raises(UserError, match=said):
        read_model(HFFolder(path))


@pytest.mark.parametrize("transformers", [True, False])
@pytest.mark.parametrize("shape", [(), (1,), (2, 693), (694,), (694, 1), (1, 1, 694), (1, 0)])
def test_an_output_bias_of_another_shape_is_refused(shape, transformers, copy, monkeypatch):
    def version(name):
        raise PackageNotFoundError(name)

    if not transformers:
        monkeypatch.setattr("seqattn.extras.exchange.parity.version", version)
    path = copy()
    tensors = load_file(path / "model.safetensors")
    tensors["final_logits_bias"] = torch.zeros(shape)
    save_file(tensors, path / "model.safetensors")
    said = f"final_logits_bias is {shape}, but the pieces need (1, 694)"
    with pytest.raises(UserError, match=re.escape(said)):
        read_model(HFFolder(path))


SIDE = {
    "hidden_size": 16, "intermediate_size": 16, "hidden_activation": "gelu_pytorch_tanh",
    "head_dim": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
    "query_pre_attn_scalar": 8, "rms_norm_eps": 1e-6, "rope_parameters": {"rope_theta": 500},
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, None),
        *(
            ({"rope_parameters": value}, "which must be an object")
            for value in ([1], "x", 5, True, [["rope_theta", 1]])
        ),
        ({"rope_parameters": None}, "lacks rope_parameters"),
        ({"rope_parameters": {}}, "lacks rope_theta"),
        *(
            ({"rope_parameters": {"rope_theta": value}}, f"has rope_theta={value!r}, which must be")
            for value in ("x", [], True, 0, -1, float("inf"), float("nan"), 10**400)
        ),
        ({"num_hidden_layers": 65_536}, "a number from 1 to 1,000"),
    ],
    ids=lambda one: str(one)[:60],
)
def test_rotary_settings_of_any_form_are_read_or_refused(changed, reason):
    config = {"model_type": "t5gemma", "encoder": SIDE | changed, "decoder": SIDE | changed}
    folder = SimpleNamespace(path=Path("m"), config=config, output_table=lambda tied: tied)
    if reason is None:
        assert family(folder).nodes["position"]["base"] == 500.0
        return
    with pytest.raises(UserError, match=re.escape(reason[:30])) as caught:
        family(folder)
    assert len(str(caught.value)) < 250


def test_a_setting_that_nobody_knows_shows_in_the_log_probabilities(copy, tmp_path, capfd):
    """An activation that is not what the weights were trained with is no difference here; another
    computation is."""
    path = copy()
    with mock.patch("seqattn.extras.exchange.families.ACTIVATIONS", {"swish": "relu"}):
        said = refusal(capfd, "import", f"source={path}", f"output={tmp_path / 'new'}")
    assert "log-probabilities differ from those of transformers by" in said
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("settings", [{"num_beams": "x"}, {"num_beams": 4, "length_penalty": []}])
def test_a_search_that_cannot_be_is_refused_before_the_bundle(settings, copy, tmp_path, capfd):
    path = copy()
    (path / "generation_config.json").write_text(json.dumps(settings))
    said = refusal(capfd, "import", f"source={path}", f"output={tmp_path / 'new'}")
    assert "generation_config.json has a setting that is not supported: generation." in said
    assert not (tmp_path / "new").exists()


def test_the_search_and_the_name_are_those_of_the_folder(marian, tmp_path, monkeypatch):
    monkeypatch.setenv("SEQATTN_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "${now} it's"
    shutil.copytree(marian, path)
    settings = {"num_beams": 3, "length_penalty": 0.0, "min_length": 2, "no_repeat_ngram_size": 2}
    (path / "generation_config.json").write_text(json.dumps(settings))
    new = imported_bundle(str(path))
    search = seqattn.load(new).search()
    assert (search.beam_size, search.length_penalty, search.early_stopping) == (3, 0.0, False)
    assert search.limit.minimum == 1  # without the mark that begins an output
    assert imported_bundle(str(path)) == new
    vocabulary = path / "vocab.json"
    vocabulary.write_text(vocabulary.read_text() + " ")
    assert imported_bundle(str(path)) != new


SEARCHES = {
    "lengths": {"num_beams": 4, "max_length": 9, "min_length": 6},
    "new tokens": {"num_beams": 3, "max_new_tokens": 7, "min_new_tokens": 4},
    "a penalty": {"num_beams": 4, "max_length": 12, "repetition_penalty": 1.8},
    "n-grams of the source": {"num_beams": 2, "max_length": 12, "encoder_no_repeat_ngram_size": 1},
    "words": {"num_beams": 2, "max_length": 12, "bad_words_ids": [[7, 9], [11]]},
    "tokens": {"max_length": 12, "suppress_tokens": [*range(20, 300)]},
    "a forced end": {"num_beams": 3, "max_length": 5, "forced_eos_token_id": 1},
    "all": {
        "num_beams": 4, "max_length": 14, "min_length": 5, "repetition_penalty": 1.3,
        "no_repeat_ngram_size": 2, "encoder_no_repeat_ngram_size": 2, "bad_words_ids": [[40]],
    },
}  # fmt: skip


def searches():
    """Test parameters: each search for one family, two for the others."""
    for kind, case in itertools.product(FAMILIES, SEARCHES):
        is_tried = kind == "marian" or case in ("a forced end", "all")
        marks = () if is_tried else pytest.mark.exhaustive
        yield pytest.param(kind, case, marks=marks)


@pytest.mark.parametrize(("folder", "case"), searches(), indirect=["folder"])
def test_the_recommended_search_finds_what_transformers_finds(case, folder):
    path, theirs, _ = folder
    end, pad = theirs.config.eos_token_id, theirs.config.pad_token_id
    settings = {
        "early_stopping": True,
        **SEARCHES[case],
        "decoder_start_token_id": theirs.config.decoder_start_token_id,
        "eos_token_id": end,
        "pad_token_id": pad,
    }
    settings["bad_words_ids"] = [[pad], *settings.get("bad_words_ids", [])]
    if "forced_eos_token_id" in settings:
        settings["forced_eos_token_id"] = end
    hf = HFFolder(path)
    hf.generation = settings
    imported = read_model(hf)
    rows = imported.tokenizer.target_rows
    found = recommended_search(choices("generation")["beam"], hf, rows)
    assert str(found) == ""
    search = Generator(imported.model, build(found.node))
    lines = ["The dog sees the cat.", "A man", "He buys these books today."]
    for source in imported.tokenizer.tokenizer.encode_source(lines):
        [[ours]] = search.generate([source])
        ids = torch.tensor([[imported.tokenizer.rows[one] for one in source]])
        with mock.patch.object(theirs, "generation_config", GenerationConfig(**settings)):
            [expected] = theirs.generate(ids).tolist()
        said = [one for one in expected[1:] if one not in (end, pad)]
        assert [rows[one] for one in ours.ids] == said


def test_what_a_search_lacks_is_named(copy, tmp_path, capfd):
    path = copy()
    settings = {
        "num_beams": 2, "do_sample": True, "typical_p": 0.5, "diversity_penalty": 0.5,
        "num_beam_groups": 1, "eos_token_id": [0, 5], "pad_token_id": 693, "wonder": 3,
        "decoder_start_token_id": 693, "output_scores": True, "bad_words_ids": [[10**6], [693]],
        "min_p": 0.0, "repetition_penalty": 1.0,
    }  # fmt: skip
    (path / "generation_config.json").write_text(json.dumps(settings))
    out = succeed(capfd, "import", f"source={path}", f"output={tmp_path / 'new'}")
    assert (
        "outputs may differ from transformers' without bad_words_ids [1000000], typical_p=0.5, "
        "diversity_penalty=0.5, wonder=3, eos_token_id=[0, 5] (only the first), do_sample=True"
    ) in " ".join(out.split())
    assert seqattn.load(tmp_path / "new").search().processors == {}


def test_a_search_that_samples_and_the_limits_of_config_json_are_carried(copy, tmp_path, capfd):
    path = copy(do_sample=True, temperature=0.5, top_k=7, max_length=20, forced_eos_token_id=0)
    (path / "generation_config.json").unlink()
    succeed(capfd, "import", f"source={path}", f"output={tmp_path / 'new'}")
    search = seqattn.load(tmp_path / "new").search()
    assert (search.temperature, search.top_k, search.top_p) == (0.5, 7, 1.0)
    assert (search.limit.ratio, search.limit.extra) == (0.0, 18)
    succeed(capfd, "import", f"source={path}", f"output={tmp_path / 'b'}", "generation=greedy")
    assert isinstance(seqattn.load(tmp_path / "b").search(), GreedySearch)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_length": value} for value in ("x", -1, 0, 2.5, True, [3], 10**30)
    ] + [
        {"bad_words_ids": value} for value in ("x", 5, [5], [["x"]][0], {"a": 1})
    ] + [
        {"suppress_tokens": [[1]]}, {"repetition_penalty": -1}, {"repetition_penalty": "x"},
        {"encoder_no_repeat_ngram_size": "x"}, {"do_sample": "yes"}, {"min_length": 10**6},
        {"do_sample": True, "temperature": 0}, {"do_sample": True, "top_p": 3},
    ],
    ids=str,
)  # fmt: skip
def test_damaged_settings_of_a_search_are_refused(settings, marian):
    hf = HFFolder(marian)
    hf.generation = settings
    with pytest.raises(UserError, match=r"generation_config\.json has "):
        recommended_search(choices("generation")["beam"], hf, [693, 1, 693, 0, *range(2, 693)])


def test_a_weight_without_axes_is_refused(copy, tmp_path, capfd):
    path = copy()
    tensors = load_file(path / "model.safetensors")
    tensors["model.encoder.layers.0.fc1.bias"] = torch.tensor(1.0)
    save_file(tensors, path / "model.safetensors")
    said = refusal(capfd, "import", f"source={path}", f"output={tmp_path / 'new'}")
    assert "model.encoder.layers.0.fc1.bias is (0,), but the model needs (24,)" in said


def damage(path, case):
    weights = path / "model.safetensors"
    if case == "pickled weights":
        weights.rename(path / "pytorch_model.bin")
    elif case == "no weights":
        weights.unlink()
    elif case == "cut weights":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif case in ("whole numbers", "a missing output"):
        tensors = load_file(weights)
        name = next(name for name in tensors if name.endswith("fc1.weight"))
        if case == "whole numbers":
            save_file({**tensors, name: tensors[name].int()}, weights)
        else:
            config = json.loads((path / "config.json").read_text())
            config["tie_word_embeddings"] = False
            (path / "config.json").write_text(json.dumps(config))
    elif case == "no configuration":
        (path / "config.json").unlink()
    elif case == "a path in an index":
        weights.unlink()
        index = {"weight_map": {"a": "../secret.safetensors"}}
        (path / "model.safetensors.index.json").write_text(json.dumps(index))
    else:
        (path / "config.json").write_text("[" * 100_000)


@pytest.mark.parametrize(
    ("case", "text"),
    [
        (
            "pickled weights",
            "has only pickled weights (*.bin), which can run code and are not read",
        ),
        ("no weights", "has no model.safetensors; download it completely"),
        ("cut weights", "cannot read "),
        ("no configuration", "is not a Hugging Face model: config.json is missing"),
        ("whole numbers", "fc1.weight is int32; give weights that are not quantized"),
        ("a missing output", "lacks the weight lm_head.weight, as tie_word_embeddings is false"),
        ("a path in an index", "must map weights to files of its folder"),
        ("a deep configuration", "config.json"),
    ],
)
def test_damaged_folders_are_refused_in_one_line(case, text, copy, tmp_path, capfd):
    path = copy()
    damage(path, case)
    assert text in refusal(capfd, "import", f"source={path}", f"output={tmp_path / 'new'}")
    assert not (tmp_path / "new").exists()


LAYOUTS = {
    "a tokenizer that changes letters": ("t5", {}, {"normalizer": {"type": "Lowercase"}}),
    "a code behind a text, by its class": ("mbart50", {"tokenizer_class": None}, {}),
    "another class": ("t5", {"tokenizer_class": "BertTokenizer"}, {}),
}


@pytest.mark.parametrize("case", LAYOUTS)
def test_a_tokenizer_that_reads_otherwise_in_transformers_is_refused(case, tmp_path):
    name, config, changes = LAYOUTS[case]
    save(name, tmp_path)
    for file, changed in (("tokenizer_config.json", config), ("tokenizer.json", changes)):
        content = json.loads((tmp_path / file).read_text()) | changed
        kept = {key: value for key, value in content.items() if value is not None}
        (tmp_path / file).write_text(json.dumps(kept))
    with pytest.raises(UserError, match="other ids; it has a tokenizer that is not supported"):
        read_model(HFFolder(tmp_path))


def test_a_tokenizer_that_transformers_cannot_load_is_named(copy):
    path = copy()
    file = path / "tokenizer_config.json"
    config = json.loads(file.read_text()) | {"tokenizer_class": "PegasusTokenizer"}
    file.write_text(json.dumps(config))
    said = str(read_model(HFFolder(path)).comparison)
    assert "nats; ids of texts not compared: transformers cannot load the tokenizer (" in said


def test_languages_that_are_chosen_are_compared_without_them(tmp_path):
    save("nllb", tmp_path)
    imported = read_model(HFFolder(tmp_path), ["fra_Latn"], ["ita_Latn"])
    assert imported.comparison.unknown == ""


def test_code_of_a_folder_is_never_run(copy, tmp_path, capfd):
    path = copy(auto_map={"AutoConfig": "evil.Config", "AutoModelForSeq2SeqLM": "evil.Model"})
    (path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    succeed(capfd, "import", f"source={path}", f"output={tmp_path / 'new'}")
    assert not (tmp_path / "ran").exists()


def test_a_name_of_the_hub_that_cannot_be_reached_is_refused(tmp_path, capfd, monkeypatch):
    def unreachable(name, **options):
        raise OSError(f"no route to {name}")

    monkeypatch.setattr("huggingface_hub.snapshot_download", unreachable)
    for name in ("org/model", "hf://org/model"):
        said = refusal(capfd, "import", f"source={name}", f"output={tmp_path / 'new'}")
        assert said == (
            f"source={name} is no folder, and cannot be downloaded (no route to org/model)"
        )
    assert "no route to org/model" in refusal(capfd, "train", "init_from=hf://org/model")
