"""The part of speech of each English word, by the tags of the Penn Treebank (Marcus et al. 1993).

The grammar's marks say what a word is; the form of a verb follows from its helper in the same
clause: "looked" is VBN after "has", else VBD, and "buy" is VB after "can", else VBP.
"""

import translation_lexicon as lexicon
from translation_grammar import Sentence, marked_english
from translation_links import names, plain

_TAGS = {
    "adjective": "JJ", "degree": "RB", "manner": "RB", "not": "RB", "prefix": "RP",
    "preposition": "IN",
}  # fmt: skip
_WORDS = {
    "determiner": {"my": "PRP$", "our": "PRP$", "his": "PRP$", "her": "PRP$", "many": "JJ",
                   "two": "CD", "three": "CD", "": "DT"},
    "conjunction": {"and": "CC", "but": "CC", "": "IN"},
    "pronoun": {"which": "WDT", "": "WP"},
    "adverb": {"in": "IN", "on": "IN", "the": "DT", "every": "DT", "last": "JJ", "next": "JJ",
               "day": "NN", "week": "NN", "evening": "NN", "sunday": "NNP", "": "RB"},
    "finite": {"is": "VBZ", "has": "VBZ", "does": "VBZ", "wants": "VBZ", "are": "VBP",
               "have": "VBP", "do": "VBP", "want": "VBP", "did": "VBD", "to": "TO", "": "MD"},
}  # fmt: skip
_KINDS = {"name": ("NNP", "NNP"), "pronoun": ("PRP", "PRP")}
_NOUNS = {
    form: _KINDS.get(noun.kind, ("NN", "NNS"))[number]
    for noun in lexicon.NOUNS
    for number, form in enumerate((noun.english, noun.english_plural))
}
_BASES = {verb.base for verb in lexicon.VERBS}


def parts_of_speech(sentence: Sentence) -> str:
    """Give a tag for each word of the English text, words as they stand between spaces."""
    tags, helpers = [], dict[str, str]()
    for spelt in marked_english(sentence).split():
        word = plain(spelt).strip(",.")
        word = word if word in _NOUNS else word.lower()
        marks = names(spelt)
        clause, _, kind = marks[0].rpartition(".")
        kind = "adverb" if kind.isdigit() else "finite" if word in ("do", "does") else kind
        if kind == "noun":
            tag = _NOUNS[word]
        elif kind == "verb":
            tag = _verb(word, helpers.get(clause), past=len(marks) > 1)
        else:
            known = _WORDS.get(kind, {"": _TAGS.get(kind, "")})
            tag = known.get(word, known[""])
        if kind == "finite":
            tag = "VB" if word == "want" and clause in helpers else tag
            helpers[clause] = word
        tags.append(tag)
    return " ".join(tags)


def _verb(word: str, helper: str | None, past: bool) -> str:
    if helper is not None:
        return "VBN" if helper in ("has", "have") else "VB"
    return "VBD" if past else "VBP" if word in _BASES else "VBZ"
