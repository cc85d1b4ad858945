"""The grammar of the demo corpus: phrases, clauses and sentences, spelled out in both languages."""

import re
from dataclasses import dataclass, replace

import translation_lexicon as lexicon
from translation_lexicon import Adjective, Adverb, Case, Determiner, Noun, Verb
from translation_links import each_marked, links, marked, plain, under

# English modal, German singular and plural; the keys are the names of the tenses.
MODALS = {
    "future": ("will", "wird", "werden"),
    "can": ("can", "kann", "können"),
    "must": ("must", "muss", "müssen"),
    "should": ("should", "sollte", "sollten"),
    "want": ("want to", "will", "wollen"),
}
TENSES = frozenset({"present", "past", "perfect", *MODALS})
NOT_PAST = TENSES - {"past"}
PLAIN = frozenset({"present", "past"})
# German, tenses of the main clause, tenses of the clause that the conjunction opens.
CONJUNCTIONS = {
    "because": ("weil", TENSES, TENSES),
    "although": ("obwohl", TENSES, TENSES),
    "if": ("wenn", NOT_PAST - {"perfect"}, NOT_PAST - {"future", "should"}),
    "while": ("während", PLAIN, PLAIN),
    "that": ("dass", frozenset({"present"}), NOT_PAST),
}
COORDINATORS = {"and": "und", "but": "aber"}


@dataclass(frozen=True)
class Phrase:
    """A noun phrase, with the relative clause about it if it has one."""

    noun: Noun
    determiner: Determiner = lexicon.BARE
    plural: bool = False
    adjective: Adjective | None = None
    relative: "Clause | None" = None


@dataclass(frozen=True)
class Clause:
    """A clause; `gap` names the part, subject or object, that a relative pronoun replaces.

    The verb "be" is None, with its predicate as the adjunct.
    """

    subject: Phrase
    verb: Verb | None
    tense: str
    negated: bool = False
    recipient: Phrase | None = None
    object: Phrase | None = None
    adjunct: tuple[str, str] = ("", "")
    adverb: Adverb | None = None
    fronted: bool = False
    gap: str = ""


@dataclass(frozen=True)
class Sentence:
    """A main clause, alone or joined to another one, which stands in front if `first`."""

    main: Clause
    conjunction: str = ""
    other: Clause | None = None
    first: bool = False


def join(*parts: str) -> str:
    """Join the parts that are not empty by spaces, a comma drawn to the word before it."""
    text = " ".join(filter(None, parts))
    return re.sub(r"(\s*,)+", ",", text) if "," in text else text


def english_phrase(phrase: Phrase | None) -> str:
    """Give "the old man, whom the woman knows,"."""
    if phrase is None:
        return ""
    noun, determiner = phrase.noun, phrase.determiner
    name = noun.english_plural if phrase.plural else noun.english
    adjective = marked(phrase.adjective.english, "adjective") if phrase.adjective else ""
    words = join(adjective, marked(name, "noun"))
    article = determiner.english_plural if phrase.plural else determiner.english
    if article == "a" and words[0] in "aeiou":
        article = "an"
    article = marked(article, "determiner")
    if phrase.relative is None:
        return join(article, words)
    person = noun.kind in ("person", "name")
    pronoun = ("whom" if phrase.relative.gap == "object" else "who") if person else "which"
    clause = under("relative", english_clause(phrase.relative))
    return join(article, words, ",", marked(pronoun, "pronoun"), clause, ",")


