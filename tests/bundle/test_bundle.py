"""Bundles: written whole or not at all, read without running anything, used as in training."""

import inspect
import os
import pickle
import pydoc
import re
import stat
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from safetensors.torch import load_file

import seqattn
from seqattn.analysis.word_alignment import AlignmentReading
from seqattn.bundle import files
from seqattn.bundle.files import read_config, store, write_bundle
from seqattn.data.base import Texts
from seqattn.data.foreign_models import ForeignModel
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.tokenizer_side import Begin
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.errors import UserError
from seqattn.generation import BeamSearch, Generator, GreedySearch, LengthLimit, Sampling
from seqattn.generation.ensemble import Ensemble
from seqattn.generation.forced_decoding import forced_log_probabilities
from seqattn.generation.processors import ForcedPrefix, NoRepeatNgram
from seqattn.settings.choices import choices
from seqattn.tokens import EOS, RESERVED
from tests.absent import printed_without
from tests.bundle.conftest import configuration, corpus, untrained
from tests.nodes import node as as_node

TEXTS = ["a dog sees the cat", "", "two birds"]


@pytest.fixture(scope="module")
def loaded(bundle):
    return seqattn.load(bundle)


def copied(loaded, path, **changed):
    write_bundle(path, {**loaded.config, **changed}, loaded.model, loaded.tokenizer, loaded.scores)
    return path


def test_a_bundle_written_and_loaded_is_the_same(loaded, tmp_path):
    again = seqattn.load(copied(loaded, tmp_path / "copy"))
    source = torch.tensor(loaded.tokenizer.encode_source(TEXTS[:1]))
    target = torch.tensor([[2, *loaded.tokenizer.encode_target(["the tree"])[0]]])
    assert torch.equal(again.model(source, target), loaded.model(source, target))
    assert again.generate(TEXTS) == loaded.generate(TEXTS)
    assert again.config == loaded.config
    assert again.scores == loaded.scores == {"val/loss": 3.5, "val/bleu": {"value": 1.0}}
    assert again.tokenizer.fingerprint == loaded.tokenizer.fingerprint
    assert not again.model.training
    assert [file.name for file in tmp_path.iterdir()] == ["copy"]


def test_one_text_gives_one_text_and_an_empty_one_an_empty_one(loaded):
    outputs = loaded.generate(TEXTS)
    assert outputs[1] == ""
    assert loaded.generate(TEXTS[0]) == outputs[0]
    assert isinstance(outputs[0], str)


class Column(list):
    """Texts under numbers of their own, as a column of some rows of a table has them."""

    def __getitem__(self, number):
        return super().__getitem__(-number)


def test_an_output_has_its_end_where_the_model_has_a_position_for_it(loaded):
    short = replace(loaded, model=SimpleNamespace(max_target_length=3))
    assert short.with_end_mark([4, 5]) == [4, 5, EOS]
    assert short.with_end_mark([4, 5, 6]) == [4, 5, 6]
    assert loaded.with_end_mark([4, 5, 6]) == [4, 5, 6, EOS]


def test_tokens_are_counted_with_the_ends_of_outputs(loaded):
    made = loaded.outputs(Texts(TEXTS, [], [], None), "greedy")
    found = [best.ids for (best,) in loaded.hypotheses(TEXTS, "greedy")]
    assert made.tokens == sum(map(len, found)) + len(TEXTS)


def test_texts_may_come_one_after_the_other_or_under_other_numbers(loaded):
    outputs = loaded.generate(TEXTS)
    assert loaded.generate(text for text in TEXTS) == outputs
    assert loaded.generate(Column(TEXTS)) == outputs


@pytest.mark.parametrize(("texts", "shown"), [(["a", None], "2 .*None"), (b"a dog", "1 .*97")])
def test_what_is_no_text_is_named(loaded, texts, shown):
    with pytest.raises(UserError, match=f"input {shown}"):
        loaded.generate(texts)


def test_the_document_names_choices_and_no_python_path(bundle, loaded):
    text = (bundle / "config.yaml").read_text()
    assert "seqattn." not in text
    document = yaml.safe_load(text)
    assert document["format"] == "seqattn bundle 2"
    assert document["attention"]["kernel"] == {"_type_": "SoftmaxKernel", "backend": "auto"}
    path = "seqattn.attention.kernels.softmax.SoftmaxKernel"
    kernel = {"_target_": path, "_partial_": True, "backend": "auto"}
    assert loaded.config["attention"]["kernel"] == kernel


