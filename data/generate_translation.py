"""Write the English to German demo corpus, or with ``--check`` verify the files on disk.

    python data/generate_translation.py

Held out of train and val. Every test sentence contains exactly one of the three kinds:

* pair (test lines 1-200): one verb-object pair in ten, such as `buy` + `cake`, chosen by the
  seeded hash in `is_held_out_pair`; in any tense, number and clause, relative clauses included
  ("the cake, which the man buys"). The pairs are listed in demo_translation/README.md;
* tense (lines 201-300): four couples of a conjunction and the tense of the clause it opens:
  because + can, although + perfect, if + want to, that + future;
* nesting (lines 301-400): a relative clause with "whom" or "which" as its object inside a clause
  opened by `although` or `that`; with "who" or "which" as its subject they are in train.

Each word, verb, object, tense, conjunction and relative clause is in train in other company.
"""

import hashlib
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import translation_lexicon as lexicon
from generating import Draws, write
from translation_grammar import (
    CONJUNCTIONS,
    MODALS,
    Clause,
    Phrase,
    Sentence,
    alignment,
    english_sentence,
    german_sentence,
    join,
    prepositional,
)
from translation_lexicon import Adjective, Noun, Verb
from translation_links import marked
from translation_tags import parts_of_speech

SEED = 20
DRAWS = 20_000
SIZES = {"train": 7_200, "val": 300}
TEST_BLOCKS = {"pair": 200, "tense": 100, "nesting": 100}
WORDS_ALLOWED = range(4, 17)
FOLDER = Path(__file__).parent / "demo_translation"

HELD_OUT_TENSES = {("because", "can"), ("although", "perfect"), ("if", "want"), ("that", "future")}
HELD_OUT_NESTING = {"although", "that"}


