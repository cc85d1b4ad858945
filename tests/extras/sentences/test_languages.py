"""Names of languages and their rules."""

import pytest
import sentencex

from seqattn.errors import UserError
from seqattn.extras.sentences.languages import LANGUAGES, RULES, find_language, language_code


@pytest.mark.parametrize(
    ("names", "code"),
    [
        ("de deu ger DE deu_Latn de-AT de_DE de_DE.UTF-8 de-DE-1996", "de"),
        ("en eng en_XX en-GB eng_Latn", "en"),
        ("zh zho chi cmn yue zh-Hans zho_Hant zh_CN zh-TW cmn_Hans", "zh"),
        ("ar ara arb_Arab ar-EG ar_AR", "ar"),
        ("pt pt-BR por_Latn", "pt"),
        ("he iw heb", "he"),
        ("sq als_Latn", "sq"),  # Alemannic to sentencex
        ("gsw gsw-CH", "gsw"),
        ("ceb ceb_Latn", "ceb"),
    ],
)
def test_people_name_a_language_in_many_ways(names, code):
    assert {language_code(name) for name in names.split()} == {code}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("german", "did you mean de?"),
        ("english", "did you mean en?"),
        ("deutsch", "did you mean de?"),
        ("tuk1", "did you mean tk?"),
        ("AUTO", "did you mean auto?"),
        ("none", "did you mean none?"),
        ("yes", "give auto, none or a code such as de, zho_Hans or pt-BR"),
        ("True", "give auto, none or a code such as de, zho_Hans or pt-BR"),
        ("false", "give auto, none or a code such as de, zho_Hans or pt-BR"),
        ("", "give auto, none or a code such as de, zho_Hans or pt-BR"),
        ("42", "give auto, none or a code such as de, zho_Hans or pt-BR"),
        ("\ud800\n", "give auto, none or a code such as de, zho_Hans or pt-BR"),
        ("q" * 10**6, "give auto, none or a code such as de, zho_Hans or pt-BR"),
    ],
)
def test_an_unknown_name_is_refused_in_a_line(name, hint):
    assert find_language(name) is None
    with pytest.raises(UserError, match=r"unknown language '.*; ") as caught:
        language_code(name)
    assert str(caught.value).endswith(f"; {hint}")
    assert len(str(caught.value)) < 200
    assert str(caught.value).isprintable()


def test_the_languages_with_rules_are_those_of_the_package():
    def ends(code):
        texts = "Xyz bs. as. abc", "Xyz a. Abc"  # whose abbreviations are English or not
        return [sentencex.segment(code, text) for text in texts]

    assert {code for code in LANGUAGES if ends(code) != ends("")} == RULES - {"en"}
    assert ends("en") == ends("")
