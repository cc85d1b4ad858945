"""Texts and files that cannot be used end in one line, and nothing is written or changed."""

import pickle
import shutil

import pytest

from tests.cli.fork import run_forked
from tests.cli.small import listing, sampled

DEEP, DEEPER = b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 50_000 + b"1" + b"}" * 50_000
LONG_LINE, LONG_NAME = b"x" * 1_000_001, "x" * 300


class Evil:
    def __reduce__(self):
        return (open, ("ran", "w"))


def file(name, content):
    """Puts a file into the folder where the command runs."""

    def make(folder, places):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)

    return make


def corpus(name, content):
    """A copy of the corpus as `c`, one of its files another."""

    def make(folder, places):
        shutil.copytree(places.corpus, folder / "c")
        (folder / "c" / name).write_bytes(content)

    return make


def squad(content):
    def make(folder, places):
        for name in ("train", "dev"):
            file(f"q/{name}.json", content)(folder, places)

    return make


def run_with(name, content):
    """A copy of the run as `r`, one of its files another: bytes, None, or how many are kept."""

    def make(folder, places):
        shutil.copytree(places.run, folder / "r")
        for path in (folder / "r").glob(name):
            whole = path.read_bytes()
            path.unlink()
            if content is not None:
                path.write_bytes(whole[:content] if isinstance(content, int) else content)

    return make


def nothing(folder, places):
    pass


def evaluation(content):
    """An evaluation as `e`, with such scores."""

    def make(folder, places):
        shutil.copytree(places.scored, folder / "e")
        (folder / "e" / "scores.json").write_bytes(content)

    return make


