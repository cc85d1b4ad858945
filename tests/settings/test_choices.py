"""Whether the choices of a model fit each other, said before any work."""

import pytest
import torch

from seqattn.errors import UserError
from seqattn.settings.assembly import Architecture, Vocabularies, cross_default
from seqattn.settings.choices import choices, types, types_at, with_new_keys
from seqattn.settings.data_paths import MISSING, with_paths, without_paths
from seqattn.settings.nodes import build, import_path

TRANSFORMER = {"dim": 24, "ffn_dim": 20, "encoder_layers": 1, "decoder_layers": 2}


def config(model="transformer", attention="mha", position="none", slots=(), **sizes):
    """The nodes of choices by their names; several attentions of a slot are separated by commas."""
    chosen = {"model": model, "attention": attention, "position": position}
    chosen |= {f"{slot}_attention": name for slot, name in slots}
    found = {}
    for key, names in chosen.items():
        known = choices("attention" if key.endswith("attention") else key)
        made = [known[name] for name in names.split(",")]
        found[key] = made if len(made) > 1 else made[0]
    found["model"] = {**found["model"], **sizes}
    names = {
        k if k in ("model", "attention", "position") else f"attention@{k}": v
        for k, v in chosen.items()
    }
    return {**found, "choices": names}


def check(*given, **more):
    Architecture.of(config(*given, **more)).check()


def test_every_type_of_a_place_is_there_and_has_a_name_of_its_own():
    own = {place: found for place, found in types().items() if not place.startswith("logger")}
    for place, found in own.items():
        for name, made in found.items():
            assert import_path(made["_target_"]).__name__ == name, place


def test_what_belongs_at_a_place():
    assert "SoftmaxKernel" in types_at("attention.kernel")
    assert types_at("cross_attention.kernel") == types_at("attention.kernel")
    assert types_at("attention.kernel")["SoftmaxKernel"]["_partial_"]
    assert "_partial_" not in types_at("generation.limit")["LengthLimit"]
    assert "SoftmaxKernel" not in types_at("attention")
    assert types_at("nowhere") == types_at("attention.kernel.window") == {}


@pytest.mark.parametrize("name", choices("attention"))
def test_each_attention_fits_a_model(name):
    node = choices("attention")[name]
    if "num_heads" not in node:
        return check("rnn", name)
    fits = build(node)(query_dim=24, memory_dim=24).abilities.fits
    assert fits("encoder") or fits("decoder") or fits("cross")
    for slot in filter(fits, ("encoder", "decoder", "cross")):
        check(slots=[(slot, name)], **TRANSFORMER)
    return None


def test_each_position_fits():
    for name in choices("position"):
        check(position=name, **TRANSFORMER)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            config("rnn", "gqa"),
            "model=rnn does not support attention=gqa; use model= ... transformer, or choose from",
        ),
        (
            config(attention="bahdanau"),
            "model=transformer does not support attention=bahdanau; use model=rnn, or choose fr",
        ),
        (
            config(slots=[("cross", "none")]),
            "model=transformer does not support attention@cross_attention=none; choose from ",
        ),
        (
            config("rnn", "none,none"),
            "model=rnn has one attention; set attention=NAME, choosing from",
        ),
        (
            config("rnn", "none", slots=[("cross", "none")]),
            "model=rnn has one attention; set attention=NAME, choosing from bahdanau, ",
        ),
        (
            config("rnn", "none", "rope"),
            "model=rnn encodes positions by recurrence and does not support p",
        ),
        (
            config("rnn", "gqa", "rope"),
            "model=rnn does not support attention=gqa; use model= ... transformer, or choose from "
            "bahdanau ... luong_dot, luong_general ... , none; also set position=none, as "
            "model=rnn encodes positions by recurrence",
        ),
        (
            config(slots=[("decoder", "lsh")], **TRANSFORMER),
            "attention=lsh cannot be used as decoder attention; it fits these slots: "
            "attention@encoder_attention=lsh",
        ),
        (
            config(slots=[("decoder", "mha,mha,lsh")], **TRANSFORMER),
            "this attention cannot be used as decoder attention; it fits these slots: ",
        ),
        (config(dim=25), "attention.num_heads must divide model.dim (25), got 4"),
        (
            config("rnn", "bahdanau", dim=25),
            "model.dim must be even with model.bidirectional=true, got 25",
        ),
        (
            config("rnn", "bahdanau", encoder_dim=25),
            "model.encoder_dim must be even with model.bidirectional=true, got 25",
        ),
        (config(dmi=25), "unknown key model.dmi; did you mean model.dim?"),
    ],
)
def test_choices_that_do_not_fit_are_refused_with_what_would(given, line):
    with pytest.raises(UserError) as error:
        Architecture.of(given).check()
    begins, *others = line.split(" ... ")  # of models, an extra may have more
    assert str(error.value).startswith(begins)
    assert all(part in str(error.value) for part in others)


def test_one_vocabulary_is_asked_for_where_tables_are_shared():
    with pytest.raises(UserError, match=r"share_embeddings=all needs one vocabulary"):
        Architecture.of(config(**TRANSFORMER)).check(joint=False)


def test_a_list_of_attentions_takes_turns_and_cross_attention_keeps_the_heads():
    found = Architecture.of(config(attention="gqa,mqa,linear", encoder_layers=4, dim=24))
    model = found.build(Vocabularies(9, 9, True))
    assert [layer.self_attention.num_kv_heads for layer in model.encoder.layers] == [2, 1, 4, 2]
    names = [layer.self_attention.name for layer in model.encoder.layers]
    assert names == ["SoftmaxKernel", "SoftmaxKernel", "LinearKernel", "SoftmaxKernel"]
    cross = [layer.cross_attention for layer in model.decoder.layers]
    assert [one.num_kv_heads for one in cross] == [2, 1, 4]
    assert {one.name for one in cross} == {"SoftmaxKernel"}


def test_a_check_takes_no_memory_and_draws_no_random_number():
    before = torch.get_rng_state()
    check(**TRANSFORMER | {"dim": 60_000, "ffn_dim": 60_000})
    assert torch.equal(torch.get_rng_state(), before)


def test_an_attention_that_counts_no_heads_needs_a_cross_attention_beside_it():
    with pytest.raises(UserError, match="set attention@cross_attention=NAME"):
        cross_default(lambda query_dim, memory_dim: None)
    made = cross_default(build(choices("attention")["moa"])).keywords
    assert (made["num_heads"], made["num_kv_heads"]) == (4, 4)


def test_a_factory_of_something_else_is_refused():
    def linear(query_dim, memory_dim):
        return torch.nn.Linear(query_dim, memory_dim)

    found = Architecture.of(config(**TRANSFORMER))
    wrong = Architecture(found.model, linear, cross_attention=linear)
    with pytest.raises(UserError, match="this attention must be of type Mixer, got Linear"):
        wrong.check()


def test_a_run_whose_settings_cannot_be_read_knows_no_paths(tmp_path):
    kept = without_paths({**choices("data")["parallel_text"], "root": "/texts"})
    for content in (b"{", b"\xff", b"data: 2020-13-45"):
        (tmp_path / "config.yaml").write_bytes(content)
        assert with_paths(kept, tmp_path / "model") == kept


def test_a_bundle_keeps_no_alignments_and_its_data_may_be_given_them():
    node = {**choices("data")["parallel_text"], "root": "/texts", "alignments": "/mine"}
    kept = without_paths(node)
    assert (kept["root"], kept["alignments"]) == (MISSING, None)
    older = {key: value for key, value in node.items() if key != "alignments"}
    assert with_new_keys("data", older) == {**node, "alignments": None}