class Sampler(Draws):
    """Draws random sentences that make sense as far as the kinds in the lexicon can say.

    Args:
        seed: The same seed gives the same sentences in the same order.
    """

    def phrase(self, nouns: Sequence[Noun], negated: bool = False) -> Phrase:
        """Draw a noun phrase whose determiner leaves no doubt about what a negation denies."""
        noun = self.pick(nouns)
        if noun.kind in ("name", "pronoun"):
            return Phrase(noun, plural=bool(noun.english_plural))
        plural = self.chance(0.3)
        allowed = [lexicon.BARE] if plural else []
        for item in lexicon.DETERMINERS:
            exists = item.english_plural if plural else item.english
            owns = item.stem in ("mein", "unser", "sein", "ihr")
            doubtful = negated and not item.negatable
            if exists and not doubtful and not (owns and noun.english in lexicon.NEVER_OWNED):
                allowed.append(item)
        determiner = lexicon.THE if self.chance(0.5) else self.pick(allowed)
        if not (plural or negated) and self.chance(0.25):
            determiner = lexicon.A
        fitting = adjectives_for(noun)
        adjective = self.pick(fitting) if fitting and self.chance(0.25) else None
        return Phrase(noun, determiner, plural, adjective)

    def subject(self, verb: Verb | None, negated: bool, without: str) -> Phrase:
        """Draw a subject, sometimes a name or a pronoun where a person may stand."""
        kinds = verb.subjects if verb else frozenset({"person", "animal", "building", "thing"})
        if "person" in kinds and self.chance(0.25):
            kinds = frozenset({self.pick(("name", "pronoun"))})
        return self.phrase(lexicon.nouns_of(kinds, without), negated)

    def object(self, verb: Verb, negated: bool, without: str) -> Phrase:
        """Draw an object, sometimes a name where a person may stand."""
        named = "person" in verb.objects and self.chance(0.15)
        kinds = frozenset({"name"}) if named else verb.objects
        phrase = self.phrase(lexicon.nouns_of(kinds, without), negated)
        if named or not negated or self.chance(0.6):
            return phrase
        return replace(phrase, determiner=lexicon.BARE if phrase.plural else lexicon.A)

    def adjunct(self, verb: Verb | None, subject: Phrase, negated: bool) -> tuple[str, str]:
        """Draw the predicate of "be", an adverb of manner or a prepositional phrase, or nothing."""
        if verb is None:
            adjective = self.pick(adjectives_for(subject.noun))
            degree = self.pick(lexicon.DEGREES[: 2 if negated else 4])
            english, german = (
                join(marked(degree[side], "degree"), marked(word, "adjective"))
                for side, word in enumerate((adjective.english, adjective.german))
            )
            return english, german
        kind = self.pick(verb.adjuncts) if verb.adjuncts and self.chance(0.3) else ""
        if not kind:
            return "", ""
        if kind == "manner":
            english, german = self.pick(lexicon.MANNERS)
            return marked(english, "manner"), marked(german, "manner")
        english, german, case, after = self.pick(lexicon.PREPOSITIONS[kind])
        phrase = self.phrase(lexicon.nouns_of(frozenset({after}), subject.noun.english))
        return prepositional((english, german), case, phrase)

    def adverb(self, clause: Clause, may_front: bool) -> Clause:
        """Add an adverb of time to a clause that can bear one, perhaps in front."""
        fitting = [
            item
            for item in lexicon.ADVERBS
            if clause.tense in item.tenses
            and (item.negatable or not clause.negated)
            and (may_front or item.position != "front")
        ]
        stative = clause.verb is None or "stative" in clause.verb.notes
        if stative or clause.gap or not fitting or self.chance(0.65):
            return clause
        adverb = self.pick(fitting)
        chosen = adverb.position == "end" and may_front and self.chance(0.5)
        return replace(clause, adverb=adverb, fronted=chosen or adverb.position == "front")

    def clause(
        self,
        verb: Verb | None,
        tense: str,
        about: Phrase | None = None,
        gap: str = "",
        may_front: bool = False,
    ) -> Clause:
        """Draw a clause, or the relative clause with this gap about a phrase."""
        negated = tense != "must" and self.chance(0.2)
        without = about.noun.english if about else ""
        subject = about if about and gap == "subject" else self.subject(verb, negated, without)
        direct = about if gap == "object" else None
        if verb and verb.objects and not direct:
            direct = self.object(verb, negated, subject.noun.english)
        giving = verb is not None and "recipient" in verb.notes
        people = lexicon.nouns_of(frozenset({"person"}), subject.noun.english)
        return self.adverb(
            Clause(
                subject,
                verb,
                tense,
                negated,
                recipient=self.phrase(people, negated) if giving else None,
                object=direct,
                adjunct=("", "") if gap and verb else self.adjunct(verb, subject, negated),
                gap=gap,
            ),
            may_front,
        )

    def relative(self, phrase: Phrase) -> Phrase:
        """Add a relative clause to a phrase, where a verb can be found for it."""
        kinds, gap = {phrase.noun.kind, phrase.noun.english}, self.pick(("subject", "object"))
        tense = self.pick(("present", "present", "past", "perfect", "can", "want"))
        verbs = [
            v for v in verbs_in(tense) if kinds & (v.objects if gap == "object" else v.subjects)
        ]
        if not verbs or phrase.noun.kind == "pronoun" or phrase.determiner.english == "every":
            return phrase
        return replace(phrase, relative=self.clause(self.pick(verbs), tense, phrase, gap))

    def full_clause(self, tense: str, may_front: bool, probability: float = 0.2) -> Clause:
        """Draw a clause that may hold a relative clause about its subject or its object."""
        verb = None if tense == "present" and self.chance(0.15) else self.pick(verbs_in(tense))
        clause = self.clause(verb, tense, may_front=may_front)
        if not self.chance(probability):
            return clause
        # An adverb after "the book, which she reads," would seem to belong to the inner clause.
        kept = clause.adjunct if verb is None else ("", "")
        clause = replace(clause, adverb=None, fronted=False, adjunct=kept)
        if clause.object and not clause.negated and self.chance(0.6):
            return replace(clause, object=self.relative(clause.object))
        return replace(clause, subject=self.relative(clause.subject))

    def sentence(self) -> Sentence:
        """Draw one sentence."""
        tense = self.pick(("present", "present", "past", "perfect", *MODALS))
        form = self.random()
        if form < 0.56:
            return Sentence(self.full_clause(tense, True, probability=0.4))
        if form < 0.62:
            other = self.full_clause(tense, True)
            return Sentence(self.full_clause(tense, True), self.pick(("and", "but")), other)
        word = self.pick(tuple(CONJUNCTIONS))
        _, main_tenses, other_tenses = CONJUNCTIONS[word]
        tense = self.pick(sorted(main_tenses))
        other_tense = "past" if tense == "past" else self.pick(sorted(other_tenses - {"past"}))
        other = self.full_clause(other_tense, False, probability=0.5)
        if word == "that":
            saying = self.pick([verb for verb in lexicon.VERBS if "content" in verb.notes])
            return Sentence(self.clause(saying, tense, may_front=True), word, other)
        first = self.chance(0.4)
        return Sentence(self.full_clause(tense, not first, probability=0.1), word, other, first)


