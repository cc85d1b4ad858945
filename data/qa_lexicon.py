"""What the stories of the question answering demo are about."""

NAMES = (
    "Anna", "Ben", "Clara", "David", "Ella", "Felix", "Greta", "Hugo", "Ida", "Jonas", "Klara",
    "Leo", "Maria", "Nils", "Olga", "Paul", "Rosa", "Simon", "Tina", "Viktor",
)  # fmt: skip
PLACES = (
    "kitchen", "garden", "library", "station", "market", "museum", "school", "harbour", "park",
    "theatre", "bakery", "church", "cellar", "office", "castle", "forest",
)  # fmt: skip
OBJECTS = (
    "key", "book", "ring", "lamp", "map", "letter", "ball", "coat", "clock", "basket", "umbrella",
    "knife", "guitar", "camera", "bottle", "hat",
)  # fmt: skip
COLOURS = ("red", "blue", "green", "black", "white", "yellow", "brown", "grey")
JOBS = (
    "doctor", "teacher", "baker", "farmer", "painter", "sailor", "judge", "singer", "nurse",
    "pilot", "butcher", "gardener",
)  # fmt: skip
HOURS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
MINUTES = ("", "", "half past ", "a quarter to ", "ten past ")
FOODS = ("soup", "bread", "cheese", "rice", "fish", "salad", "cake", "apples", "eggs", "noodles")

MOVES = ("went to the {}", "walked to the {}", "ran to the {}", "drove to the {}")
TAKES = ("took the {}", "bought the {}", "found the {}", "picked up the {}")
FILLERS = (
    "It was a cold day.", "It rained all morning.", "The sun was shining.", "Nobody said a word.",
    "The streets were quiet.", "A dog barked.", "The wind was strong.", "Everybody was tired.",
)  # fmt: skip