def test_a_bundle_keeps_what_using_it_needs_and_no_more(loaded, tmp_path):
    more = {"logger": {"csv": 1}, "cache_dir": "/home/me/cache"}
    path = copied(loaded, tmp_path / "copy", run_dir="/home/me/run", **more)
    assert "/home/me" not in (path / "config.yaml").read_text()
    assert not read_config(path).keys() & {"logger", "cache_dir", "run_dir"}


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        (
            {"name": "parallel_text", "root": "data/mine", "source_suffix": "en", "test": "t"},
            {"root": "???", "source_suffix": "en", "test": "t"},
        ),
        (
            {"name": "table", "dataset": "/home/me/set", "files": {"train": "a", "val": ["b"]}},
            {"dataset": "???", "files": {"train": None, "val": None}},
        ),
        ({"name": "table", "dataset": "wmt/wmt16"}, {"dataset": "wmt/wmt16"}),
    ],
)
def test_a_bundle_keeps_what_its_data_is_and_not_where(loaded, tmp_path, data, kept):
    node = {**choices("data")[data.pop("name")], **data}
    found = read_config(copied(loaded, tmp_path / "copy", data=node))["data"]
    assert {key: found[key] for key in kept} == kept


def test_the_card_says_what_the_bundle_is(bundle, loaded, tmp_path):
    card = (bundle / "README.md").read_text()
    _, head, page = card.split("---\n", 2)
    assert yaml.safe_load(head) == {"license": "unknown", "tags": ["seqattn", "translation"]}
    for part in ("Data", "Scores", "Settings", "Training", "Limits"):
        assert f"\n## {part}\n" in page
    for line in ("`data=demo_translation`", "| val/loss | 3.5 |  |", "| val/bleu | 1 |  |"):
        assert f"\n{line}\n" in page
    for line in ("- `attention=mha`", "- `seed=1`; all other settings", "Not recorded."):
        assert f"\n{line}" in page
    scores = {"val/BLEU": 1.0, "val/BLEU signature": "nrefs:1|case:mixed"}
    files.write_bundle(
        tmp_path / "copy", loaded.config, loaded.model, loaded.tokenizer, scores, {"time": "2 min"}
    )
    page = (tmp_path / "copy" / "README.md").read_text()
    assert "\n| val/BLEU | 1 | nrefs:1\\|case:mixed |\n" in page
    assert "\n- time: 2 min\n" in page


def test_nodes_without_defaults_make_the_same_model(loaded, tmp_path):
    from seqattn.attention.heads import MultiHeadAttention
    from seqattn.attention.kernels.softmax import SoftmaxKernel
    from seqattn.positions import SinusoidalPosition

    heads = partial(MultiHeadAttention, num_heads=4, num_kv_heads=4, kernel=SoftmaxKernel)
    made = as_node({"attention": heads, "position": SinusoidalPosition})
    again = seqattn.load(copied(loaded, tmp_path / "copy", **made))
    assert again.generate(TEXTS) == loaded.generate(TEXTS)


def test_a_search_keeps_a_list_of_processors(loaded, tmp_path):
    search = as_node(BeamSearch(processors=[NoRepeatNgram(2)]))
    again = seqattn.load(copied(loaded, tmp_path / "copy", generation=search))
    assert again.search().processors == {"0": NoRepeatNgram(2)}


@pytest.mark.parametrize(
    ("node", "line"),
    [
        ({"layer": -1}, "alignment.layer must be a whole number from 0 to 1,000 or null, got -1"),
        ({"shift": True}, "unknown key alignment.shift; did you mean alignment.shifted?"),
        ({"layer": 7}, "alignment.layer must be below 1, got 7"),
        ("abc", "alignment in DIR/config.yaml is damaged; remove it"),
        (5, "alignment in DIR/config.yaml is damaged; remove it"),
    ],
)
def test_a_reading_that_cannot_be_is_refused(loaded, tmp_path, node, line):
    other = seqattn.load(copied(loaded, tmp_path / "copy", alignment=node))
    with pytest.raises(UserError, match=re.escape(line.replace("DIR", str(other.path)))):
        other.align("a dog", "two birds")


def test_a_search_of_a_node_is_used_in_place_of_the_bundles_own(loaded):
    node = {**loaded.config["generation"], "n_best": 3, "batch_size": 1}
    assert loaded.generator(node).search.batch_size == 1
    assert len(loaded.hypotheses(TEXTS[:1], node)[0]) == 3
    with pytest.raises(UserError, match=r"generation\.batch_size must be"):
        loaded.generator({**node, "batch_size": -1})


