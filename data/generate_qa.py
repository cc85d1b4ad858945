"""Write the question answering demo corpus, or with ``--check`` verify the files on disk.

    python data/generate_qa.py

Short stories in SQuAD's format. People go to places, take things and hand them on, have a job, get
up at an hour and eat; who moves or hands on does it once or twice, and "Later" opens the second
time, which is the one that counts for where they are now and who has the thing now.

Held out of train and val: one in eight pairs of a name with a place, an object or a job, chosen by
the seeded hash in `is_held_out`. Every test question is about such a pair; each name, place, object
and job of test is in train in other company.
"""

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import qa_lexicon as lexicon
from generating import Draws, write

SEED = 31
SIZES = {"train": 540, "val": 60, "test": 110}
QUESTIONS = {"train": 6, "val": 6, "test": 3}
FOLDER = Path(__file__).parent / "demo_qa"


@dataclass(frozen=True)
class Question:
    """A question, its answer, and what it is about.

    Args:
        text: The question.
        answer: What stands in `sentence` and answers it.
        sentence: The sentence that says so.
        pair: The name and the thing that the sentence brings together.
    """

    text: str
    answer: str
    sentence: str
    pair: tuple[str, str]


@dataclass(frozen=True)
class Fact:
    """Sentences that must come in this order, what may be asked, and the pairs they hold."""

    sentences: tuple[str, ...]
    questions: tuple[Question, ...]
    pairs: tuple[tuple[str, str], ...]


class Sampler(Draws):
    """Draws random stories.

    Args:
        seed: The same seed gives the same stories in the same order.
    """

    def move(self, name: str, places: Sequence[str]) -> Fact:
        """Tell where somebody goes, and perhaps where after that."""
        sentences = [f"{name} {self.pick(lexicon.MOVES).format(place)}." for place in places]
        sentences[1:] = [f"Later {sentence}" for sentence in sentences[1:]]
        pair = (name, places[-1])
        asked = Question(f"Where is {name}?", places[-1], sentences[-1], pair)
        return Fact(tuple(sentences), (asked,), tuple((name, place) for place in places))

    def thing(self, thing: str, people: Sequence[str]) -> Fact:
        """Tell who takes a thing, and perhaps to whom it is given."""
        first, last = people[0], people[-1]
        colour = self.pick(lexicon.COLOURS)
        took = f"{first} {self.pick(lexicon.TAKES).format(f'{colour} {thing}')}."
        gave = f"Later {first} gave the {thing} to {last}."
        told = (took, gave)[: len(people)]
        pair = (last, thing)
        asked = [
            Question(f"Who has the {thing}?", last, told[-1], pair),
            Question(f"What colour is the {thing}?", colour, took, (first, thing)),
        ]
        if len(people) == 2:
            asked.append(Question(f"Who gave the {thing} to {last}?", first, gave, (first, thing)))
            asked.append(Question(f"What did {first} give to {last}?", thing, gave, pair))
        return Fact(told, tuple(asked), tuple((name, thing) for name in people))

    def habits(self, people: Sequence[str]) -> list[Fact]:
        """Tell somebody's job, when somebody gets up, and what somebody eats."""
        worker, riser, eater = people
        job = self.pick(lexicon.JOBS)
        works = f"{worker} is a {job}."
        jobs = (
            Question(f"What is the job of {worker}?", job, works, (worker, job)),
            Question(f"Who is a {job}?", worker, works, (worker, job)),
        )
        hour = self.pick(lexicon.MINUTES) + self.pick(lexicon.HOURS)
        rises = f"{riser} got up at {hour}."
        when = Question(f"When did {riser} get up?", hour, rises, ("", ""))
        food = " and ".join(self.draw(lexicon.FOODS, 1 + int(self.random() * 2)))
        eats = f"{eater} ate {food}."
        what = Question(f"What did {eater} eat?", food, eats, ("", ""))
        return [
            Fact((works,), jobs, ((worker, job),)),
            Fact((rises,), (when,), ()),
            Fact((eats,), (what,), ()),
        ]

    def facts(self) -> list[Fact]:
        """Draw what happens in a story."""
        people = self.draw(lexicon.NAMES, 4)
        places = self.draw(lexicon.PLACES, 4)
        things = self.draw(lexicon.OBJECTS, 2)
        return [
            self.move(people[0], places[:2]),
            self.move(people[1], places[2:3]),
            self.thing(things[0], self.draw(people, 2)),
            self.thing(things[1], self.draw(people, 1)),
            *self.habits(self.draw(people, 3)),
        ]

    def story(self, facts: Sequence[Fact]) -> list[str]:
        """Mix the sentences of the facts, each fact's own in their order."""
        places = [number for number, fact in enumerate(facts) for _ in fact.sentences]
        left = [list(fact.sentences) for fact in facts]
        told = [left[number].pop(0) for number in self.draw(places, len(places))]
        for filler in self.draw(lexicon.FILLERS, int(self.random() * 3)):
            told.insert(int(self.random() * (len(told) + 1)), filler)
        return told


def is_held_out(pair: tuple[str, str]) -> bool:
    """Say whether a name and a place, object or job are one of the pairs held out."""
    key = f"{SEED} {pair[0]} {pair[1]}"
    return pair != ("", "") and hashlib.sha256(key.encode()).digest()[0] % 8 == 0


def paragraph(sampler: Sampler, part: str, number: int) -> dict[str, Any] | None:
    """Draw a story with its questions, or nothing if what was drawn belongs to another part."""
    facts = sampler.facts()
    asked = [question for fact in facts for question in fact.questions]
    if part == "test":
        asked = [question for question in asked if is_held_out(question.pair)]
    elif any(is_held_out(pair) for fact in facts for pair in fact.pairs):
        return None
    if not asked:
        return None
    told = sampler.story(facts)
    context = " ".join(told)
    entries: list[dict[str, Any]] = []
    for question in sampler.draw(asked, min(QUESTIONS[part], len(asked))):
        before = sum(len(sentence) + 1 for sentence in told[: told.index(question.sentence)])
        # an object or a person given stands at the end, its giver at the front
        within = question.sentence.rfind(question.answer)
        answer = {"text": question.answer, "answer_start": before + within}
        name = f"{part}-{number}-{len(entries)}"
        entries.append({"id": name, "question": question.text, "answers": [answer]})
    return {"context": context, "qas": entries}


def corpus() -> dict[str, str]:
    """Give the text of each file by its name."""
    sampler, texts = Sampler(SEED), {}
    for part, size in SIZES.items():
        paragraphs: list[dict[str, Any]] = []
        while len(paragraphs) < size:
            found = paragraph(sampler, part, len(paragraphs))
            paragraphs += [found] if found else []
        lines = ",\n".join(json.dumps(p, separators=(",", ":")) for p in paragraphs)
        head = '{"version":"1.1","data":[{"title":"stories","paragraphs":[\n'
        texts[f"{part}.json"] = f"{head}{lines}\n]}}]}}\n"
    return texts


if __name__ == "__main__":
    sys.exit(write(__doc__, FOLDER, corpus))
