"""Words to words: rows of files, scores by hand, positions of features, and a training."""

import json
import math
import os
import shutil
from contextlib import suppress
from functools import partial

import pytest
import torch

from seqattn import load
from seqattn.attention.heads import MultiHeadAttention
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.cli.main import run_subcommand
from seqattn.data.base import Texts
from seqattn.errors import UserError
from seqattn.extras.transduction.bundle import WordOutputs
from seqattn.extras.transduction.model import FeatureTransformerConfig
from seqattn.extras.transduction.scorer import WordScorer, edits, wilson
from seqattn.extras.transduction.words import Words
from seqattn.metrics.text import lower_is_better
from seqattn.models.transformer import TransformerConfig
from seqattn.positions.absolute import SinusoidalPosition
from seqattn.settings.assembly import Architecture, Vocabularies
from seqattn.training.task_options import mode_of
from tests.absent import printed_without
from tests.cli.small import composed
from tests.extras.test_deletion import PROGRAM
from tests.growth import SIGNS, grows

UNIMORPH = {"target_column": 2, "features_column": 3}
FORMS = [
    f"{stem}{'a' * n}\t{stem}{'a' * n}{end}\tN;{case}(SG)"
    for stem in ("kot", "ryb", "lam", "dom", "ser")
    for n in (1, 2, 3, 4)
    for case, end in (("NOM", ""), ("DAT", "wi"))
]


def written(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def rows(path, split="train", **settings):
    data = Words({"train": path}, **settings)
    table = data.load(split)
    return [*zip(table["source"], table["target"])], data.notices()


def test_columns_may_stand_in_any_order_and_features_follow_the_word(tmp_path):
    unimorph = written(tmp_path / "pol", ["kot\tkotu\tN;DAT(SG)", "", "być sobą\tjest\tV;3"])
    pairs = [("kot;N;DAT(SG)", "kotu"), ("być sobą;V;3", "jest")]
    assert rows(unimorph, **UNIMORPH)[0] == pairs
    shared_task = written(tmp_path / "pol.trn", ["kotu\tN;DAT(SG)\tkot", "jest\tV;3\tbyć sobą"])
    order = {"word_column": 3, "features_column": 2, "target_column": 1}
    assert rows(shared_task, **order)[0] == pairs
    phones = written(tmp_path / "dut.tsv", ["aad\ta: t"])
    assert rows(phones) == ([("aad", "a: t")], [])


def test_rows_that_lack_something_are_counted(tmp_path):
    lines = ["a\tb\tN;X", "\tb\tN;Y", "c\t \tN;Y", "d\te\t", "f\tg\tN;Y"]
    path = written(tmp_path / "train", lines)
    pairs, report = rows(path, **UNIMORPH)
    assert pairs == [("a;N;X", "b"), ("", "b"), ("c;N;Y", ""), ("d", "e"), ("f;N;Y", "g")]
    assert report == [
        f"2 rows of {path} have no word or no target, such as line 2",
        f"1 rows of {path} have no features, such as line 4",
        "1 features occur in one training row alone, such as X",
    ]


def test_rows_are_labeled_by_their_word_or_by_a_column(tmp_path):
    path = written(tmp_path / "dev", ["kot\tkotu\tN;DAT", "", "kot\tkota\tN;GEN", "pies\tpsu\tN"])
    data = Words({"val": path}, **UNIMORPH)
    for group, labels in {"lemma": ["kot", "kot", "pies"], "2": ["kotu", "kota", "psu"]}.items():
        grouped = data.grouped(group).load("val")
        assert grouped["group"] == labels
        assert grouped["source"] == ["kot;N;DAT", "kot;N;GEN", "pies;N"]
    assert "group" not in data.load("val").column_names
    with pytest.raises(UserError, match="line 1 has 3 columns, but group is 4"):
        data.grouped("4").load("val")
    for wrong in ("0", "word", "prefix:x"):
        with pytest.raises(UserError, match="group must be lemma, source, prefix:N or the number"):
            data.grouped(wrong)


def outputs(sources, mark):
    rows = Texts(sources, sources, [[one] for one in sources], None)
    return WordOutputs(rows, sources, 1.0, mark=mark, scorer=WordScorer())


def test_rows_that_mostly_share_their_word_need_groups():
    forms = [f"kot;N;{case}" for case in ("DAT", "GEN")] + ["pies;N", "dom;N"]
    [line] = outputs(forms, ";").dependence()
    assert line.startswith("2 of 4 rows share their word with other rows (3 words in all), so")
    assert line.endswith("set group=lemma")
    assert outputs([*forms, "ser;N"], ";").dependence() == []
    assert outputs(forms, None).dependence() == []
    assert outputs(["kot"] * 2, None).dependence()[0].endswith("set group=source")


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"target_column": 3}, r"line 1 has 2 columns, but data.target_column is 3; tabs sep"),
        ({"features_column": 4}, r"line 1 has 2 columns, but data.features_column is 4"),
        ({"features_column": 2}, r"features_column must differ from data.target_column, got 2"),
        ({"feature_mark": ", "}, r"feature_mark must be one character, and not a space, ▁ or ▅"),
        ({"feature_mark": "▁"}, r"feature_mark must be one character, and not a space, ▁ or ▅"),
        ({"hold_out": 5}, r"data.hold_out=5 leaves no rows for train"),
    ],
)
def test_columns_that_are_not_there_are_refused(tmp_path, settings, error):
    path = written(tmp_path / "train", ["a\tb", "c\td"])
    with pytest.raises(UserError, match=error):
        rows(path, split="val" if "hold_out" in settings else "train", **settings)