def test_a_search_is_chosen_by_name_as_an_object_and_by_its_settings(loaded):
    greedy = loaded.generate(TEXTS, "greedy")
    assert greedy == loaded.generate(TEXTS, GreedySearch()) == loaded.generate(TEXTS, beam_size=1)
    assert loaded.search(BeamSearch(n_best=2)) == BeamSearch(n_best=2)
    with pytest.raises(
        UserError, match="cannot change settings of a BeamSearch; pass a name such as beam"
    ):
        loaded.search(BeamSearch(n_best=2), beam_size=3)
    limit = LengthLimit(ratio=2.0, minimum=3)
    [longer] = {
        loaded.search("greedy", limit=given).limit
        for given in (limit, {"ratio": 2.0, "minimum": 3})
    }
    assert longer == limit
    drawn = loaded.search("sampling", top_p=0.5, batch_size=2)
    assert drawn == Sampling(top_p=0.5, batch_size=2, processors={})
    assert len(loaded.hypotheses(TEXTS[0], n_best=3)[0]) == 3  # a string is one text


@pytest.mark.parametrize(
    ("generation", "settings", "text"),
    [
        ("gredy", {}, "unknown choice generation=gredy; did you mean greedy?"),
        ("greedy", {"beam_size": 2}, "unknown key generation.beam_size"),
        (None, {"beam_siz": 2}, "unknown key generation.beam_siz; did you mean generation.b"),
        (None, {"limit": {"minimun": 1}}, "unknown key generation.limit.minimun; did you me"),
        (None, {"limit": 3}, "generation.limit must be a config node of a matching class, got 3"),
        (None, {"beam_size": 0}, "generation.beam_size must be a whole number from 1 to 1,000"),
        ("spans", {}, "this bundle needs a generation setting for text, got SpanSearch"),
        (5, {}, "this bundle needs a generation setting for text, got int"),
    ],
)
def test_a_search_that_cannot_be_is_refused(loaded, generation, settings, text):
    with pytest.raises(UserError) as error:
        loaded.generate(TEXTS, generation, **settings)
    assert str(error.value).startswith(text)


def test_help_and_repr_say_what_a_person_needs(loaded, bundle):
    assert repr(loaded).startswith(f"Bundle({str(bundle)!r}, ")
    for made in (seqattn.load, loaded):
        page = pydoc.render_doc(made, renderer=pydoc.plaintext)
        assert "beam_size=2" in page
        assert max(map(len, inspect.getdoc(made).splitlines())) <= 100
    assert (Path(seqattn.__file__).parent / "py.typed").is_file()


def test_tied_weights_are_one_after_loading_and_stored_once(bundle, loaded):
    model = loaded.model
    assert model.target_embedding.table is model.source_embedding.table
    tables = [t for t in load_file(bundle / "model.safetensors").values() if t.shape == (36, 16)]
    assert len(tables) == 1


def test_equal_weights_make_equal_files(loaded, tmp_path):
    for number in range(6):
        write_bundle(tmp_path / str(number), loaded.config, loaded.model, loaded.tokenizer, {})
    files = [file.read_bytes() for file in tmp_path.glob("*/model.safetensors")]
    assert len(files) == 6
    assert len(set(files)) == 1


