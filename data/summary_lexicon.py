"""What the reports of the summarization demo are about."""

TOWN_STARTS = (
    "Hall", "Nor", "Wester", "Brun", "Kel", "Lang", "Mar", "Oster", "Rav", "Stein", "Thor", "Ul",
    "Win", "Ash", "Bel", "Corn", "Dal", "Elm", "Fal", "Grim",
)  # fmt: skip
TOWN_ENDS = ("beck", "wick", "burg", "dorf", "field", "ford", "haven", "mouth", "stad", "ton")
SURNAME_STARTS = (
    "Peter", "Jan", "Ander", "Carl", "Nil", "Ol", "Eric", "Matt", "Rob", "Simon", "Tor", "Hen",
    "Gus", "Lin", "Berg", "Dahl", "Ek", "Fors", "Holm", "Lund",
)  # fmt: skip
SURNAME_ENDS = ("sen", "man", "quist", "gren", "roth", "wald", "ner", "berg")
FIRST_NAMES = (
    "Anna", "Ben", "Clara", "David", "Ella", "Felix", "Greta", "Hugo", "Ida", "Jonas", "Leo",
    "Maria", "Olga", "Paul", "Rosa", "Viktor",
)  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
BUILDINGS = (
    "school", "museum", "library", "theatre", "station", "bakery", "church", "harbour", "factory",
    "hotel", "mill", "castle",
)  # fmt: skip
OBJECTS = ("painting", "clock", "bell", "piano", "statue", "carpet", "crown", "map", "violin")
JOBS = (
    "doctor", "teacher", "baker", "farmer", "painter", "sailor", "judge", "singer", "nurse",
    "pilot", "butcher", "gardener",
)  # fmt: skip
ANIMALS = ("horse", "cow", "dog", "cat", "goat", "sheep", "donkey", "pig")
WATERS = ("river", "lake", "well", "canal")
FOODS = ("soup", "bread", "cheese", "cake", "jam", "honey", "sausage", "beer")

OPENINGS = (
    "There is news from the region around {town}.",
    "Our reporter {name} writes from {town}.",
    "{day} was a busy day, they say in {town}.",
    "People in {town} talk of nothing else.",
    "This was told to us by {name} of {town}.",
)
ASIDES = (
    "{name}, a {job}, saw it all.",
    "A bus from {town} was late.",
    "{number} people from {town} had come to watch.",
    "Many shops in {town} stayed closed.",
    "The weather was fine that {day}.",
    "The {building} of {town} was not open.",
    "{name} lost a {object} that day.",
    "The trains to {town} were full.",
    "A {animal} from {town} ran across the road.",
    "{name} sold {food} to the guests.",
)
