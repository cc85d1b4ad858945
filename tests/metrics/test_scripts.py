"""Words of other scripts, and references that a scorer cannot split."""

# ruff: noqa: RUF001

import pytest
from rouge_score.rouge_scorer import RougeScorer as Plain

from seqattn.metrics.rouge import KINDS, RougeScorer, novel_share
from seqattn.metrics.scripts import other_script, script_words, split_words, unsplit
from seqattn.metrics.text import TextScorer, scorer_notices
from tests.growth import grows

CHINESE = "北京今天下雨了，所有的比赛都取消了。"
JAPANESE = "東京では今日、雨が降りました。"
THAI = "วันนี้ฝนตกในกรุงเทพ"
SPACED = {
    "Russian": ("Он идёт домой, быстро.", ["он", "идёт", "домой", "быстро"]),
    "Arabic": ("القاهرة هي العاصمة", ["القاهرة", "هي", "العاصمة"]),
    "Greek": ("Ο σκύλος τρέχει!", ["ο", "σκύλος", "τρέχει"]),
    "Hindi": ("मैं हिन्दी पढ़ता हूँ", ["मैं", "हिन्दी", "पढ़ता", "हूँ"]),
    "Korean": ("나는 학교에 간다.", ["나는", "학교에", "간다"]),
    "Hebrew": ("הכלב רץ הביתה", ["הכלב", "רץ", "הביתה"]),
    "Persian": ("می\u200cروم خانه", ["می\u200cروم", "خانه"]),
    "Georgian": ("ძაღლი გარბის", ["ძაღლი", "გარბის"]),
}


@pytest.mark.parametrize("name", SPACED)
def test_scripts_with_spaces_are_cut_at_spaces(name):
    text, words = SPACED[name]
    assert script_words(text) == words
    assert other_script(text)
    assert not unsplit([text] * 9)


def test_scripts_without_spaces_are_cut_into_letters_with_their_marks():
    assert script_words("我买了2本NBA书。") == ["我", "买", "了", "2", "本", "nba", "书"]
    assert script_words("ที่นี่") == ["ที่", "นี่"]
    assert script_words("東京tower2へ") == ["東", "京", "tower2", "へ"]
    assert script_words("ខ្ញុំ") == ["ខ្", "ញុំ"]
    assert script_words(" !́ ") == script_words("") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("he said: no_one", ["he", "said:", "no_one"]),
        ("Er aß Öl.", ["Er", "aß", "Öl."]),
        ("他说：dog cat。(好)", ["他", "说：", "dog", "cat。(", "好)"]),
        ("「東京」tower2へ", ["「東", "京」", "tower2", "へ"]),
        (" ที่นี่ ", ["ที่", "นี่"]),
        ("나는 간다.", ["나는", "간다."]),
        ("", []),
    ],
)
def test_words_are_split_at_spaces_or_into_letters(text, words):
    assert split_words(text) == words


@pytest.mark.parametrize("text", [CHINESE, JAPANESE, THAI, *(text for text, _ in SPACED.values())])
def test_identical_texts_score_100_and_have_no_novel_words(text):
    found = {one.name: one for one in RougeScorer(resamples=0).score([text], [text], [text])}
    assert [found[name].value for name in KINDS] == [100.0] * 4
    assert "|words:script|" in found["ROUGE-1"].signature
    assert found["novel 1-grams"].value == 0
    assert "|words:script|" in found["novel 1-grams"].signature
    other = "".join(reversed(text))
    assert RougeScorer(resamples=0).score([other], [text])[1].value < 100
    assert novel_share([text], ["x"], 1) == 0 or text.isascii()
    assert novel_share(["雨 dog"], [CHINESE], 1) == 0.5