@pytest.mark.parametrize("row", ["{}\tb\tc", "a\t{}\tc", "a\tb\t{}"])
def test_a_file_takes_no_more_time_than_its_length(row, tmp_path):
    def read(text):
        (tmp_path / "words.tsv").write_text(row.format(text))
        with suppress(UserError):
            Words({"train": str(tmp_path / "words.tsv")}, features_column=3).load("train")

    assert [sign for sign in (*SIGNS, "a;", "a\tb\tc\n") if grows(read, sign)] == []


def test_spaces_around_features_are_no_part_of_them(tmp_path):
    path = written(tmp_path / "train", ["a b\tc\tN; PL ;X"])
    assert rows(path, **UNIMORPH)[0] == [("a b;N;PL;X", "c")]
    assert Words(**UNIMORPH).tidy("a b; N ;PL") == "a b;N;PL"
    assert Words().tidy("a b; N") == "a b; N"


@pytest.mark.parametrize("feature", ["P L", "▁", "x" * 1000])
def test_a_feature_that_cannot_be_a_piece_is_named_with_its_row(tmp_path, feature):
    path = written(tmp_path / "train", ["a\tb\tN;PL", f"c\td\tN;{feature}"])
    with pytest.raises(UserError) as refused:
        rows(path, **UNIMORPH)
    assert str(refused.value).startswith(f"{path} line 2: the feature '{feature[:50]}")
    assert len(str(refused.value)) < len(path) + 200


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_before_it_is_waited_for(tmp_path):
    path = str(tmp_path / "pipe.tsv")
    os.mkfifo(path)
    with pytest.raises(UserError, match=r"pipe.tsv is not a regular file; expected a text file"):
        rows(path)


def test_the_rows_of_a_word_are_held_out_together(tmp_path):
    lines = [f"w{n}\tw{n}{end}\tN;{end}" for n in range(20) for end in "xyz"]
    data = Words({"train": written(tmp_path / "train", lines)}, **UNIMORPH, hold_out=9)
    train, val = (
        {one.partition(";")[0] for one in data.load(x)["source"]} for x in ("train", "val")
    )
    assert (len(train), len(val)) == (17, 3)
    assert not train & val


def test_distances_are_those_of_enumeration():
    def recursive(one, other):
        if not one or not other:
            return len(one) + len(other)
        ways = (one[1:], other[1:]), (one[1:], other), (one, other[1:])
        costs = one[0] != other[0], 1, 1
        return min(recursive(*way) + cost for way, cost in zip(ways, costs))

    words = ["", "a", "ab", "abc", "cab", "bcab", "aabbc"]
    for one in words:
        assert [edits(one, other) for other in words] == [recursive(one, other) for other in words]


def test_scores_are_those_of_the_shared_tasks():
    outputs, gold = ["a: t", "a l s", "n"], ["a: t", "a: l s t", "n"]
    values = [100 / 3, 100 * 2 / 7, 2 / 3, 200 / 3]
    scorer = WordScorer("symbols")
    scores = scorer.score(outputs, gold)
    assert [one.key for one in scores] == [*scorer.logged]
    assert [one.value for one in scores] == pytest.approx(values)
    lower = [lower_is_better(scorer, name) for one in scores for name in (one.name, one.key)]
    assert lower == [True] * 6 + [False] * 2
    assert [mode_of(f"val/{name}", scorer) for name in scorer.logged] == ["min"] * 3 + ["max"]
    corpus = scorer.corpus()
    corpus.update(outputs[:1], gold[:1])
    corpus.update(outputs[1:], gold[1:])
    computed = corpus.compute()
    assert [computed[name].item() for name in scorer.logged] == pytest.approx(values)
    assert WordScorer().score(["a:t"], ["a: t"])[1].value == 25  # of four characters
    nearest = WordScorer().score(["ab"], [["abcd", "b"]])
    assert nearest[1].value == 100  # one edit of one character


