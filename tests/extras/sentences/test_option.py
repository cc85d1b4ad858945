"""Texts of several sentences, given to a model that learned single ones."""

from itertools import product

import pytest

import seqattn
from seqattn.data.source_ids import joined_source
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.errors import UserError
from seqattn.extras.sentences.option import Sentences
from tests.bundle.conftest import configuration, corpus, untrained
from tests.cli.small import json_lines, refusal, run, succeed
from tests.subcommands.test_long_lists import stopped_after

ONE, TWO, THREE = (
    "A dog sees the cat.",
    "Two birds hear an old tree.",
    "The house finds some bread.",
)
TEXT = f"{ONE} {TWO}\u00a0 {THREE}"
LEARNT = {"rows": 100, "several": 3, "longest": 40, "language": "en"}


def bundle_of(directory, learnt=LEARNT, long_sources="drop", **chosen):
    lines = [f"{line.capitalize()}." for line in corpus()]
    tokenizer = train_tokenizer(lines, lines, TokenizerConfig(vocab_size=48), directory)
    config = configuration(**chosen)
    config["loader"] = {**config["loader"], "long_sources": long_sources}
    config["task"]["copy_letterless"] = "task" not in chosen
    config["text_options"] = None if learnt is None else {"sentences": learnt}
    return untrained(directory / "model", tokenizer, config)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return bundle_of(tmp_path_factory.mktemp("sentences"))


@pytest.fixture(scope="module")
def bundle(path):
    return seqattn.load(path)


def singly(bundle, *sentences, **keys):
    return [bundle.generate(one, sentences="none", **keys) for one in sentences]


@pytest.mark.parametrize("search", ["greedy", "beam"])
@pytest.mark.parametrize("sentences", ["auto", "en", "en_XX", None])
def test_outputs_are_those_of_the_sentences(bundle, capsys, search, sentences):
    keys = {"generation": search} | ({} if sentences is None else {"sentences": sentences})
    if sentences is None:
        keys["sentences"] = Sentences()
    first, second, third = singly(bundle, ONE, TWO, THREE, generation=search)
    assert bundle.generate([TEXT, TWO], **keys) == [f"{first} {second}\u00a0 {third}", second]
    assert capsys.readouterr().err == (
        "1 line read as 3 sentences (en); sentences=none reads lines\n"
    )


def test_what_needs_a_whole_line_is_not_split_or_refuses(bundle, capsys):
    whole = bundle.generate(TEXT, prefix="the", sentences="none")
    assert bundle.generate(TEXT, prefix="the") == whole
    assert capsys.readouterr().err == (
        "1 line of several sentences read as a whole; whole lines are needed by prefix\n"
    )
    with pytest.raises(UserError, match=r"^sentences=en does not support prefix; remove one$"):
        bundle.generate(TEXT, prefix="the", sentences="en")
    with pytest.raises(UserError, match=r"^sentences=en does not support hypotheses; remove one$"):
        bundle.hypotheses([TEXT], sentences="en")
    assert len(bundle.hypotheses([TEXT])) == 1
    assert capsys.readouterr().err == (
        "1 line of several sentences read as a whole; whole lines are needed by hypotheses\n"
    )
    with pytest.raises(UserError, match=r"^text 2 is not valid Unicode"):
        bundle.generate([TEXT, f"{ONE} \ud800"])
    with pytest.raises(UserError, match=r"^unknown language 'german'; did you mean de"):
        bundle.generate(TEXT, sentences="german")


@pytest.mark.parametrize("value", [5, True])
def test_values_that_are_no_words_are_refused_with_what_to_give(bundle, value):
    for make in (Sentences, lambda language: bundle.generate(TEXT, sentences=language)):
        with pytest.raises(
            UserError, match=f"^unknown language '{value}'; give auto, none or a co"
        ):
            make(value)


