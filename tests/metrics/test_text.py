"""BLEU in batches is sacrebleu's BLEU of the whole."""

import random
from types import SimpleNamespace

import pytest
import sacrebleu
from sacrebleu.metrics import CHRF

from seqattn.errors import UserError
from seqattn.metrics.rouge import RougeScorer
from seqattn.metrics.several import SeveralScorers, check_sentences
from seqattn.metrics.text import TextScore, TextScorer, lower_is_better, named
from tests.metrics.error_scorer import ErrorScorer
from tests.metrics.joined import joined

WORDS = ["the", "dog", "runs", ",", "it's", "not", "well-known", "3.5", "Hund", "(so)", ".", "A"]


def corpus(seed, sentences=23):
    """References, and hypotheses that keep most of their words; one is empty, one alike."""
    source = random.Random(seed)
    references = [
        " ".join(source.choices(WORDS, k=source.randint(1, 12))) for _ in range(sentences)
    ]
    hypotheses = []
    for reference in references:
        words = [word for word in reference.split() if source.random() > 0.2]
        hypotheses.append(" ".join(words + source.choices(WORDS, k=source.randint(0, 2))))
    hypotheses[5], hypotheses[9] = "", references[9]
    return hypotheses, references


def in_batches(metric, hypotheses, references, sizes=(1, 4, 7, 100)):
    start = 0
    for size in sizes:
        metric.update(hypotheses[start : start + size], references[start : start + size])
        start += size
    return metric


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("tokenize", "lowercase"), [("none", False), ("13a", True)])
def test_bleu_over_batches_is_sacrebleus_of_the_corpus(seed, tokenize, lowercase):
    hypotheses, references = corpus(seed)
    metric = TextScorer(tokenize, lowercase).corpus()
    whole = sacrebleu.corpus_bleu(
        hypotheses, [references], tokenize=tokenize, lowercase=lowercase, force=True
    )
    assert 20 < whole.score < 90
    score = in_batches(metric, hypotheses, references).compute()
    assert float(score["bleu"]) == pytest.approx(whole.score, rel=1e-6)
    chrf = CHRF(lowercase=lowercase).corpus_score(hypotheses, [references])
    assert float(score["chrF"]) == pytest.approx(chrf.score, rel=1e-6)


@pytest.mark.parametrize(
    "hypotheses", [[""], ["", ""], ["dog"], ["x y z w v"], ["the dog runs , it's not"]]
)
def test_the_edges_are_sacrebleus(hypotheses):
    references = ["the dog runs , it's not .", "well-known"][: len(hypotheses)]
    metric = TextScorer("none").corpus()
    metric.update(hypotheses, references)
    whole = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="none", force=True)
    assert float(metric.compute()["bleu"]) == pytest.approx(whole.score, rel=1e-6)
    chrf = CHRF().corpus_score(hypotheses, [references])
    assert float(metric.compute()["chrF"]) == pytest.approx(chrf.score, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "key"),
    [("BLEU", "bleu"), ("chrF", "chrF"), ("ROUGE-1", "rouge1"), ("ROUGE-Lsum", "rougeLsum"),
     ("EM", "em"), ("F1", "f1"), ("NoAns F1", "NoAns_f1"), ("novel 2-grams", "novel_2-grams")],
)  # fmt: skip
def test_a_bundle_keeps_a_score_by_the_name_that_a_run_logs(name, key):
    assert named([TextScore(name, 1.0, "")], "val")[f"val/{key}"] == 1.0


def test_the_states_of_two_ranks_add_up_to_the_whole():
    hypotheses, references = corpus(7)
    scorer = TextScorer("13a")
    whole, left, right = scorer.corpus(), scorer.corpus(), scorer.corpus()
    whole.update(hypotheses, references)
    left.update(hypotheses[::2], references[::2])
    right.update(hypotheses[1::2], references[1::2])
    joined(left, right)
    assert left.compute() == whole.compute()


@pytest.mark.parametrize("scorer", [TextScorer(), RougeScorer()])
def test_a_batch_without_a_text_to_score_changes_nothing(scorer):
    assert_unchanged_by_nothing(scorer)


def assert_unchanged_by_nothing(scorer):
    metric, same = scorer.corpus(), scorer.corpus()
    for one in (metric, same):
        one.update(["the dog runs"], ["the dog ran"])
    metric.update([], [])
    assert metric.compute() == same.compute()


def test_a_tokenizer_that_is_not_installed_is_refused_at_once(monkeypatch):
    def absent(**options):
        raise RuntimeError("\nneeds extra\ndependencies")

    monkeypatch.setattr("seqattn.metrics.text.BLEU.__init__", lambda self, **options: absent())
    with pytest.raises(UserError, match=r"^tokenize cannot be 13a: needs extra dep"):
        TextScorer("13a")