def test_wilsons_interval_solves_its_equation():
    for percent, count in ((0.0, 10), (18.3, 1000), (100.0, 40)):
        for end in wilson(percent, count):
            gap, spread = end - percent, 1.96 * math.sqrt(end * (100 - end) / count)
            assert abs(abs(gap) - spread) < 1e-6


def transformer(config):
    attention = partial(MultiHeadAttention, num_heads=2, num_kv_heads=2, kernel=SoftmaxKernel)
    model = config(dim=8, encoder_layers=2, decoder_layers=1, ffn_dim=12)
    torch.manual_seed(0)
    return (
        Architecture(model, attention, SinusoidalPosition).build(Vocabularies(13, 13, True)).eval()
    )


def test_features_share_a_position_and_their_order_has_no_effect():
    model = transformer(FeatureTransformerConfig)
    plain = transformer(TransformerConfig)
    words = torch.tensor([[6, 7, 8, 3], [9, 3, 0, 0]])
    real = words != 0
    torch.testing.assert_close(model.encode(words).outputs[real], plain.encode(words).outputs[real])
    model.is_feature[[4, 5]] = 1
    torch.testing.assert_close(model.encode(words).outputs[real], plain.encode(words).outputs[real])
    one, other = (
        model.encode(torch.tensor([[6, 7, *features, 3]])).outputs[0]
        for features in ((4, 5), (5, 4))
    )
    torch.testing.assert_close(one, other[[0, 1, 3, 2, 4]])
    before = model.encode(torch.tensor([[4, 5, 6, 7, 3]])).outputs[0]
    torch.testing.assert_close(one, before[[2, 3, 0, 1, 4]])
    swapped = model.encode(torch.tensor([[7, 6, 4, 5, 3]])).outputs[0]
    assert (one[[1, 0]] - swapped[:2]).abs().max() > 1e-3


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    train, val = written(folder / "pol", FORMS), written(folder / "pol.dev", FORMS[::5])
    words = [
        "experiment=inflection", f"data.files.train={train}", f"data.files.val={val}",
        "data.features_column=3", "data.target_column=2", "model.dim=16", "model.ffn_dim=24",
        "trainer.max_steps=6", "trainer.val_check_interval=1.0", "schedule.warmup_steps=2",
        "trainer=cpu", "task.final.sentences=4", f"run_dir={folder}/run", f"cache_dir={folder}",
    ]  # fmt: skip
    assert run_subcommand("train", words) == 0
    return folder


@pytest.mark.slow
def test_words_of_val_that_train_has_are_told(trained):
    told = (trained / "run/train.log").read_text()
    assert "8 of 8 rows of val have a word that train has, too" in told


@pytest.mark.slow
def test_a_bundle_reads_words_with_features_from_text_and_files(trained, capfd):
    bundle = load(trained / "run/model")
    ids = [4 + n for n, piece in enumerate(bundle.tokenizer.source_vocabulary()[4:])
           if piece.startswith(";")]  # fmt: skip
    assert bundle.model.is_feature.nonzero().flatten().tolist() == ids
    assert [bundle.tokenizer.source_vocabulary()[n] for n in ids] == [";N", ";NOM(SG)", ";DAT(SG)"]
    word = "kota;N;DAT(SG)"
    lines = ["kota\tN;DAT(SG)", word, "kota\tkotawi\tN;DAT(SG)"]
    file = written(trained / "in.tsv", lines)
    assert [text for part in bundle.read_inputs(trained / "in.tsv") for _, text in part] == [
        word
    ] * 3
    out = trained / "out.txt"
    words = [f"bundle={bundle.path}", f"input={file}", f"output={out}"]
    assert run_subcommand("generate", [*words, f"ensemble=[{bundle.path}]"]) == 0
    assert out.read_text().splitlines() == [bundle.generate(word)] * 3
    capfd.readouterr()
    bundle.generate(["kota;N;LOC(SG)", "kota;V"])
    assert (
        "2 features of the input did not occur in training, such as LOC(SG)"
        in capfd.readouterr().err
    )
    written(trained / "in.tsv", ["kota\tkotawi\tN;DAT(SG)", "a\tb\tc"])


def test_lines_to_read_may_lack_the_target():
    words = Words(word_column=2, target_column=1, features_column=3)
    read = [words.source_of(line.split("\t"), "") for line in ("kot;N", "kot\tN", "kotu\tkot\tN")]
    assert read == ["kot;N"] * 3
    assert Words(word_column=3).source_of(["kot", "a", "kota"], "") == "kota"
    assert Words().source_of(["kot"], "") == "kot"


