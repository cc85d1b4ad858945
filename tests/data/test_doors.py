"""What a file or a disk can do wrong is said in one line, before work and without a crash."""

import os
import resource

import pytest

from seqattn.data.lines import write_lines
from seqattn.data.module import Seq2SeqData
from seqattn.data.options import LoaderOptions
from seqattn.data.source_ids import LONGEST_WHOLE, read_sources
from seqattn.data.sources import ParallelText
from seqattn.data.table import Table
from seqattn.data.text_files import LONGEST_LINE
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.vocabulary import LONGEST_LEARNT, TokenizerConfig, train_tokenizer
from seqattn.errors import UserError
from seqattn.inputs import MAX_DEPTH, check_json, read_json
from seqattn.storage import write_whole
from tests.absent import printed_without
from tests.data.source_helpers import refusal, write_text

DEEP = 100_000


def table(path, content):
    path.write_bytes(content)
    return lambda: Table({"train": str(path)}).load("train")


def test_json_that_nests_too_deeply_is_refused_with_its_line(tmp_path):
    deep = b"[" * DEEP + b"]" * DEEP
    good = b'{"source": "a [[[", "target": "b"}\n'
    says = f"must nest lists and objects at most {MAX_DEPTH} deep, line 2 is deeper"
    lines = table(tmp_path / "t.jsonl", good + b'{"source": ' + deep + b', "target": "b"}\n')
    assert refusal(lines) == f"{tmp_path}/t.jsonl {says}"
    whole = table(tmp_path / "t.json", b'[\n{"source": ' + deep + b', "target": "b"}]\n')
    assert refusal(whole) == f"{tmp_path}/t.json {says}"