@pytest.mark.parametrize(
    ("learnt", "chosen", "told"),
    [
        (None, {}, "1 line of several sentences read as a whole; set sentences=CODE (a language)"),
        (LEARNT | {"several": 11}, {}, ""),
        (LEARNT, {"long_sources": "window"}, ""),
        (None, {"task": "summarization"}, ""),
    ],
)
def test_other_bundles_read_lines(tmp_path, capsys, learnt, chosen, told):
    bundle = seqattn.load(bundle_of(tmp_path, learnt, **chosen))
    capsys.readouterr()
    assert bundle.generate(TEXT) == bundle.generate(TEXT, sentences="none")
    said = capsys.readouterr().err
    assert said.startswith(told)
    assert bool(said) == bool(told)
    bundle.generate(TEXT, prefix="the")
    assert "several sentences" not in capsys.readouterr().err
    if "long_sources" in chosen:
        with pytest.raises(
            UserError, match=r"^sentences=en needs a bundle that reads single lines"
        ):
            bundle.generate(TEXT, sentences="en")


@pytest.mark.parametrize(
    "nodes", [5, {"sentences": 5}, {"sentences": {"rows": "x"}}, {"sentences": {"rows": 3}}]
)
def test_a_bundle_with_damaged_counts_is_refused_in_a_line(tmp_path, nodes):
    bundle = seqattn.load(bundle_of(tmp_path))
    bundle.config["text_options"] = nodes
    if nodes == 5:
        assert bundle.generate(ONE)
    else:
        with pytest.raises(UserError, match=r"text_options\.sentences\.\w+"):
            bundle.generate(ONE)


def test_a_sentence_longer_than_those_of_training_is_cut(tmp_path, capsys):
    clauses = "a dog sees the old cat,", "the old house finds some bread"
    bundle = seqattn.load(bundle_of(tmp_path))
    longest = max(len(ids) for [ids] in bundle.encode(clauses))
    bundle.config["text_options"]["sentences"]["longest"] = longest
    parts = singly(bundle, *clauses)
    capsys.readouterr()
    assert bundle.generate(" ".join(clauses)) == " ".join(parts)
    assert capsys.readouterr().err == (
        f"cut sentences of more than {longest} tokens, the longest of training, at 1 place\n"
    )


