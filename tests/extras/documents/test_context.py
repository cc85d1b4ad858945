"""Lines of documents are generated after those before them and their outputs."""

from itertools import chain

import pytest

import seqattn
from seqattn.bundle.text_options import Split
from seqattn.errors import UserError
from seqattn.extras.documents.breaks import line_breaks
from seqattn.extras.documents.context import DocumentContext, InContext
from seqattn.generation.base import Hypothesis
from seqattn.generation.forced_decoding import target_log_probabilities
from seqattn.generation.generator import InWindow
from seqattn.tokens import EOS
from tests.absent import has_extra
from tests.cli.small import json_lines, pairs, run, train_arguments, write_split
from tests.extras.documents.test_joined_rows import in_documents
from tests.extras.documents.test_lines import bundle_of

LINES = [source for source, _ in in_documents(pairs())]
DOCUMENTS = [LINES[:4], LINES[5:6], LINES[7:10], LINES[15:17]]
TEXTS = ["\n".join(lines) for lines in DOCUMENTS]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    root = tmp_path_factory.mktemp("context") / "corpus"
    write_split(root, "train", in_documents(pairs()))
    write_split(root, "val", [*pairs()][:6])
    documents = "data.documents=lines", "tokenizer=documents", "loader.max_length=80"
    sizes = "model.dim=64", "model.ffn_dim=128", "loader.max_tokens=400", "optimizer.lr=0.004"
    more = *documents, *sizes, "task.final=null", f"run_dir={root.parent}/run"
    seqattn.train(*train_arguments(root, *more, steps=300, every=1000))
    return seqattn.load(root.parent / "run" / "model")


def in_context(bundle, texts, size, **settings):
    read = bundle.lines(texts, split=Split(lambda line, _: [line]))
    option, generator = DocumentContext(size).of(bundle), bundle.generator("greedy", **settings)
    searching = option.generator(bundle, generator, read, range(len(texts)))
    found = searching.generate_windows(bundle.encode(read.lines))
    return [some[0] for some in found], option


@pytest.mark.parametrize("size", [1, 2, 9])
def test_each_line_is_the_likeliest_after_the_lines_and_outputs_before_it(bundle, size):
    lines, (_, line_break) = DOCUMENTS[0], line_breaks(bundle.tokenizer)
    found, option = in_context(bundle, TEXTS[:1], size)
    assert not option.notices()
    for number, one in enumerate(found):
        first = max(0, number - size)
        [[source]] = bundle.encode(["\n".join(lines[first : number + 1])])
        before = [token for some in found[first:number] for token in (*some.ids, line_break)]
        target = [*before, *one.ids, EOS]
        [likely] = target_log_probabilities(bundle.model, [(source, target)])
        assert one.log_probability == pytest.approx(float(likely[len(before) :].sum()), abs=1e-4)
        for length in range(len(before), len(target)):  # no other token is likelier
            others = [
                (source, [*target[:length], token])
                for token in range(EOS, bundle.tokenizer.target_size)
            ]
            each = [float(some[-1]) for some in target_log_probabilities(bundle.model, others)]
            assert max(each) == pytest.approx(float(likely[length]), abs=1e-4)


@pytest.mark.parametrize("search", ["greedy", "beam", "sampling"])
def test_documents_that_are_generated_together_are_as_each_by_itself(bundle, search):
    together = bundle.generate(TEXTS, search, document_context=2)
    assert [text.count("\n") for text in together] == [3, 0, 2, 1]
    if search != "sampling":  # which draws by the number of a text
        assert together == [bundle.generate(text, search, document_context=2) for text in TEXTS]
    small = {"batch_size": 1, "workers": 1}
    assert together == bundle.generate(TEXTS, search, document_context=2, **small)


@pytest.mark.skipif(not has_extra("sentences"), reason="the extra is deleted")
def test_sentences_of_a_line_are_generated_as_lines_are(bundle):
    lines = [f"{line.capitalize()}." for line in LINES[:3]]
    text = bundle.generate("\n".join(lines), document_context=1, sentences="none")
    joined = bundle.generate(" ".join(lines), document_context=1, sentences="en")
    assert joined == text.replace("\n", " ")
    assert text.count("\n") == 2


def test_files_have_documents_between_blank_lines_in_any_share_and_window(bundle, capfd, tmp_path):
    lines = "\n\n".join(TEXTS).split("\n")
    source = tmp_path / "in.txt"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = f"bundle={bundle.path}", f"input={source}", "document_context=2"
    whole = run(capfd, "generate", *words).out.splitlines()
    assert [bool(line) for line in whole] == [bool(line) for line in lines]
    assert "\n".join(whole).split("\n\n") == bundle.generate(TEXTS, document_context=2)
    assert run(capfd, "generate", *words, "window=2").out.splitlines() == whole
    shares = [run(capfd, "generate", *words, f"part={n}/3").out.splitlines() for n in (1, 2, 3)]
    assert [*chain(*shares)] == whole
    assert all(map(len, shares))
    rows = json_lines(run(capfd, "generate", *words, "n_best=2", "format=jsonl").out)
    assert [row["output"] for row in rows if row["rank"] == 1] == whole


def test_a_line_without_an_output_is_generated_by_itself_and_fewer_lines_are_told(bundle):
    class Plain:
        """A generator whose outputs after other lines are empty, or go on with another line."""

        def __init__(self, following):
            self.following = following

        def search_windows(self, sources, indices, progress, constraints):
            before = [one.ids for one in constraints] if constraints else [()] * len(sources)
            return [
                [InWindow(Hypothesis((*ids, *(self.following if ids else (8, 9))), -1.0, -1.0), 0)]
                for ids in before
            ]

    _, line_break = line_breaks(bundle.tokenizer)
    for following, expected, told in (
        ((), (8, 9), ["3 of 4 lines"]),
        ((7, line_break, 8), (7,), []),
    ):
        read = bundle.lines(TEXTS[:1], split=Split(lambda line, _: [line]))
        option = DocumentContext(2).of(bundle)
        generator = option.generator(bundle, bundle.generator("greedy"), read, [0])
        values = {**vars(generator), "plain": Plain(following), "open_workers": object()}
        found = InContext(**values).generate_windows(bundle.encode(read.lines))
        assert [some[0].ids for some in found] == [(8, 9), *[expected] * 3]
        assert [one.partition(" had")[0] for one in option.notices()] == told
    long = bundle.loader.max_length
    _, option = in_context(bundle, ["\n".join(LINES[:4] * (long // 4))], long)
    assert f"lines were generated after fewer than {long} lines" in option.notices()[0]


def test_what_it_cannot_do_is_refused(bundle, capfd, tmp_path):
    with pytest.raises(UserError, match="document_context does not support terms"):
        bundle.generate(TEXTS, document_context=1, terms={"entries": {"dog": "Hund"}})
    with pytest.raises(UserError, match="document_context does not support prefix"):
        bundle.generate(TEXTS, document_context=1, prefix="a")
    with pytest.raises(UserError, match="document_context does not support hypotheses"):
        bundle.hypotheses(TEXTS, document_context=1)
    single = seqattn.load(bundle_of(tmp_path, None))
    with pytest.raises(UserError, match="document_context needs a model that learned documents"):
        single.generate(TEXTS, document_context=1)
    ended = run(capfd, "generate", f"bundle={bundle.path}", "document_context=1")
    assert "document_context needs whole documents; set input=FILE" in ended.err
