"""Names of languages, and their codes of two letters."""

import pytest

from seqattn.data.languages import known_language, language_name


@pytest.mark.parametrize(
    ("code", "name", "short"),
    [("de", "German", "de"), ("deu_Latn", "German", "de"), ("pt-BR", "Portuguese", "pt"),
     ("zho_Hans", "Chinese", "zh"), ("nb", "Norwegian", "no"), ("cy", "Welsh", "cy"),
     ("EN_XX", "English", "en")],
)  # fmt: skip
def test_languages_have_names(code, name, short):
    assert language_name(code) == name
    assert known_language(code)[:2] == [name, short]


def test_other_codes_are_their_own_names():
    assert language_name("tok") == "tok"
    assert known_language("tok") == []