@pytest.mark.parametrize("text", [SPACED["Russian"][0], CHINESE, "ÄÖÜ öß", "a dog", "١٢٣", "12"])
@pytest.mark.parametrize(
    "other",
    ["1234567890 ......", "A much longer reference in English", CHINESE * 3, "ÄÖÜ", "", "😀"],
)
def test_a_text_scores_100_against_references_that_hold_it_whatever_the_others_are(text, other):
    for row in ([text, other], [other, text, other]):
        one, *_, longest = RougeScorer(resamples=0).score([text], [row])
        assert (one.value, longest.value) == (100, 100)


def test_rouge_of_a_few_characters_is_that_of_their_counts():
    [one, two, *_] = RougeScorer(resamples=0).score(["北京下雨"], ["北京今天下雨"])
    assert one.value == pytest.approx(100 * 2 * 4 / (4 + 6))
    assert two.value == pytest.approx(100 * 2 * 2 / (3 + 5))


@pytest.mark.parametrize(
    "text", ["The β-carotene of 李 Wei.", "Café Ärger naïve", "3.5", "...", "Việt Nam đẹp", "😀 ok"]
)
def test_latin_texts_are_scored_as_the_package_scores_them(text):
    plain = Plain(list(KINDS.values()), use_stemmer=True)
    for hypothesis in (text, "The carotene of Wei", CHINESE):
        want = [100 * plain.score(text, hypothesis)[kind].fmeasure for kind in KINDS.values()]
        scores = RougeScorer(resamples=0).score([hypothesis], [text])
        assert [one.value for one in scores] == want
        assert "words" not in scores[0].signature


def test_rows_are_judged_one_by_one_so_that_batches_do_not_matter():
    texts = [CHINESE, "a dog runs", SPACED["Russian"][0]]
    metric = RougeScorer().corpus()
    for text in texts:
        metric.update([text], [text])
    assert {name: float(value) for name, value in metric.compute().items()} == dict.fromkeys(
        RougeScorer.logged, 100.0
    )


@pytest.mark.parametrize("text", [CHINESE, JAPANESE, THAI])
def test_what_is_split_at_spaces_and_has_none_is_said(text):
    references = [[text], [text, text]]
    for tokenize in ("13a", "intl", "none"):
        [line] = scorer_notices(TextScorer(tokenize=tokenize), references)
        assert f"scorer.tokenize={tokenize} splits at spaces" in line
        assert "scorer.tokenize=zh (Chinese), ja-mecab (Japanese) or char" in line
    for tokenize in ("zh", "char"):
        assert scorer_notices(TextScorer(tokenize=tokenize), references) == []
    assert scorer_notices(RougeScorer(), references) == []
    assert scorer_notices(object(), references) == []


@pytest.mark.parametrize(
    "texts",
    [
        ["他 买 了 这些 书 。"],
        ["a dog runs in Beijing (北京市海淀区)"],
        ["北京"],
        ["", " "],
        [],
        [SPACED["Korean"][0]],
    ],
)
def test_texts_with_words_raise_no_doubt(texts):
    assert scorer_notices(TextScorer(), [texts]) == []


def test_tokenized_references_need_a_scorer_of_tokens():
    tokenized = [["two dogs run , and a cat sleeps ."], ["Mr. Li sits .", "no mark here"]] * 4
    for name in ("13a", "intl"):
        [line] = scorer_notices(TextScorer(tokenize=name), iter(tokenized))
        assert f"are tokenized (spaces before . and ,), but scorer.tokenize={name} expects" in line
        assert "detokenize references and outputs, or set scorer.tokenize=none" in line
    assert scorer_notices(TextScorer(tokenize="none"), tokenized) == []
    assert scorer_notices(TextScorer(), tokenized[:4]) == []  # too few to tell
    plain = [["Two dogs run, and a cat sleeps."], ["Où est-il ?"], ["ls . lists files"], [""]]
    assert scorer_notices(TextScorer(), plain) == []
    unspaced = [*[["no marks at all"]] * 300, *[["but for this ."]] * 20]
    assert scorer_notices(TextScorer(), unspaced) == []


@pytest.mark.parametrize("split", [script_words, split_words])
def test_words_of_any_length_are_split_in_linear_time(split):
    assert not grows(lambda text: split(text * 9), "é")