def adjectives_for(noun: Noun) -> list[Adjective]:
    """List the adjectives that may describe a noun; for a name, those for a person."""
    kinds = {"person" if noun.kind in ("name", "pronoun") else noun.kind, noun.english}
    return [adjective for adjective in lexicon.ADJECTIVES if adjective.kinds & kinds]


def verbs_in(tense: str) -> list[Verb]:
    """List the verbs that may stand in a tense without making English ambiguous."""
    verbs = [verb for verb in lexicon.VERBS if "content" not in verb.notes]
    if tense == "past":
        # "They read the book" is past or present, and German must say which.
        verbs = [verb for verb in verbs if verb.past != verb.base]
    return [verb for verb in verbs if tense == "present" or "stative" not in verb.notes]


def is_held_out_pair(verb: Verb, noun: Noun) -> bool:
    """Say whether a verb and its direct or dative object are one of the pairs held out."""
    key = f"{SEED} {join(verb.base, verb.particle)} {noun.english}"
    return noun.kind != "name" and hashlib.sha256(key.encode()).digest()[0] % 10 == 0


def held_out_pairs() -> dict[str, list[str]]:
    """List all the pairs held out, the nouns by verb."""
    pairs = {}
    for verb in lexicon.VERBS:
        nouns = [n.english for n in lexicon.nouns_of(verb.objects) if is_held_out_pair(verb, n)]
        if nouns:
            pairs[join(verb.base, verb.particle)] = nouns
    return pairs


def held_out_kinds(sentence: Sentence) -> set[str]:
    """Name the kinds of held-out combination that a sentence contains."""
    kinds, other = set(), sentence.other
    clauses = [sentence.main] + ([other] if other else [])
    for clause in list(clauses):
        phrases = [phrase for phrase in (clause.subject, clause.object) if phrase]
        relatives = [phrase.relative for phrase in phrases if phrase.relative]
        clauses += relatives
        if clause is other and sentence.conjunction in HELD_OUT_NESTING:
            kinds |= {"nesting" for relative in relatives if relative.gap == "object"}
    if any(c.verb and c.object and is_held_out_pair(c.verb, c.object.noun) for c in clauses):
        kinds.add("pair")
    if other and (sentence.conjunction, other.tense) in HELD_OUT_TENSES:
        kinds.add("tense")
    return kinds


class Pair(NamedTuple):
    """A sentence in both languages, and its structure."""

    english: str
    german: str
    sentence: Sentence


def words(pairs: Sequence[Pair]) -> tuple[set[str], set[str]]:
    """Collect the words of each side."""
    english, german, _ = zip(*pairs, strict=True)
    return set(re.findall(r"\w+", " ".join(english))), set(re.findall(r"\w+", " ".join(german)))


def split() -> dict[str, list[Pair]]:
    """Draw the corpus and divide it into train, val and test."""
    sampler, pools = Sampler(SEED), {kind: dict[str, Pair]() for kind in ("none", *TEST_BLOCKS)}
    for _ in range(DRAWS):
        sentence = sampler.sentence()
        kinds, english = held_out_kinds(sentence) or {"none"}, english_sentence(sentence)
        if len(kinds) == 1 and len(english.split()) in WORDS_ALLOWED:
            pools[kinds.pop()][english] = Pair(english, german_sentence(sentence), sentence)
    seen, size = list(pools["none"].values()), SIZES["train"]
    parts, known = {"train": seen[:size]}, words(seen[:size])

    def understood(pairs: Sequence[Pair], count: int) -> list[Pair]:
        chosen = [
            pair for pair in pairs if all(a <= b for a, b in zip(words([pair]), known, strict=True))
        ]
        if len(chosen) < count:
            raise ValueError(f"DRAWS must give {count} sentences, got {len(chosen)}")
        return chosen[:count]

    parts["val"] = understood(seen[size:], SIZES["val"])
    blocks = [understood(list(pools[kind].values()), n) for kind, n in TEST_BLOCKS.items()]
    parts["test"] = [pair for block in blocks for pair in block]
    return parts


def corpus() -> dict[str, str]:
    """Give the text of each file by its name."""
    texts = {}
    for part, pairs in split().items():
        english, german, sentences = zip(*pairs, strict=True)
        sides = {"en": english, "de": german}
        if part != "train":
            sides["align"] = tuple(map(alignment, sentences))
            sides["pos"] = tuple(map(parts_of_speech, sentences))
        for suffix, lines in sides.items():
            texts[f"{part}.{suffix}"] = "\n".join(lines) + "\n"
    return texts


if __name__ == "__main__":
    sys.exit(write(__doc__, FOLDER, corpus))