def test_brackets_within_texts_do_not_nest(tmp_path):
    many = b"[{" * 2 * MAX_DEPTH
    for text in (b'["' + many + b'", "\\"' + many + b'"]', b"[[], {}" + b", []" * 999 + b"]"):
        check_json([text], tmp_path)
    lists = [b"[" * (MAX_DEPTH // 2), b"[" * (MAX_DEPTH // 2)]
    check_json(lists, tmp_path)
    with pytest.raises(UserError, match="line 3 is deeper"):
        check_json([*lists, b"["], tmp_path)


@pytest.mark.parametrize("half", ["\\ud800", "\\uDC00x", "\\ud800\\ud800", "\\\\\\udfff"])
def test_half_a_surrogate_pair_is_refused_and_a_whole_one_is_a_character(tmp_path, half):
    row = '{"source": "%s", "target": "b"}\n'
    good = row % "\\ud83d\\ude00 \\\\ud800"
    for name, text in (("t.jsonl", good + row % half), ("t.json", f"[{good},{row % half}]")):
        message = refusal(table(tmp_path / name, text.encode()))
        assert message.endswith("is not valid Unicode: line 2 has an unpaired surrogate")
    assert list(table(tmp_path / "t.jsonl", good.encode())()["source"]) == ["😀 \\ud800"]


def test_a_text_with_half_a_pair_is_refused_by_the_tokenizer(tmp_path):
    tokenizer = train_tokenizer(["a b"], ["c d"], TokenizerConfig("bpe"), tmp_path)
    for encode in (tokenizer.encode_source, tokenizer.encode_target, tokenizer.source_offsets):
        assert refusal(lambda encode=encode: encode(["ab", "a\udc80"])) == (
            "text 2 is not valid Unicode: unpaired surrogate U+DC80 at character 2"
        )


def test_a_line_of_a_megabyte_is_refused_with_its_number(tmp_path):
    (tmp_path / "train.en").write_text("a\n" + "x" * (LONGEST_LINE + 1) + "\n")
    (tmp_path / "train.de").write_text("a\nb\n")
    source = ParallelText(str(tmp_path), "en", "de")
    assert refusal(lambda: source.load("train")) == (
        f"{tmp_path}/train.en: line 2 is longer than 1,000,000 bytes; split or truncate it"
    )


def test_a_vocabulary_learns_from_the_beginnings_of_long_texts_and_says_so(tmp_path, capfd):
    config = TokenizerConfig("bpe", vocab_size=9)
    head = "ab " * (LONGEST_LEARNT // 3 + 1)
    head = head[:LONGEST_LEARNT]
    long = train_tokenizer(["ab", head + "cdefghijk" * 100_000], ["ab"], config, tmp_path / "long")
    assert "1 of them (first: line 2) are longer than 20,000 characters" in capfd.readouterr().err
    cut = train_tokenizer(["ab", head], ["ab"], config, tmp_path / "cut")
    assert long.fingerprint == cut.fingerprint
    assert "longer than" not in capfd.readouterr().err


def test_a_text_that_is_read_whole_has_a_longest_length(tmp_path):
    tokenizer = train_tokenizer(["a b"], ["c d"], TokenizerConfig("bpe"), tmp_path)
    long = "a b " * LONGEST_WHOLE
    cutting = LoaderOptions(max_length=9, long_sources="truncate")
    assert refusal(
        lambda: read_sources(["a", long], tokenizer, LoaderOptions(max_length=9))
    ).startswith("text 2 has ")
    assert len(read_sources([long], tokenizer, cutting)[0][0]) == 9


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_signs_that_sentencepiece_keeps_for_itself_come_back(tmp_path, kind):
    texts = ["a▁b ▁ c", "x▅y", "\U0010fffb\U0010fffc\U0010fffd▁", "plain text"] * 4
    tokenizer = train_tokenizer(texts, texts, TokenizerConfig(kind), tmp_path)
    assert tokenizer.decode_target(tokenizer.encode_target(texts)) == texts
    [ids] = train_tokenizer(["ab"], ["ab"], TokenizerConfig(kind), tmp_path).encode_target(["a▁b"])
    plain = train_tokenizer(["ab"], ["ab"], TokenizerConfig(kind), tmp_path)
    assert plain.decode_target([ids]) == ["a⁇b"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.jsonl", '{"source": "a", "target": "b"}\n'),
        ("t.json", '[{"source": "a", "target": "b"}]'),
        ("t.csv", "source,target\na,b\n"),
        ("t.tsv", "source\ttarget\na\tb\n"),
    ],
)
def test_a_byte_order_mark_is_no_text(tmp_path, name, content):
    found = table(tmp_path / name, b"\xef\xbb\xbf" + content.encode())()
    assert (found["source"][:], found["target"][:]) == (["a"], ["b"])
    (tmp_path / "p.json").write_bytes(b'\xef\xbb\xbf{"a": "x"}')
    assert read_json(tmp_path / "p.json", "a file") == {"a": "x"}


def test_a_name_that_no_file_can_have_is_refused(tmp_path):
    name = "x" * 300
    says = "File name too long"
    long = str(tmp_path / name)
    assert says in refusal(lambda: ParallelText(long, "en", "de").load("train"))
    named = ParallelText(str(tmp_path), "en", "de", train=name)
    assert says in refusal(lambda: named.load("train"))
    assert says in refusal(lambda: Table({"train": f"{long}.csv"}).load("train"))
    assert says in refusal(lambda: Table({"train": f"{long}.parquet"}).load("train"))
    assert says in refusal(lambda: Tokenizer.load(tmp_path / name))
    assert says in refusal(lambda: write_whole(tmp_path / name, b""))
    assert says in refusal(lambda: write_lines(["a"], long))


def pairs_in(folder, cache, count=9):
    for split in ("train", "val"):
        write_text(folder, split, [(f"a b {n % 7}",) * 2 for n in range(count)])
    return Seq2SeqData(
        ParallelText(str(folder), "en", "de"), TokenizerConfig("bpe"), None, str(cache)
    )


def test_a_cache_that_cannot_be_made_is_said_in_a_line_and_leaves_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    data = pairs_in(tmp_path, tmp_path / "file" / "cache")
    there = sorted(tmp_path.rglob("*"))
    message = refusal(data.load)
    assert message == f"cannot create {tmp_path}/file/cache/datasets: Not a directory"
    assert sorted(tmp_path.rglob("*")) == there
    (tmp_path / "cache" / "tokens").mkdir(parents=True)
    (tmp_path / "cache" / "tokenizers").write_text("")
    assert "tokenizers" in refusal(pairs_in(tmp_path, tmp_path / "cache").load)


@pytest.mark.parametrize("least", [100, 3_000, 30_000])
def test_a_disk_that_is_full_is_said_in_a_line(tmp_path, least):
    """The limit of a file's size fails as a full disk does, at another place for each limit."""
    data = pairs_in(tmp_path, tmp_path / "cache", count=20_000)
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (least, least))
        try:
            data.load()
        except UserError as error:
            said = str(error)
            os._exit(0 if "File too large" in said and "\n" not in said else 3)
        except BaseException:
            os._exit(2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_package_of_a_bundle_imports_without_its_training():
    program = """
import seqattn.data.base, seqattn.data.batch, seqattn.data.bucketing, seqattn.data.options
import seqattn.data.source_ids
import seqattn.data.text_files, seqattn.data.tokenizer, seqattn.data.vocabulary
print("without")
"""
    absent = ("datasets", "lightning", "hydra", "omegaconf", "pyarrow")
    assert printed_without(absent, program) == "without\n"