def test_a_bundle_loads_without_pickle(bundle, monkeypatch):
    def never(*args, **options):
        raise AssertionError("unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, never)
    monkeypatch.setattr(torch, "load", never)
    assert len(seqattn.load(bundle).generate(TEXTS)) == 3


def test_a_bundle_generates_without_hydra_datasets_or_lightning(bundle):
    program = f"""
import seqattn
print(len(seqattn.load({str(bundle)!r}).generate(["a dog", "the cat"])))
"""
    absent = ("hydra", "omegaconf", "datasets", "lightning", "wandb")
    slow = ("torch._dynamo", "torch._inductor", "sympy")  # which take seconds
    assert printed_without(absent + slow, program) == "2\n"


# --- a package of somebody's own ------------------------------------------------------------------


@pytest.fixture
def own_package(tmp_path, monkeypatch):
    package = tmp_path / "mypkg_of_tests"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "attention.py").write_text(
        "from seqattn.attention.heads import MultiHeadAttention\n"
        "class Tricky(MultiHeadAttention):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return package.name


def test_a_class_of_somebody_else_loads_where_its_package_is_trusted(
    own_package, tokenizer, tmp_path
):
    config = configuration()
    target = f"{own_package}.attention.Tricky"
    config["attention"] = {**config["attention"], "_target_": target}
    path = untrained(tmp_path / "model", tokenizer, config)
    sys.modules.pop(f"{own_package}.attention", None)
    for trust in ((), ("other",), (own_package[:-1],)):
        with pytest.raises(UserError) as error:
            seqattn.load(path, trust=trust)
        assert str(error.value) == (
            f"{path}/config.yaml: attention names {target}, which is not part of seqattn; load it "
            f"with trust=[{own_package}] if you trust its author"
        )
    assert f"{own_package}.attention" not in sys.modules
    for trust in ([own_package], own_package, [f"{own_package}.attention"]):
        model = seqattn.load(path, trust=trust).model
        assert type(model.encoder.layers[0].self_attention).__name__ == "Tricky"


def test_generating_needs_no_trust_in_an_optimizer(own_package, tokenizer, tmp_path):
    config = configuration()
    config["optimizer"] = {"_target_": f"{own_package}.attention.Tricky", "lr": 0.1}
    path = untrained(tmp_path / "model", tokenizer, config)
    del sys.modules[f"{own_package}.attention"]
    assert "optimizer" not in seqattn.load(path).config
    assert f"{own_package}.attention" not in sys.modules
    assert seqattn.load(path, trust=own_package).config["optimizer"]["lr"] == 0.1


# --- writing --------------------------------------------------------------------------------------


def test_a_bundle_that_cannot_be_written_leaves_the_old_one(loaded, tmp_path, monkeypatch):
    path = copied(loaded, tmp_path / "copy")

    def full(*args, **options):
        raise OSError(28, "No space left on device")

    for name, file in (("bundle.weights.save_weights", ""), ("storage.flush", "/joint.model")):
        with monkeypatch.context() as patched:
            patched.setattr(f"seqattn.{name}", full)
            with pytest.raises(UserError) as error:
                copied(loaded, path, seed=2)
            assert str(error.value) == f"cannot write {path}{file}: No space left on device"
        assert read_config(path)["seed"] == 1
        assert [file.name for file in tmp_path.iterdir()] == ["copy"]
    assert seqattn.load(copied(loaded, path, seed=2)).config["seed"] == 2


def test_the_old_bundle_comes_back_where_the_new_one_cannot_take_its_place(
    loaded, tmp_path, monkeypatch
):
    path = copied(loaded, tmp_path / "copy")
    rename, done = type(path).rename, []

    def second_fails(self, target):
        done.append(target)
        if len(done) == 2:
            raise OSError(30, "Read-only file system")
        return rename(self, target)

    monkeypatch.setattr(type(path), "rename", second_fails)
    with pytest.raises(UserError, match=r"cannot write .*: Read-only file system"):
        copied(loaded, path, seed=2)
    assert read_config(path)["seed"] == 1
    assert [file.name for file in tmp_path.iterdir()] == ["copy"]


def test_files_have_the_modes_that_the_user_asks_for(loaded, tmp_path):
    before = os.umask(0o027)
    try:
        path = copied(loaded, tmp_path / "copy")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.iterdir()} == {0o640}


