"""The grammar of the demo corpus: phrases, clauses and sentences, spelled out in both languages."""

import re
from dataclasses import dataclass, replace

import translation_lexicon as lexicon
from translation_lexicon import Adjective, Adverb, Case, Determiner, Noun, Verb

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
    words = join(phrase.adjective.english if phrase.adjective else "", name)
    article = determiner.english_plural if phrase.plural else determiner.english
    if article == "a" and words[0] in "aeiou":
        article = "an"
    if phrase.relative is None:
        return join(article, words)
    person = noun.kind in ("person", "name")
    pronoun = ("whom" if phrase.relative.gap == "object" else "who") if person else "which"
    return join(article, words, ",", pronoun, english_clause(phrase.relative), ",")


def english_verb(clause: Clause) -> tuple[str, str]:
    """Give the auxiliary, perhaps empty, and the rest: ("does not", "look for")."""
    verb, tense, plural = clause.verb, clause.tense, clause.subject.plural
    negation = "not" if clause.negated else ""
    if verb is None:
        return join("are" if plural else "is", negation), ""
    base = join(verb.base, verb.particle)
    if tense == "perfect":
        return join("have" if plural else "has", negation), join(verb.participle, verb.particle)
    if tense in MODALS and tense != "want":
        return join(MODALS[tense][0], negation).replace("can not", "cannot"), base
    if negation:
        do = "did" if tense == "past" else "do" if plural else "does"
        return join(do, negation), join("want to" if tense == "want" else "", base)
    if tense == "want":
        return "", join("want" if plural else "wants", "to", base)
    present = verb.base if plural else lexicon.third_person(verb.base)
    return "", join(verb.past if tense == "past" else present, verb.particle)


def english_clause(clause: Clause) -> str:
    """Give a clause without its gap, the same in main and subordinate clauses."""
    auxiliary, verb = english_verb(clause)
    adverb = clause.adverb.english if clause.adverb else ""
    middle = bool(clause.adverb and clause.adverb.position == "mid")
    return join(
        adverb if clause.fronted else "",
        "" if clause.gap == "subject" else english_phrase(clause.subject),
        join(auxiliary, adverb, verb) if middle else join(auxiliary, verb),
        english_phrase(clause.recipient),
        "" if clause.gap == "object" else english_phrase(clause.object),
        clause.adjunct[0],
        "" if clause.fronted or middle else adverb,
    )


def english_sentence(sentence: Sentence) -> str:
    """Give the English text."""
    main, word = english_clause(sentence.main), sentence.conjunction
    if sentence.other is None:
        return finish(main)
    other = english_clause(sentence.other)
    if sentence.first:
        return finish(join(word, other, ",", main))
    return finish(join(main, "," if word in ("although", "but") else "", word, other))


def german_phrase(phrase: Phrase | None, case: Case) -> str:
    """Give "den alten Mann", without the relative clause: German may move that to the end."""
    if phrase is None:
        return ""
    determiner, row = phrase.determiner, "plural" if phrase.plural else phrase.noun.gender
    article = determiner.stem
    if article:
        article += lexicon.ending(lexicon.DETERMINER_ENDINGS[determiner.endings], row, case)
    adjective = ""
    if phrase.adjective:
        endings = lexicon.ADJECTIVE_ENDINGS[determiner.endings]
        adjective = phrase.adjective.stem + lexicon.ending(endings, row, case)
    return join(article, adjective, lexicon.german_noun(phrase.noun, phrase.plural, case))


def german_relative(phrase: Phrase | None) -> str:
    """Give ", den die Frau kennt," or nothing; the pronoun takes its case inside the clause."""
    if phrase is None or phrase.relative is None:
        return ""
    verb, gap = phrase.relative.verb, phrase.relative.gap
    case = lexicon.object_case(verb) if gap == "object" else "nominative"
    pronoun = lexicon.ending(
        lexicon.RELATIVE_PRONOUNS, "plural" if phrase.plural else phrase.noun.gender, case
    )
    return join(",", pronoun, german_clause(phrase.relative, "final"), ",")


def german_verb(clause: Clause) -> tuple[str, str]:
    """Give the finite verb and what stands at the end: ("hat", "gekauft"), ("lädt", "ein")."""
    verb, tense, plural = clause.verb, clause.tense, clause.subject.plural
    if verb is None:
        return "sind" if plural else "ist", ""
    if tense in MODALS:
        return MODALS[tense][1 + plural], verb.prefix + verb.infinitive
    if tense in ("past", "perfect"):
        singular, plurals = ("ist", "sind") if "sein" in verb.notes else ("hat", "haben")
        return plurals if plural else singular, verb.german_participle
    return verb.infinitive if plural else verb.third, verb.prefix


def is_indefinite(phrase: Phrase | None) -> bool:
    """Say whether German negates this object by "kein" rather than by "nicht"."""
    if phrase is None or phrase.noun.kind == "name":
        return False
    return phrase.determiner in (lexicon.A, lexicon.BARE)


def german_clause(clause: Clause, order: str) -> str:
    """Give a clause in one of three orders: verb "second", "first" (after something), "final"."""
    finite, tail = german_verb(clause)
    subject, direct = clause.subject, clause.object
    no = clause.negated and clause.gap != "object" and is_indefinite(direct)
    if direct and no:
        direct = replace(direct, determiner=lexicon.NO)
    adverb = clause.adverb.german if clause.adverb else ""
    names = join(german_phrase(subject, "nominative"), german_relative(subject))
    names = "" if clause.gap == "subject" else names
    middle = join(
        "" if clause.fronted else adverb,
        german_phrase(clause.recipient, "dative"),
        "" if clause.gap == "object" else german_phrase(direct, lexicon.object_case(clause.verb)),
        "nicht" if clause.negated and not no else "",
        clause.adjunct[1],
    )
    after = "" if clause.gap else german_relative(direct)
    if order == "final":
        # A separated prefix rejoins its verb: "lädt ... ein", but "einlädt".
        rejoins = clause.verb is not None and tail == clause.verb.prefix
        return join(names, middle, tail + finite if rejoins else join(tail, finite), after)
    if clause.fronted or order == "first":
        return join(adverb if clause.fronted else "", finite, names, middle, tail, after)
    return join(names, finite, middle, tail, after)


def german_sentence(sentence: Sentence) -> str:
    """Give the German text."""
    main, word = sentence.main, sentence.conjunction
    if sentence.other is None:
        return finish(german_clause(main, "second"))
    if word in COORDINATORS:
        link = join("," if word == "but" else "", COORDINATORS[word])
        other = german_clause(sentence.other, "second")
        return finish(join(german_clause(main, "second"), link, other))
    other = join(CONJUNCTIONS[word][0], german_clause(sentence.other, "final"))
    if sentence.first:
        return finish(join(other, ",", german_clause(main, "first")))
    return finish(join(german_clause(main, "second"), ",", other))


def finish(text: str) -> str:
    """Capitalise a sentence and end it by a period."""
    return text[0].upper() + text[1:].rstrip(",") + "."