@pytest.mark.parametrize("tags", [["law"], ["dog", "cat"], ["bread"] * 40])
def test_tags_count_as_tokens_of_each_sentence(tmp_path, tags):
    bundle = seqattn.load(bundle_of(tmp_path))
    tagged = joined_source(tags, [f"{ONE[:-1]}, {TWO}"], "")
    (whole,) = bundle.encode([tagged])[0]
    head = len(whole) - len(bundle.encode([tagged[tagged.head :]])[0][0])
    for longest in (len(whole), len(whole) - 1):
        bundle.config["text_options"]["sentences"]["longest"] = longest
        option = Sentences().of(bundle)
        lines = bundle.lines([tagged], split=option.split_by([])).lines
        assert (len(lines) > 1) == (longest < len(whole)) or len(tags) == 40
        lengths = [len(ids) for [ids] in bundle.encode(lines)]
        assert max(lengths) <= max(longest, head + -(-longest // 2))


def test_commands_read_sentences_and_say_so(capfd, path, bundle, tmp_path):
    (tmp_path / "in.txt").write_text(f"{TEXT}\n{TWO}\n42. {ONE}\n", encoding="utf-8")
    words = ("generate", f"bundle={path}", f"input={tmp_path}/in.txt")
    first, second, third = singly(bundle, ONE, TWO, THREE)
    expected = [f"{first} {second}\u00a0 {third}", second, f"42. {first}"]
    ended = run(capfd, *words)
    assert ended.out.splitlines() == expected
    assert "2 lines read as 5 sentences (en); sentences=none reads lines" in ended.err
    assert "copied 1 line or sentence without a letter\n" in ended.err
    assert succeed(capfd, *words, "sentences=en-GB").splitlines() == expected
    assert succeed(capfd, *words, "sentences=none") != "\n".join([*expected, ""])
    ended = run(capfd, *words, "sentences=german")
    assert (ended.code, ended.err) == (2, "error: unknown language 'german'; did you mean de?\n")
    rows = json_lines(succeed(capfd, *words, "format=jsonl", "n_best=2", "alignments=true"))
    best = [row for row in rows if row["rank"] == 1]
    assert [row["output"] for row in best] == expected
    lengths = [len(row["alignment"].split()) for row in best]
    assert lengths == [len(row["output"].split()) for row in best]
    assert best[2]["alignment"].startswith("0-0 1-")


def test_a_continued_output_needs_the_same_language(capfd, path, tmp_path, monkeypatch):
    (tmp_path / "in.txt").write_text(f"{TEXT}\n{TWO}\n", encoding="utf-8")
    words = ("generate", f"bundle={path}", f"input={tmp_path}/in.txt", f"output={tmp_path}/out")
    with monkeypatch.context() as patch:
        stopped_after(patch, 1)
        assert run(capfd, *words, "window=1", "sentences=en").code == 130
    assert "holds progress with sentences.language=en; use" in refusal(capfd, *words)
    succeed(capfd, *words, "sentences=en")
    assert len((tmp_path / "out").read_text().splitlines()) == 2


def test_markup_is_put_around_the_outputs_of_sentences(bundle):
    text = "A <b>dog</b> sees. Two <i>birds</i> hear."
    output = bundle.generate(text, markup="html")
    first, second = singly(bundle, "A dog sees.", "Two birds hear.")
    for tag in ("b", "i"):
        assert output.count(f"<{tag}>") == output.count(f"</{tag}>") > 0
    plain = output
    for tag, slash in product("bi", ("", "/")):
        plain = plain.replace(f"<{slash}{tag}>", "")
    assert plain.split() == f"{first} {second}".split()


def test_copied_sentences_keep_their_tags(bundle):
    first, last = "<b>1</b> 2 <i>3</i> 4 5.", "<i>6</i> 7 8, <b>9</b>0."
    output = bundle.generate(f"{first} {ONE} {last}", markup="html")
    assert output == f"{first} {singly(bundle, ONE)[0]} {last}"


@pytest.mark.parametrize(
    ("learnt", "word", "directory"),
    [
        (LEARNT, "auto", "test-sentences"),
        (None, "auto", "test"),
        (None, "en", "test-sentences"),
        (LEARNT, "none", "test"),
    ],
)
def test_the_directory_of_an_evaluation_names_what_acts(capfd, tmp_path, learnt, word, directory):
    for name in ("en", "de"):
        (tmp_path / f"test.{name}").write_text(f"{ONE}\n", encoding="utf-8")
    data = ("data=parallel_text", f"data.root={tmp_path}", "data.source_suffix=en")
    words = (f"bundle={bundle_of(tmp_path, learnt)}", *data, "data.target_suffix=de")
    succeed(capfd, "evaluate", *words, f"sentences={word}")
    assert [path.name for path in (tmp_path / "evaluation").iterdir()] == [directory]


def test_evaluations_read_rows_and_say_how_many_generate_splits(capfd, path, tmp_path):
    for name, text in (("en", f"{TEXT}\n{TWO}\n"), ("de", f"{ONE}\n{TWO}\n")):
        (tmp_path / f"test.{name}").write_text(text, encoding="utf-8")
    data = ("data=parallel_text", f"data.root={tmp_path}", "data.source_suffix=en")
    words = ("evaluate", f"bundle={path}", *data, "data.target_suffix=de", f"output={tmp_path}/o")
    ended = run(capfd, *words)
    assert ended.code == 0, ended.err
    assert "1 of 2 rows" in ended.out
    assert "sentences=auto" in ended.out
    ended = run(capfd, *words, "sentences=auto")
    assert "1 line read as 3 sentences (en)" in ended.err
    assert "1 of 2 rows" not in ended.out
