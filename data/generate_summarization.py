"""Write the summarization demo corpus, or with ``--check`` verify the files on disk.

    python data/generate_summarization.py

Short reports, a headline for each. A report opens with a sentence that says nothing of the matter,
tells one event of eight kinds in two sentences, and puts asides among them: other towns, people,
numbers and things, of which the headline must say nothing. What kind of event it is decides the
headline's words, and the rest of them are copied from both sentences.

Held out of train and val: one in six names of towns and surnames, chosen by the seeded hash in
`is_held_out`. Every test headline has such a name, whose halves are in train in other names.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import summary_lexicon as lexicon
from generating import Draws, write

SEED = 57
SIZES = {"train": 1_500, "val": 100, "test": 150}
ASIDES = 3
FOLDER = Path(__file__).parent / "demo_summarization"


@dataclass(frozen=True)
class Event:
    """What a report is about.

    Args:
        sentences: Two that tell it, in this order.
        headline: What is to be written.
        names: The towns and surnames of the headline.
    """

    sentences: tuple[str, str]
    headline: str
    names: tuple[str, ...]


class Sampler(Draws):
    """Draws random reports.

    Args:
        seed: The same seed gives the same reports in the same order.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.used: set[str] = set()

    def fresh(self, draw: Callable[[], str]) -> str:
        """Draw something that this report has not yet said."""
        while (found := draw()) in self.used:
            pass
        self.used.add(found)
        return found

    def town(self) -> str:
        """Draw a town."""
        return self.fresh(lambda: self.pick(lexicon.TOWN_STARTS) + self.pick(lexicon.TOWN_ENDS))

    def surname(self) -> str:
        """Draw a surname."""
        starts, ends = lexicon.SURNAME_STARTS, lexicon.SURNAME_ENDS
        return self.fresh(lambda: self.pick(starts) + self.pick(ends))

    def number(self, low: int = 3, high: int = 60) -> str:
        """Draw a number in figures."""
        return self.fresh(lambda: str(low + int(self.random() * (high - low))))

    def word(self, items: Sequence[str]) -> str:
        """Draw a word that this report has not yet said."""
        return self.fresh(lambda: self.pick(items))

    def match(self) -> Event:
        """Tell of a game, from the winner's side or the loser's."""
        winner, loser, day = self.town(), self.town(), self.pick(lexicon.DAYS)
        low = int(self.random() * 5)
        high = low + 1 + int(self.random() * 4)
        self.used |= {str(low), str(high)}
        told = f"The team of {winner} won against {loser} on {day}."
        if self.random() < 0.5:
            told = f"The team of {loser} lost against {winner} on {day}."
        result = f"The result was {high} to {low}."
        return Event((told, result), f"{winner} beat {loser} {high} to {low}", (winner, loser))

    def fire(self) -> Event:
        """Tell of a fire."""
        town, building, number = self.town(), self.word(lexicon.BUILDINGS), self.number()
        told = f"On {self.pick(lexicon.DAYS)} a fire broke out in the {building} of {town}."
        hurt = f"Doctors took care of {number} people who were hurt."
        return Event((told, hurt), f"{number} hurt in {building} fire in {town}", (town,))

    def opening(self) -> Event:
        """Tell of a new building."""
        town, building, number = self.town(), self.word(lexicon.BUILDINGS), self.number()
        told = f"The mayor of {town} opened a new {building} on {self.pick(lexicon.DAYS)}."
        cost = f"To build it has cost {number} million."
        return Event((told, cost), f"{town} opens {building} for {number} million", (town,))

    def theft(self) -> Event:
        """Tell of a thing that was stolen and found."""
        town, surname, thing = self.town(), self.surname(), self.word(lexicon.OBJECTS)
        told = f"Last week somebody stole a {thing} from the town hall of {town}."
        found = f"Now it was found in the house of {self.pick(lexicon.FIRST_NAMES)} {surname}."
        headline = f"Stolen {thing} of {town} found at {surname} house"
        return Event((told, found), headline, (town, surname))

    def election(self) -> Event:
        """Tell of an election."""
        town, surname = self.town(), self.surname()
        told = f"The people of {town} have voted on {self.pick(lexicon.DAYS)}."
        chosen = f"Most votes went to {self.pick(lexicon.FIRST_NAMES)} {surname}."
        return Event((told, chosen), f"{surname} is new mayor of {town}", (surname, town))

    def storm(self) -> Event:
        """Tell of a storm."""
        town, number = self.town(), self.number()
        told = f"A heavy storm came over {town} in the night to {self.pick(lexicon.DAYS)}."
        trees = f"It tore {number} trees out of the ground."
        return Event((told, trees), f"Storm in {town} fells {number} trees", (town,))

    def rescue(self) -> Event:
        """Tell of an animal that was saved."""
        town, surname, animal = self.town(), self.surname(), self.word(lexicon.ANIMALS)
        told = f"A {animal} fell into a {self.pick(lexicon.WATERS)} near {town}."
        saved = f"It was pulled out by {self.pick(lexicon.FIRST_NAMES)} {surname}."
        return Event((told, saved), f"{surname} saves {animal} near {town}", (surname, town))

    def prize(self) -> Event:
        """Tell of a prize."""
        town, surname, food = self.town(), self.surname(), self.word(lexicon.FOODS)
        told = f"On {self.pick(lexicon.DAYS)} a prize for the best {food} was given in {town}."
        won = f"The winner is {self.pick(lexicon.FIRST_NAMES)} {surname}."
        return Event((told, won), f"{surname} wins {food} prize in {town}", (surname, town))

    def filled(self, form: str) -> str:
        """Fill a sentence that the headline has nothing of."""
        draw: dict[str, Callable[[], str]] = {
            "town": self.town,
            "name": lambda: f"{self.pick(lexicon.FIRST_NAMES)} {self.surname()}",
            "number": self.number,
            "day": lambda: self.pick(lexicon.DAYS),
            "job": lambda: self.pick(lexicon.JOBS),
            "building": lambda: self.word(lexicon.BUILDINGS),
            "object": lambda: self.word(lexicon.OBJECTS),
            "animal": lambda: self.word(lexicon.ANIMALS),
            "food": lambda: self.word(lexicon.FOODS),
        }
        return form.format(**{key: draw[key]() for key in draw if f"{{{key}}}" in form})

    def report(self) -> tuple[str, Event, set[str]]:
        """Draw a report: its text, its event, and all the words that were drawn for it."""
        self.used = set()
        kinds = (self.match, self.fire, self.opening, self.theft)
        event = self.pick((*kinds, self.election, self.storm, self.rescue, self.prize))()
        told = list(event.sentences)
        forms = list(lexicon.ASIDES)
        for _ in range(ASIDES):
            aside = self.filled(forms.pop(int(self.random() * len(forms))))
            told.insert(int(self.random() * (len(told) + 1)), aside)
        opening = self.filled(self.pick(lexicon.OPENINGS))
        return " ".join([opening, *told]), event, self.used