@pytest.mark.slow
def test_an_evaluation_scores_by_feature_and_length_and_is_compared_by_groups(trained, capfd):
    scored, words = trained / "scored", [f"bundle={trained}/run/model", "split=val"]
    assert run_subcommand("evaluate", [*words, f"output={scored}", "group=lemma"]) == 0
    told = "intervals and tests are over 8 groups of rows (group=lemma); with fewer than 40, they"
    assert capfd.readouterr().err.count(told) == 1
    by_length, by_feature = (
        [line.split("\t") for line in (scored / f"by_{name}.tsv").read_text().splitlines()]
        for name in ("length", "feature")
    )
    assert by_length[0] == ["length", "words", "wer", "ser", "edit_distance", "exact_match"]
    assert [*map(int, (row[0] for row in by_length[1:]))] == sorted(
        {len(x.split("\t")[0]) for x in FORMS[::5]}
    )
    assert [row[:2] for row in by_feature[1:]] == [["DAT(SG)", "4"], ["N", "8"], ["NOM(SG)", "4"]]
    rows = [json.loads(line) for line in (scored / "sentences.jsonl").read_text().splitlines()]
    assert [row["group"] for row in rows] == [row["source"].split(";")[0] for row in rows]
    scores = json.loads((scored / "scores.json").read_text())["scores"]
    assert [len(one["interval"]) for one in scores.values()] == [2] * 4
    assert run_subcommand("compare", [f"runs=[{scored}]", f"output={trained}/compared"]) == 0
    figures = json.loads((trained / "compared" / "figures.json").read_text())
    assert figures["title"] == "8 words of the val split in 8 groups (group=lemma)"
    letters = [len(line.split("\t")[0]) for line in FORMS[::5]]
    ticks = figures["curves"]["by length"]["bins"]
    assert [tick.partition("\n")[0] for tick in ticks][-1] in {
        str(max(letters)),
        "over 5",
        "over 6",
    }
    assert capfd.readouterr().err.count(told) == 1
    for more in ([], ["group=prefix:3"], ["group=3"]):
        assert run_subcommand("compare", [f"runs=[{scored}]", *more]) == 2 * (more == ["group=3"])
    ended = capfd.readouterr()
    assert ended.err.count(told) == 1
    assert "of the val split in 8 groups (group=lemma)" in " ".join(ended.out.split())
    assert "over 5 groups of rows (group=prefix:3)" in ended.err
    assert f"error: {scored} has no labels of its rows; evaluate it with group=3" in ended.err
    shutil.copytree(trained / "run", trained / "copy")
    run = [f"runs=[{trained}/copy]", "split=val"]
    for group, evaluates, code in ((3, "false", 2), (3, "true", 0), (3, "false", 0),
                                   ("lemma", "false", 2)):  # fmt: skip
        assert run_subcommand("compare", [*run, f"group={group}", f"evaluate={evaluates}"]) == code
        said = capfd.readouterr().err
        refused = (
            f"no evaluation of split=val group={group}; set evaluate=true, or run seqattn eval"
        )
        assert (refused in said) == (code == 2)
        assert (f"evaluating {trained}/copy/model on val" in said) == (evaluates == "true")


@pytest.mark.slow
def test_a_picture_has_a_row_for_each_character_and_feature(trained):
    from seqattn.extras.pictures.of_bundle import pictures_of

    look = pictures_of(load(trained / "run/model")).look("kota;N;DAT(SG)", "", "kotawi", False)
    axes = look.figures["cross"].axes
    labels = [[label.get_text() for label in one.get_xticklabels()] for one in axes]
    assert ["k", "o", "t", "a", ";N", ";DAT(SG)", "</s>"] in labels
    links = look.lines[2].removeprefix("attention: ").split(", ")
    assert [link[0] for link in links] == [*"kotawi"]
    assert {link[4:] for link in links} <= {"k", "o", "t", "a", ";N", ";DAT(SG)"}
    bundle = load(trained / "run/model")
    [words] = bundle.align("kota;N;DAT(SG)", "kotawi")
    assert f"alignment: {words.pharaoh()}" == look.lines[3]


def test_a_transduction_searches_until_no_unfinished_hypothesis_can_win():
    """Stopping at the fifth finished one took outputs without their ends: 80.6 for 82.1 %."""
    searches = [
        composed("train", "run_dir=R", *words)[0]["generation"]
        for words in (
            ["task=transduction", "data.files.train=F"],
            ["task=translation"],
            ["task=transduction", "data.files.train=F", "generation=greedy"],
        )
    ]
    assert [one.get("early_stopping") for one in searches] == [False, True, None]


def test_without_the_extra_the_choice_says_what_is_missing():
    program = PROGRAM.format(commands=[("train", ["task=transduction", "data.files.train=x"])])
    program = program.replace("import json\n", "import json, sys\nsys.stderr = sys.stdout\n")
    printed = printed_without(["seqattn.extras.transduction"], program).splitlines()
    assert len(printed) == 2
    assert "needs seqattn.extras.transduction, which is not installed" in printed[0]
    assert printed[1] == "[2]"