def test_what_is_no_bundle_is_not_replaced(loaded, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("text")
    for name in ("mine", "file"):
        with pytest.raises(UserError, match="already exists and is not a bundle"):
            copied(loaded, tmp_path / name)
        with pytest.raises(UserError, match="cannot write "):
            copied(loaded, tmp_path / "file" / "below")
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"


def test_a_link_to_a_bundle_stays_a_link(loaded, tmp_path):
    path = copied(loaded, tmp_path / "copy")
    (tmp_path / "link").symlink_to(path)
    copied(loaded, tmp_path / "link", seed=2)
    assert (tmp_path / "link").is_symlink()
    assert read_config(path)["seed"] == 2


def test_weights_that_are_no_numbers_are_not_written(loaded, tmp_path, tokenizer):
    model = seqattn.load(loaded.path).model
    with torch.no_grad():
        model.encoder.layers[0].feedforward.inner.weight[0, 0] = torch.nan
    with pytest.raises(UserError, match=r"training has diverged: encoder\.layers\.0"):
        write_bundle(tmp_path / "copy", loaded.config, model, tokenizer, {})
    assert not list(tmp_path.iterdir())


def test_an_ensemble_answers_as_its_models_together(bundle, tokenizer, tmp_path):
    other = untrained(tmp_path / "rnn", tokenizer, configuration("rnn"))
    pair, alone = seqattn.load(bundle, ensemble=[other]), seqattn.load(bundle)
    models = Ensemble([alone.model, seqattn.load(other).model])
    search = BeamSearch(beam_size=3)
    found = Generator(models, search).generate([one[0] for one in pair.encode(TEXTS)])
    assert pair.hypotheses(TEXTS, search) == found != alone.hypotheses(TEXTS, search)


def test_one_path_is_an_ensemble_of_two(bundle):
    pair = seqattn.load(bundle, ensemble=str(bundle))
    assert pair.generate(TEXTS) == seqattn.load(bundle).generate(TEXTS)


def test_an_ensemble_of_several_vocabularies_is_refused(bundle, tmp_path):
    options = TokenizerConfig(vocab_size=35)
    tokenizer = train_tokenizer(corpus(), corpus(), options, tmp_path / "vocabulary")
    other = untrained(tmp_path / "other", tokenizer, configuration())
    with pytest.raises(UserError, match=r"an ensemble needs a single vocabulary, .*other and "):
        seqattn.load(bundle, ensemble=[other])


def test_outputs_begin_with_the_marks_of_the_target_side(loaded, tokenizer):
    marked = replace(loaded, tokenizer=begun(tokenizer))
    assert replace(loaded, tokenizer=tokenizer).search("greedy").processors == {}
    for name in ("greedy", "beam", "sampling", "mbr"):
        best = [one[0].ids for one in marked.hypotheses(["a dog sees", "the cat"], name)]
        assert {ids[:2] for ids in best} == {marked.tokenizer.target_begin}
    forced = marked.search("greedy", processors=[ForcedPrefix([9])])
    assert marked.search(forced) is forced
    [text] = marked.generate(["a dog sees"], "greedy")
    [ids] = [one[0].ids for one in marked.hypotheses(["a dog sees"], "greedy")]
    assert text == tokenizer.decode_target([ids[2:]])[0] != ""
    assert str(next(iter(marked.search("greedy").processors.values()))) == "forced first tokens"


def test_outputs_begun_by_marks_are_those_that_the_model_finds_behind_them(loaded, tokenizer):
    marked = replace(loaded, tokenizer=begun(tokenizer))
    [(own, *_)] = marked.hypotheses(["a dog sees"], "greedy")
    pair = [(marked.encode("a dog sees")[0][0], own.ids)]  # which reach the limit without an end
    assert forced_log_probabilities(loaded.model, pair)[0] == pytest.approx(
        own.log_probability, abs=1e-4
    )


def begun(tokenizer):
    """The tokenizer with two pieces that begin each target; its marks are not spelt by text."""
    names = tokenizer.source_vocabulary()[RESERVED:]
    model = next(iter(tokenizer._models))
    content = ForeignModel.read(model, "").adopted(names, names[-2:])
    return Tokenizer(content, begin=Begin(target=(names[-1], names[-2])))


@pytest.mark.parametrize(
    ("key", "ours"),
    [
        ("num_beams", "beam_size"),
        ("max_new_tokens", 'limit={"ratio": 0, "extra": N}'),
        ("max_length", 'limit={"ratio": 0, "extra": N}'),
        ("min_length", 'limit={"minimum": N}'),
        ("do_sample", '"sampling"'),
    ],
)
def test_settings_of_other_toolkits_are_named_as_ours(loaded, key, ours):
    for search in (None, "beam", "greedy"):
        with pytest.raises(UserError) as caught:
            loaded.generate("A dog", search, **{key: 3})
        assert str(caught.value) == f"unknown key generation.{key}; use {ours}"


def test_a_name_of_the_hub_is_offered_with_its_prefix(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"; for a model on the hub give hf://org/model$"):
        seqattn.load("org/model")
    (tmp_path / "runs").mkdir()
    with pytest.raises(UserError, match=r"training writes one to RUN/model$"):
        seqattn.load("runs/mine")


def test_a_stored_reading_aligns_words(loaded, tmp_path):
    other = seqattn.load(copied(loaded, tmp_path / "copy"))
    store(other.path, other.config, alignment={"shifted": True, "head": 2, "chosen": "by hand"})
    again = seqattn.load(other.path)
    assert (str(again.reading), again.reading.chosen) == (
        "shifted, the default layer, head 2",
        "by hand",
    )
    texts = ["a dog sees the cat", "", "two birds"]
    targets = ["the cat sees a dog", "a dog", "two unknown☃ birds"]
    found = again.align(texts, targets)
    assert [one.target for one in found] == [text.split() for text in targets]
    assert [len(one.links) for one in found] == [5, 0, 3]
    for text, target, one in zip(texts, targets, found):
        assert again.align(text, target) == [one]
    before = seqattn.load(other.path)
    before.config.pop("alignment")
    assert before.reading == AlignmentReading()
    assert before.align(texts, targets) != found