def is_held_out(name: str) -> bool:
    """Say whether a town or a surname is one of the names held out."""
    return hashlib.sha256(f"{SEED} {name}".encode()).digest()[0] % 6 == 0


def held_out_names() -> set[str]:
    """List all the names held out."""
    towns = {start + end for start in lexicon.TOWN_STARTS for end in lexicon.TOWN_ENDS}
    starts, ends = lexicon.SURNAME_STARTS, lexicon.SURNAME_ENDS
    surnames = {start + end for start in starts for end in ends}
    return {name for name in towns | surnames if is_held_out(name)}


def corpus() -> dict[str, str]:
    """Give the text of each file by its name."""
    held_out, texts, seen = held_out_names(), {}, set[str]()
    sampler = Sampler(SEED)
    for part, size in SIZES.items():
        lines: list[str] = []
        while len(lines) < size:
            document, event, used = sampler.report()
            wanted = bool(held_out & set(event.names)) if part == "test" else not held_out & used
            if not wanted or event.headline in seen:
                continue
            seen.add(event.headline)
            row = {"document": document, "summary": event.headline}
            lines.append(json.dumps(row, separators=(",", ":")) + "\n")
        texts[f"{part}.jsonl"] = "".join(lines)
    return texts


if __name__ == "__main__":
    sys.exit(write(__doc__, FOLDER, corpus))