ROWS, LINES, MINE = "input=t.jsonl", "input=t.txt", file("f", b"mine")
HERE = "data.root=c"
SAME = "source and target must have the same number of lines:"
ASKED = b'{"data":[{"paragraphs":[{"context":%b,"qas":[{"id":"1","question":"x","answers":%b}]}]}]}'
# fmt: off
CASES = [
    # texts
    *[("generate", ROWS, file("t.jsonl", content), text) for content, text in (
        (DEEP, "t.jsonl line 1 is not valid JSON"), (DEEPER, "t.jsonl line 1 is not valid"),
        (b'{"document":"\\ud800"}', "t.jsonl line 1 is not valid"), (b"{", "t.jsonl line 1 is not"),
        (b'{"x":1}', "t.jsonl line 1 has no text under"), (b"5", "t.jsonl line 1 is not a JSON ob"),
        (b"\xff", "t.jsonl is not valid UTF-8: line 1"), (LONG_LINE, "t.jsonl: line 1 is longer"),
    )],
    ("generate", LINES, file("t.txt", LONG_LINE), "t.txt: line 1 is longer than 500,000"),
    ("generate", LINES, file("t.txt", b"a\n\xff\xfe"), "t.txt is not valid UTF-8: line 2 has"),
    ("generate", LINES, file("t.txt", b"\xed\xa0\x80"), "t.txt is not valid UTF-8: line 1 has"),
    *[("answer", ROWS, file("t.jsonl", content), text) for content, text in (
        (DEEP, "t.jsonl line 1 is not valid"), (b'{"question":5,"context":"x"}', "t.jsonl line 1"),
        (b'{"question":" ","context":"x"}', "t.jsonl line 1 has an empty question"),
        (b'{"question":"\\ud800","context":"x"}', "t.jsonl line 1 is not valid JSON"),
        (b'{"question":"a"}', "t.jsonl line 1 needs"), (b"[1]", "t.jsonl line 1 is not a JSON ob"),
        (LONG_LINE, "t.jsonl: line 1 is longer"),
        (b'{"question":"a","context":null}', "t.jsonl line 1 needs a question and a context"),
    )],
    ("analyze", f"target={'a|' * 2000}", nothing, "target has 4,0"),
    ("analyze", "text=\udcff", nothing, "text must be text or null, got"),
    ("generate", f"input={LONG_NAME}", nothing, LONG_NAME[:50]),
    ("generate", f"output={LONG_NAME}", nothing, f"cannot write {LONG_NAME[:50]}"),
    ("generate", f"bundle={LONG_NAME}", nothing, f"cannot read {LONG_NAME[:50]}"),
    ("generate", "bundle=a\0b", nothing, "cannot parse the argument 'bundle=a"),
    ("generate", "bundle=\udcff", nothing, "cannot parse the argument 'bundle="),
    ("evaluate", "output=a\0b", nothing, "cannot parse the argument"),
    ("evaluate", f"output={LONG_NAME}", nothing, "cannot write /"),
    ("evaluate", f"data.root={LONG_NAME}", nothing, "cannot read xxx"),
    ("convert", f"output={LONG_NAME}", nothing, f"cannot read {LONG_NAME[:50]}"),
    # files
    ("generate", "output=/dev/full", nothing, "cannot write /dev/full: No space left on device"),
    ("generate", "output=f/out", MINE, "output=f/out: the directory f does not exist"),
    ("generate", "output=/proc/self/out", nothing, "cannot write /proc/self/out"),
    ("generate", "bundle=f", MINE, "bundle f does not exist"),
    ("evaluate", "output=f", MINE, "cannot write f: File exists"),
    ("evaluate", "output=f/x", MINE, "cannot write f/x: Not a directory"),
    ("evaluate", HERE, corpus("test.de", b"a\n"), SAME + " c/test.en has 5"),
    ("evaluate", HERE, corpus("test.de", b"\xff\n" * 5), "c/test.de is not valid UTF-8: line 1"),
    ("evaluate", HERE, corpus("test.en", b""), SAME),
    ("evaluate", HERE, corpus("test.en", LONG_LINE + b"\n" * 5), "c/test.en: line 1 is longer"),
    ("convert", "output=f", MINE, "output=f is a file; choose a directory"),
    ("convert", "output=f/x", MINE, "cannot write"),
    ("convert", "output=c", corpus("x", b"x"), "output=c is not empty; choose another directory"),
    ("analyze", "output=f", MINE, "cannot write f: File exists"),
    ("compare", "output=f", MINE, "cannot write f: File exists"),
    ("compare", "runs=[e]", evaluation(DEEP), "cannot read e/scores.json; evaluate again"),
    ("compare", "runs=[e]", evaluation(b"{"), "cannot read e/scores.json; evaluate again"),
    *[("compare", "runs=[r]", run_with("config.yaml", content), "r: cannot read r/config.yaml")
      for content in (b"[" * 20_000, b"a: 2001-99-99", b"a: &a [1]\nb: [*a,*a]",
                      b"format: seqattn run 3")],
    ("compare", "runs=[f]", MINE, "f is not a run, multirun or evaluation; or skip it with"),
    ("compare", f"runs=[{LONG_NAME}]", nothing, f"cannot read {LONG_NAME[:50]}"),
    *[("train", HERE, corpus(name, content), text) for name, content, text in (
        ("train.de", b"a\n", SAME),
        ("train.de", b"\xff\n" * 60, "c/train.de is not valid UTF-8: line 1"),
        ("train.en", LONG_LINE + b"\n" * 60, "c/train.en: line 1 is longer than"),
        ("val.en", LONG_LINE + b"\n" * 6, "c/val.en: line 1 is longer than"),
    )],
    ("train", "run_dir=f", MINE, "f: File exists"),
    ("train", "run_dir=f/run", MINE, "f/run: Not a directory"),
    ("train", f"run_dir={LONG_NAME}", nothing, LONG_NAME[:50]),
    ("train", "run_dir=/proc/run", nothing, "/proc/run: No such file or directory"),
    ("train", "init_from=f", MINE, "bundle f does not exist"),
    ("train", "resume=f", MINE, "resume=f is not a run: f/overrides.yaml does not exist"),
    # what a run holds
    *[("resume", "", run_with(name, content), text) for name, content, text in (
        ("checkpoints/step-*", None, "resume=r holds no checkpoints/step-*.ckpt"),
        ("config.yaml", None, "resume=r: cannot read r/config.yaml"),
        ("config.yaml", b"{", "resume=r: cannot read r/config.yaml"),
        ("config.yaml", b"\xff", "resume=r: cannot read r/config.yaml"),
        ("config.yaml", b"format: seqattn run 1\n", "resume=r was written by another version"),
        ("overrides.yaml", None, "resume=r is not a run: r/overrides.yaml does not exist"),
        ("overrides.yaml", b"- foo=1\n", "r/overrides.yaml contains 'foo=1', which is not"),
        ("tokenizer/tokenizer.json", b"{", "r/tokenizer/tokenizer.json is not"),
        ("tokenizer/joint.model", b"x", "r/tokenizer/joint.model"),
    )],
    *[("resume", "", run_with("checkpoints/step-*", content), "all checkpoints in r/checkpoints")
      for content in (0, 1000, -100, b"hello", pickle.dumps(Evil()))],
    *[("resume", word, run_with("config.yaml", 10**6), "resume=r cannot change the model")
      for word in ("model.dim=32", "model.encoder_layers=2", "tokenizer.vocab_size=50",
                   "tokenizer.kind=bpe", "position=rope", "attention=gqa",
                   "attention@cross_attention=mqa")],
]
# fmt: on


@pytest.mark.parametrize(("subcommand", "word", "make", "text"), sampled(CASES, every=2))
def test_what_cannot_be_used_is_said_in_one_line(places, subcommand, word, make, text):
    make(places.folder, places)
    if subcommand == "resume":
        subcommand, given = "train", ["resume=r", "trainer.max_steps=6"]
    else:
        subcommand, given = places.usual(subcommand)
    words = [one for one in given if one.partition("=")[0] != word.partition("=")[0]]
    before = listing(places.folder)
    ended = run_forked(subcommand, [*words, *filter(None, [word])], places.folder)
    (places.folder / "r" / "train.log").unlink(missing_ok=True)  # has a line of the refusal
    *_, last = ended.err.splitlines()
    assert ended.code == 2, ended
    assert "Traceback" not in ended.err
    assert last.startswith(f"error: {text}"), ended.err
    before.pop(places.folder / "r" / "train.log", None)
    assert listing(places.folder) == before
