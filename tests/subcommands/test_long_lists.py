"""A long list is generated as its windows, its shares and its ranks are, whatever stops it."""

import json
import time

import pytest

from seqattn.cli.main import run_subcommand
from seqattn.generation import Generator
from tests.cli.small import refusal, run, succeed
from tests.forked_ranks import join, run_ranks

SEARCHES = {
    "text": ("generation=greedy",),
    "tsv": ("generation=beam", "generation.beam_size=2", "n_best=2", "alignments=true"),
    "jsonl": ("generation=sampling", "generation.n_best=3", "n_best=2", "format=jsonl"),
    "markup": ("markup=placeholders", "generation=greedy"),
}


@pytest.fixture
def place(tmp_path, corpus):
    lines = (corpus / "train.en").read_text().splitlines()[:20]
    lines[3:3] = ["", "  ", "{x} a dog"]
    (tmp_path / "in").write_text("\n".join(lines))
    rows = [json.dumps({"source": line}) + "\n" * (number % 3) for number, line in enumerate(lines)]
    (tmp_path / "in.jsonl").write_text("\n".join(rows))
    return tmp_path


def words_of(trained, place, *more, file="in"):
    bundle = f"bundle={trained}/model"
    return [bundle, f"input={place / file}", f"output={place}/out", "generation.workers=1", *more]


def read(capfd, words):
    succeed(capfd, "generate", *words)
    output = next(word for word in words if word.startswith("output=")).removeprefix("output=")
    with open(output) as file:  # noqa: PTH123
        return file.read().splitlines()


def same(lines, others):
    """True of equal lines, but for the last digits of scores, in which batches differ."""
    rows = [[_parsed(line) for line in some] for some in (lines, others)]
    return [row for row, _ in rows[0]] == [row for row, _ in rows[1]] and [
        score for _, score in rows[0]
    ] == pytest.approx([score for _, score in rows[1]], abs=1e-3)


def _parsed(line):
    """A line without its score, and the score."""
    if line.startswith('{"line'):
        row = json.loads(line)
        del row["log_probability"]
        return row, row.pop("score")
    number, tab, rest = line.partition("\t")
    if not tab:
        return line, 0.0
    rank, score, *rest = rest.split("\t")
    return [number, rank, *rest], float(score)


@pytest.mark.parametrize("form", SEARCHES)
@pytest.mark.parametrize("file", ["in", "in.jsonl"])
def test_windows_and_shares_give_what_one_window_gives(capfd, trained, place, form, file):
    words = words_of(trained, place, *SEARCHES[form], file=file)
    lines = read(capfd, words)
    assert same(lines, read(capfd, [*words, "window=4"]))
    shares = [read(capfd, [*words, f"part={k}/3", "window=5"]) for k in (1, 2, 3)]
    assert same(lines, [line for share in shares for line in share])
    assert all(shares)


def stopped_after(monkeypatch, windows):
    """Stops a command in a window."""
    searched, real = [], Generator.generate_windows

    def stopping(*args):
        searched.append(args)
        if len(searched) > windows:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(Generator, "generate_windows", stopping)


@pytest.mark.parametrize("windows", [1, 3, 5])
@pytest.mark.parametrize("form", ["tsv", "jsonl"])
def test_a_stopped_command_continues(capfd, trained, place, monkeypatch, windows, form):
    words = words_of(trained, place, *SEARCHES[form], "window=4")
    lines = read(capfd, words)
    (place / "out").unlink()
    with monkeypatch.context() as patch:
        stopped_after(patch, windows)
        assert run(capfd, "generate", *words).code == 130
    assert not (place / "out").exists()
    assert (
        "holds progress with generation.seed=0;"
        in refusal(
            capfd,
            "generate",
            *words,
            "generation=sampling",
            "generation.seed=2",
            "n_best=2",
            "generation.n_best=3",
            "format=jsonl",
        )
        or form == "tsv"
    )
    assert "holds progress with n_best=2" in refusal(capfd, "generate", *words, "n_best=1")
    again = [*words, "generation.batch_size=3"] if form == "tsv" else words
    with monkeypatch.context() as patch:
        stopped_after(patch, 6 - windows)
        assert same(read(capfd, again), lines)
    assert {one.name for one in place.iterdir()} == {"in", "in.jsonl", "out"}


def test_a_fault_in_a_later_window_is_found_before_the_first_search(
    capfd, trained, place, monkeypatch
):
    stopped_after(monkeypatch, 0)
    for file, content in (("in.jsonl", b"{\n"), ("in", b"\n\xff\n")):
        with (place / file).open("ab") as rows:
            rows.write(b"\n" + content)
        words = words_of(trained, place, "window=2", file=file)
        assert "line" in refusal(capfd, "generate", *words)
        assert not (place / "out.partial").exists()


@pytest.mark.parametrize("part", ["0/3", "4/3", "1of3", "1/0", "-1/3", "a/b", "1/3/4"])
def test_a_share_that_does_not_exist_is_refused(capfd, trained, place, part):
    line = refusal(capfd, "generate", *words_of(trained, place, f"part={part}"))
    assert line == f"part must be K/N with K from 1 to N, such as 3/16, got {part}"


def test_shares_need_a_file(capfd, trained):
    line = refusal(capfd, "generate", f"bundle={trained}/model", "text=a", "part=1/2")
    assert line == "shares of the input need files; set input=FILE and output=FILE"


def test_more_shares_than_lines_are_empty(capfd, trained, place):
    words = words_of(trained, place, "generation=greedy")
    shares = [read(capfd, [*words, f"part={k}/40"]) for k in range(1, 41, 6)]
    assert [] in shares
    assert max(map(len, shares)) == 1


def _share(rank, port, words):
    join(rank, port, 2)
    assert run_subcommand("generate", words) == 0
    time.sleep(1 - rank)  # the first rank holds the store


def test_ranks_write_the_whole_in_order(capfd, trained, place):
    words = words_of(trained, place, *SEARCHES["tsv"], "window=3")
    lines = read(capfd, words)
    (place / "out").unlink()
    run_ranks(_share, 2, words)
    assert same((place / "out").read_text().splitlines(), lines)
    assert {one.name for one in place.iterdir()} == {"in", "in.jsonl", "out"}