def test_reset_forgets_and_unequal_sides_are_refused():
    metric = TextScorer("none").corpus()
    metric.update(["the dog runs , it's not"], ["the dog runs , it's not"])
    assert float(metric.compute()["bleu"]) == pytest.approx(100)
    metric.reset()
    assert float(metric.compute()["bleu"]) == float(metric.compute()["chrF"]) == 0
    with pytest.raises(UserError, match=r"^references must have one entry per text, got 1 "):
        metric.update(["a", "b"], ["a"])


def test_a_scorer_gives_sacrebleus_figures_with_their_signatures():
    hypotheses, references = corpus(3)
    bleu, chrf = TextScorer("none").score(hypotheses, references)
    theirs = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="none", force=True)
    assert (bleu.name, chrf.name) == ("BLEU", "chrF")
    assert bleu.value == theirs.score
    assert chrf.value == sacrebleu.corpus_chrf(hypotheses, [references]).score
    version = sacrebleu.__version__
    assert bleu.signature == f"nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:{version}"
    assert chrf.signature == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}"


def test_the_signature_says_how_texts_were_compared():
    folded = TextScorer("13a", lowercase=True).score(["A dog"], ["a Dog"])
    assert folded[1].value == 100
    assert "case:lc" in folded[0].signature
    assert "tok:13a" in folded[0].signature
    assert "case:lc" in folded[1].signature


def test_several_references_are_sacrebleus_even_in_unequal_numbers():
    hypotheses, references = corpus(4)
    _, others = corpus(5)
    pairs = [[one, two] for one, two in zip(references, others, strict=True)]
    bleu, chrf = TextScorer("none").score(hypotheses, pairs)
    theirs = sacrebleu.corpus_bleu(hypotheses, [references, others], tokenize="none", force=True)
    assert bleu.value == theirs.score
    assert chrf.value == sacrebleu.corpus_chrf(hypotheses, [references, others]).score
    assert "nrefs:2|" in bleu.signature
    assert TextScorer("none").score(hypotheses, [[one] for one in references]) == (
        TextScorer("none").score(hypotheses, references)
    )
    # a reference that is there twice decides nothing
    unequal = [[one, two][: 1 + place % 2] for place, (one, two) in enumerate(pairs)]
    same = [[row[0], row[-1]] for row in unequal]
    some, twice = (TextScorer("none").score(hypotheses, rows) for rows in (unequal, same))
    assert [score.value for score in some] == [score.value for score in twice]
    assert "nrefs:var|" in some[0].signature


@pytest.mark.parametrize(
    ("references", "message"),
    [
        (["a"], "references must have one entry per text, got 1 for 2 texts"),
        ([["a"], []], "each text must have a reference, but row 2 has none"),
    ],
)
def test_a_text_without_a_reference_is_refused(references, message):
    with pytest.raises(UserError) as caught:
        TextScorer("none").score(["a", "b"], references)
    assert str(caught.value) == message
    with pytest.raises(UserError, match="there are no texts to score"):
        TextScorer("none").score([], [])


def test_several_scorers_give_the_scores_of_each():
    hypotheses, references = corpus(3)
    each = [TextScorer(), ErrorScorer()]
    both = SeveralScorers(each)
    assert both.score(hypotheses, references) == [
        score for one in each for score in one.score(hypotheses, references)
    ]
    metric = both.corpus()
    in_batches(metric, hypotheses, references)
    alone = {}
    for one in each:
        single = one.corpus()
        in_batches(single, hypotheses, references)
        alone |= single.compute()
    assert metric.compute() == alone
    assert [*alone] == [*both.logged] == ["bleu", "chrF", "ter"]
    metric.reset()
    in_batches(metric, hypotheses, references)
    assert metric.compute() == alone
    rows = [[text] for text in references]
    assert [one.name for one in both.sentences(hypotheses, rows)] == ["BLEU", "chrF", "TER"]
    assert lower_is_better(both, "TER")
    assert not lower_is_better(both, "BLEU")
    own = SeveralScorers([*each, SimpleNamespace(logged=("own",))])
    assert not hasattr(own, "sentences")
    with pytest.raises(UserError, match=r"^tune needs .* which SimpleNamespace lacks"):
        check_sentences(own, "tune")


def test_two_scorers_of_one_score_are_refused():
    with pytest.raises(UserError, match=r"^task.scorer lists two scorers of bleu; remove one of"):
        SeveralScorers([TextScorer(), TextScorer("none")])