def english_verb(clause: Clause) -> tuple[str, str]:
    """Give the auxiliary, perhaps empty, and the rest: ("does not", "look for").

    What one language says by an auxiliary and the other by its verb alone is possibly linked:
    "took" to "hat", "does" and "to" to the verb.
    """
    verb, tense, plural = clause.verb, clause.tense, clause.subject.plural
    negation = _denying("not") if clause.negated else ""
    if verb is None:
        return join(marked("are" if plural else "is", "finite"), negation), ""
    particle = marked(marked(verb.particle, "prefix"), "verb", sure=False)
    base = join(marked(verb.base, "verb"), particle)
    if tense == "perfect":
        auxiliary = marked("have" if plural else "has", "finite")
        return join(auxiliary, negation), join(marked(verb.participle, "verb"), particle)
    if tense in MODALS and tense != "want":
        if negation and tense == "can":
            return _denying(marked("cannot", "finite")), base
        return join(marked(MODALS[tense][0], "finite"), negation), base
    to = marked(marked("to", "finite", sure=False), "verb", sure=False)
    if negation:
        do = "did" if tense == "past" else "do" if plural else "does"
        helped = "verb" if tense == "present" else "finite"
        wants = join(marked("want", "finite"), to) if tense == "want" else ""
        return join(marked(do, helped, sure=tense == "past"), negation), join(wants, base)
    if tense == "want":
        return "", join(marked("want" if plural else "wants", "finite"), to, base)
    if tense == "past":  # German has an auxiliary, too
        return "", join(marked(marked(verb.past, "verb"), "finite", sure=False), particle)
    present = verb.base if plural else lexicon.third_person(verb.base)
    return "", join(marked(present, "verb"), particle)


def _denying(word: str) -> str:
    """Mark an English word that German renders by "nicht", or by "kein" before the object."""
    return marked(marked(word, "not"), "object.not")


def english_clause(clause: Clause) -> str:
    """Give a clause without its gap, the same in main and subordinate clauses."""
    auxiliary, verb = english_verb(clause)
    adverb = under("adverb", each_marked(clause.adverb.english)) if clause.adverb else ""
    middle = bool(clause.adverb and clause.adverb.position == "mid")
    return join(
        adverb if clause.fronted else "",
        "" if clause.gap == "subject" else under("subject", english_phrase(clause.subject)),
        join(auxiliary, adverb, verb) if middle else join(auxiliary, verb),
        under("recipient", english_phrase(clause.recipient)),
        "" if clause.gap == "object" else under("object", english_phrase(clause.object)),
        under("adjunct", clause.adjunct[0]),
        "" if clause.fronted or middle else adverb,
    )


def english_sentence(sentence: Sentence) -> str:
    """Give the English text."""
    return plain(marked_english(sentence))


def marked_english(sentence: Sentence) -> str:
    """Give the English text with its marks."""
    main, word = english_clause(sentence.main), marked(sentence.conjunction, "conjunction")
    if sentence.other is None:
        return finish(main)
    other = under("other", english_clause(sentence.other))
    if sentence.first:
        return finish(join(word, other, ",", main))
    comma = "," if sentence.conjunction in ("although", "but") else ""
    return finish(join(main, comma, word, other))


def german_phrase(phrase: Phrase | None, case: Case) -> str:
    """Give "den alten Mann", without the relative clause: German may move that to the end."""
    if phrase is None:
        return ""
    determiner, row = phrase.determiner, "plural" if phrase.plural else phrase.noun.gender
    article = determiner.stem
    if article:
        article += lexicon.ending(lexicon.DETERMINER_ENDINGS[determiner.endings], row, case)
    denies = determiner is lexicon.NO
    article = marked(article, "determiner", sure=not denies)
    article = marked(article, "not") if denies else article
    adjective = ""
    if phrase.adjective:
        endings = lexicon.ADJECTIVE_ENDINGS[determiner.endings]
        adjective = phrase.adjective.stem + lexicon.ending(endings, row, case)
    noun = lexicon.german_noun(phrase.noun, phrase.plural, case)
    return join(article, marked(adjective, "adjective"), marked(noun, "noun"))


def prepositional(words: tuple[str, str], case: Case, phrase: Phrase) -> tuple[str, str]:
    """Give ("in the garden", "im Garten").

    Of an English preposition of several words one is surely linked, "front" or "next".
    """
    several = words[0].split()
    english = [
        marked(word, "preposition", sure=word in (words[0], "front", "next")) for word in several
    ]
    german = join(marked(words[1], "preposition"), german_phrase(phrase, case))
    if plain(german).startswith("in dem "):
        both = marked(marked("im", "preposition"), "determiner", sure=False)
        german = join(both, german.split(" ", 2)[2])
    return join(*english, english_phrase(phrase)), german


def german_relative(phrase: Phrase | None) -> str:
    """Give ", den die Frau kennt," or nothing; the pronoun takes its case inside the clause."""
    if phrase is None or phrase.relative is None:
        return ""
    verb, gap = phrase.relative.verb, phrase.relative.gap
    case = lexicon.object_case(verb) if gap == "object" else "nominative"
    pronoun = lexicon.ending(
        lexicon.RELATIVE_PRONOUNS, "plural" if phrase.plural else phrase.noun.gender, case
    )
    clause = under("relative", german_clause(phrase.relative, "final"))
    return join(",", marked(pronoun, "pronoun"), clause, ",")


def german_verb(clause: Clause, final: bool) -> tuple[str, str]:
    """Give the finite verb and what stands at the end: ("hat", "gekauft"), ("lädt", "ein").

    In a `final` clause a separated prefix rejoins its verb: ("einlädt", "").
    """
    verb, tense, plural = clause.verb, clause.tense, clause.subject.plural
    if verb is None:
        return marked("sind" if plural else "ist", "finite"), ""
    if tense in MODALS:
        infinitive = marked(verb.prefix + verb.infinitive, "verb")
        return marked(MODALS[tense][1 + plural], "finite"), infinitive
    if tense in ("past", "perfect"):
        singular, plurals = ("ist", "sind") if "sein" in verb.notes else ("hat", "haben")
        auxiliary = marked(plurals if plural else singular, "finite")
        return auxiliary, marked(verb.german_participle, "verb")
    present = verb.infinitive if plural else verb.third
    if final:
        return marked(verb.prefix + present, "verb"), ""
    prefix = marked(marked(verb.prefix, "prefix"), "verb", sure=not verb.particle)
    return marked(present, "verb"), prefix


def is_indefinite(phrase: Phrase | None) -> bool:
    """Say whether German negates this object by "kein" rather than by "nicht"."""
    if phrase is None or phrase.noun.kind == "name":
        return False
    return phrase.determiner in (lexicon.A, lexicon.BARE)


def german_clause(clause: Clause, order: str) -> str:
    """Give a clause in one of three orders: verb "second", "first" (after something), "final"."""
    finite, tail = german_verb(clause, order == "final")
    subject, direct = clause.subject, clause.object
    no = clause.negated and clause.gap != "object" and is_indefinite(direct)
    if direct and no:
        direct = replace(direct, determiner=lexicon.NO)
    adverb = under("adverb", each_marked(clause.adverb.german)) if clause.adverb else ""
    names = under("subject", join(german_phrase(subject, "nominative"), german_relative(subject)))
    names = "" if clause.gap == "subject" else names
    case = lexicon.object_case(clause.verb)
    middle = join(
        "" if clause.fronted else adverb,
        under("recipient", german_phrase(clause.recipient, "dative")),
        "" if clause.gap == "object" else under("object", german_phrase(direct, case)),
        marked("nicht", "not") if clause.negated and not no else "",
        under("adjunct", clause.adjunct[1]),
    )
    after = "" if clause.gap else under("object", german_relative(direct))
    if order == "final":
        return join(names, middle, tail, finite, after)
    if clause.fronted or order == "first":
        return join(adverb if clause.fronted else "", finite, names, middle, tail, after)
    return join(names, finite, middle, tail, after)


def german_sentence(sentence: Sentence) -> str:
    """Give the German text."""
    return plain(marked_german(sentence))


def marked_german(sentence: Sentence) -> str:
    """Give the German text with its marks."""
    main, word = sentence.main, sentence.conjunction
    if sentence.other is None:
        return finish(german_clause(main, "second"))
    if word in COORDINATORS:
        link = join("," if word == "but" else "", marked(COORDINATORS[word], "conjunction"))
        other = under("other", german_clause(sentence.other, "second"))
        return finish(join(german_clause(main, "second"), link, other))
    opening = marked(CONJUNCTIONS[word][0], "conjunction")
    other = join(opening, under("other", german_clause(sentence.other, "final")))
    if sentence.first:
        return finish(join(other, ",", german_clause(main, "first")))
    return finish(join(german_clause(main, "second"), ",", other))


def alignment(sentence: Sentence) -> str:
    """Give the links from English words to German ones, as `links` writes them."""
    return links(marked_english(sentence), marked_german(sentence))


def finish(text: str) -> str:
    """Capitalise a sentence and end it by a period."""
    return text[0].upper() + text[1:].rstrip(",") + "."
