"""The words of the demo corpus and their forms: tables first, readers and inflection below.

A row is split at ``|``. Nouns of the German n-declension (Junge, Student, Nachbar) and English
words with two senses (watch, clean) are left out on purpose: every English sentence must have
exactly one German translation.
"""

from functools import cache
from typing import Literal, NamedTuple

Case = Literal["nominative", "accusative", "dative"]
CASES: tuple[Case, ...] = ("nominative", "accusative", "dative")

# English singular, plural | German singular, plural, gender; a heading in brackets is the kind.
NOUN_TABLE = """
[person]
man men | Mann Männer m;  woman women | Frau Frauen f;  child children | Kind Kinder n
girl girls | Mädchen Mädchen n;  teacher teachers | Lehrer Lehrer m
doctor doctors | Ärztin Ärztinnen f;  friend friends | Freund Freunde m
brother brothers | Bruder Brüder m;  sister sisters | Schwester Schwestern f
mother mothers | Mutter Mütter f;  father fathers | Vater Väter m
daughter daughters | Tochter Töchter f;  son sons | Sohn Söhne m;  king kings | König Könige m
queen queens | Königin Königinnen f;  baker bakers | Bäcker Bäcker m
gardener gardeners | Gärtner Gärtner m;  singer singers | Sängerin Sängerinnen f
uncle uncles | Onkel Onkel m;  aunt aunts | Tante Tanten f;  guest guests | Gast Gäste m
[animal]
dog dogs | Hund Hunde m;  cat cats | Katze Katzen f;  horse horses | Pferd Pferde n
bird birds | Vogel Vögel m;  cow cows | Kuh Kühe f;  duck ducks | Ente Enten f
goat goats | Ziege Ziegen f;  pig pigs | Schwein Schweine n;  rabbit rabbits | Kaninchen Kaninchen n
[text]
book books | Buch Bücher n;  letter letters | Brief Briefe m
newspaper newspapers | Zeitung Zeitungen f;  story stories | Geschichte Geschichten f
song songs | Lied Lieder n
[food]
apple apples | Apfel Äpfel m;  cake cakes | Kuchen Kuchen m;  egg eggs | Ei Eier n
potato potatoes | Kartoffel Kartoffeln f;  tomato tomatoes | Tomate Tomaten f
soup soups | Suppe Suppen f
[clothing]
coat coats | Mantel Mäntel m;  hat hats | Hut Hüte m;  shirt shirts | Hemd Hemden n
dress dresses | Kleid Kleider n;  jacket jackets | Jacke Jacken f
[device]
lamp lamps | Lampe Lampen f;  computer computers | Computer Computer m
machine machines | Maschine Maschinen f;  radio radios | Radio Radios n
[vehicle]
car cars | Auto Autos n;  bicycle bicycles | Fahrrad Fahrräder n;  ship ships | Schiff Schiffe n
boat boats | Boot Boote n;  train trains | Zug Züge m
[thing]
table tables | Tisch Tische m;  chair chairs | Stuhl Stühle m;  bag bags | Tasche Taschen f
key keys | Schlüssel Schlüssel m;  bottle bottles | Flasche Flaschen f;  cup cups | Tasse Tassen f
plate plates | Teller Teller m;  knife knives | Messer Messer n;  ball balls | Ball Bälle m
picture pictures | Bild Bilder n;  flower flowers | Blume Blumen f
[opening]
door doors | Tür Türen f;  window windows | Fenster Fenster n
[building]
house houses | Haus Häuser n;  bridge bridges | Brücke Brücken f
church churches | Kirche Kirchen f;  hotel hotels | Hotel Hotels n;  tower towers | Turm Türme m
[place]
garden gardens | Garten Gärten m;  city cities | Stadt Städte f;  park parks | Park Parks m
kitchen kitchens | Küche Küchen f;  village villages | Dorf Dörfer n
forest forests | Wald Wälder m;  school schools | Schule Schulen f
[name]
Anna - | Anna - f;  Maria - | Maria - f;  Lena - | Lena - f;  Peter - | Peter - m
Paul - | Paul - m;  Felix - | Felix - m
[pronoun]
he - | er - m;  she - | sie - f;  they they | sie sie m;  we we | wir wir m
"""

# English base, past, participle | German infinitive, third person, participle | subject kinds
# | object kinds or nouns | adjuncts | notes. look-for is one verb of two words; ein+laden parts.
VERB_TABLE = """
buy bought bought | kaufen kauft gekauft | person | food text clothing device vehicle thing | for
sell sold sold | verkaufen verkauft verkauft | person | food text clothing device vehicle thing
see saw seen | sehen sieht gesehen | person animal | person animal vehicle building thing | place
find found found | finden findet gefunden | person | person animal clothing thing text | place
look-for looked looked | suchen sucht gesucht | person | person animal clothing thing text
hear heard heard | hören hört gehört | person animal | person animal song radio story train
read read read | lesen liest gelesen | person | book letter newspaper story | place
write wrote written | schreiben schreibt geschrieben | person | book letter story song | for
sing sang sung | singen singt gesungen | person bird | song | for place
love loved loved | lieben liebt geliebt | person | person animal flower | | stative
know knew known | kennen kennt gekannt | person | person city village forest song story | | stative
need needed needed | brauchen braucht gebraucht | person | clothing device vehicle thing | | stative
visit visited visited | besuchen besucht besucht | person | person city village school church
help helped helped | helfen hilft geholfen | person | person animal | place | dative
thank thanked thanked | danken dankt gedankt | person | person | | dative
follow followed followed | folgen folgt gefolgt | person animal | person animal | | dative sein
eat ate eaten | essen isst gegessen | person | food | place
cut cut cut | schneiden schneidet geschnitten | person | apple cake potato tomato flower | place
repair repaired repaired | reparieren repariert repariert | person | device vehicle opening chair
wash washed washed | waschen wäscht gewaschen | person | clothing food animal car cup plate | place
carry carried carried | tragen trägt getragen | person | thing food child girl
take took taken | nehmen nimmt genommen | person | clothing thing food text
open opened opened | öffnen öffnet geöffnet | person | opening letter bottle bag
close closed closed | schließen schließt geschlossen | person | opening bag bottle book
build built built | bauen baut gebaut | person | building boat ship machine table chair | for
draw drew drawn | zeichnen zeichnet gezeichnet | person | person animal flower building | place
feed fed fed | füttern füttert gefüttert | person | animal child | place
lose lost lost | verlieren verliert verloren | person | clothing key bag ball knife letter | place
hide hid hidden | verstecken versteckt versteckt | person | thing text food clothing | place
meet met met | treffen trifft getroffen | person | person | place
admire admired admired | bewundern bewundert bewundert | person | person building vehicle animal
invite invited invited | ein+laden lädt eingeladen | person | person
call called called | an+rufen ruft angerufen | person | person
pick-up picked picked | ab+holen holt abgeholt | person | person letter bag | place
switch-on switched switched | ein+schalten schaltet eingeschaltet | person | device
put-on put put | an+ziehen zieht angezogen | person | clothing
give gave given | geben gibt gegeben | person | thing food text clothing | | recipient
show showed shown | zeigen zeigt gezeigt | person | thing text animal vehicle | | recipient
send sent sent | schicken schickt geschickt | person | book letter flower picture | | recipient
sleep slept slept | schlafen schläft geschlafen | person animal | | place manner
work worked worked | arbeiten arbeitet gearbeitet | person | | place with manner
dance danced danced | tanzen tanzt getanzt | person | | place with manner
laugh laughed laughed | lachen lacht gelacht | person | | place with manner
play played played | spielen spielt gespielt | person dog cat | | place with manner
wait waited waited | warten wartet gewartet | person animal | | place with
travel travelled travelled | reisen reist gereist | person | | with | sein
swim swam swum | schwimmen schwimmt geschwommen | person duck dog | | with manner | sein
stay stayed stayed | bleiben bleibt geblieben | person animal | | place | sein
get-up got got | auf+stehen steht aufgestanden | person | | | sein
say said said | sagen sagt gesagt | person | | | content
believe believed believed | glauben glaubt geglaubt | person | | | content
hope hoped hoped | hoffen hofft gehofft | person | | | content
think thought thought | denken denkt gedacht | person | | | content
"""

# English | German, inflected stem if it differs | kinds it may describe.
ADJECTIVE_TABLE = """
old | alt | person animal text clothing device vehicle thing opening building place
young | jung | person animal
small | klein | person animal text food clothing device vehicle thing opening building place
big | groß | animal food vehicle thing opening building place device
tall | groß | person
new | neu | text clothing device vehicle thing opening building
beautiful | schön | person animal text clothing vehicle thing building place
expensive | teuer teur | text clothing device vehicle thing building
cheap | billig | clothing device vehicle thing food
red | rot | clothing vehicle thing opening bird apple
green | grün | clothing vehicle thing opening bird apple
black | schwarz | animal clothing vehicle thing
white | weiß | animal clothing vehicle thing building
good | gut | text food person
fresh | frisch | food
heavy | schwer | thing device
dark | dunkel dunkl | place building clothing
quiet | ruhig | place person animal
friendly | freundlich | person animal
happy | glücklich | person
sad | traurig | person
tired | müde müd | person animal
hungry | hungrig | person animal
clever | klug | person animal
famous | berühmt | person building text
rich | reich | person
poor | arm | person
long | lang | text bridge train dress
strong | stark | person horse cow dog device
"""

# English | German | tenses it goes with | place in English: mid is before the verb, front is
# only at the head of a sentence, end is last and may be fronted | may the clause be negated?
ADVERB_TABLE = """
today | heute | present perfect future can must should want | end | negatable
now | jetzt | present can must should want | end | negatable
tomorrow | morgen | future can must should want | end | negatable
soon | bald | future must want | end
yesterday | gestern | past | end | negatable
last week | letzte Woche | past | end | negatable
next week | nächste Woche | future can must want | end | negatable
every day | jeden Tag | present can must should want | end
in the evening | am Abend | present past future can must want | end | negatable
on Sunday | am Sonntag | past future can must should want | end | negatable
often | oft | present past perfect | mid
always | immer | present should must want | mid
never | nie | present perfect future | mid
already | schon | perfect | mid
sometimes | manchmal | present past | mid
perhaps | vielleicht | present future | front | negatable
"""

# English singular, plural | German stem | endings | whether it may stand in a negated clause.
DETERMINER_TABLE = """
the the | d | definite | negatable
this these | dies | weak | negatable
every - | jed | weak
a - | ein | mixed
my my | mein | mixed | negatable
our our | unser | mixed | negatable
his his | sein | mixed | negatable
her her | ihr | mixed | negatable
- some | einig | strong
- many | viel | strong
- two | zwei | number
- three | drei | number
"""

MANNERS = (("quietly", "leise"), ("loudly", "laut"), ("quickly", "schnell"), ("slowly", "langsam"))
DEGREES = (("", ""), ("very", "sehr"), ("too", "zu"), ("quite", "ziemlich"))

# English, German, the case it governs, the kind of noun after it.
PREPOSITIONS: dict[str, tuple[tuple[str, str, Case, str], ...]] = {
    "place": (
        ("in", "in", "dative", "place"),
        ("behind", "hinter", "dative", "building"),
        ("in front of", "vor", "dative", "building"),
        ("next to", "neben", "dative", "building"),
    ),
    "with": (("with", "mit", "dative", "person"),),
    "for": (("for", "für", "accusative", "person"),),
}

# Endings by gender or plural, in the order of CASES.
Endings = dict[str, str]
WEAK = {"m": "e en en", "f": "e e en", "n": "e e en", "plural": "en en en"}
MIXED = {"m": "er en en", "f": "e e en", "n": "es es en", "plural": "en en en"}
STRONG = {"plural": "e e en"}
DETERMINER_ENDINGS: dict[str, Endings] = {
    "definite": {"m": "er en em", "f": "ie ie er", "n": "as as em", "plural": "ie ie en"},
    "weak": {"m": "er en em", "f": "e e er", "n": "es es em", "plural": "e e en"},
    "mixed": {"m": "- en em", "f": "e e er", "n": "- - em", "plural": "e e en"},
    "strong": STRONG,
    "number": {"plural": "- - -"},
}
ADJECTIVE_ENDINGS: dict[str, Endings] = {
    "definite": WEAK,
    "weak": WEAK,
    "mixed": MIXED,
    "strong": STRONG,
    "number": STRONG,
}
RELATIVE_PRONOUNS: Endings = {
    "m": "der den dem",
    "f": "die die der",
    "n": "das das dem",
    "plural": "die die denen",
}


class Noun(NamedTuple):
    """A noun, name or pronoun; a name has no plural."""

    english: str
    english_plural: str
    german: str
    german_plural: str
    gender: str
    kind: str


class Verb(NamedTuple):
    """A verb: three English forms, three German ones, what it governs and how it behaves."""

    base: str
    past: str
    participle: str
    particle: str
    prefix: str
    infinitive: str
    third: str
    german_participle: str
    subjects: frozenset[str]
    objects: frozenset[str]
    adjuncts: tuple[str, ...]
    notes: frozenset[str]


class Adjective(NamedTuple):
    """An adjective; endings attach to the stem (teuer, but ein teures Haus)."""

    english: str
    german: str
    stem: str
    kinds: frozenset[str]


class Adverb(NamedTuple):
    """An adverb of time, the tenses it goes with and where it stands in English."""

    english: str
    german: str
    tenses: frozenset[str]
    position: str
    negatable: bool


class Determiner(NamedTuple):
    """A determiner; it lacks a number whose English form is empty."""

    english: str
    english_plural: str
    stem: str
    endings: str
    negatable: bool


def rows(table: str, width: int) -> list[list[str]]:
    """Split a table into rows of `width` cells, filled up by empty ones."""
    split = [[cell.strip() for cell in line.split("|")] for line in table.splitlines() if line]
    return [cells + [""] * (width - len(cells)) for cells in split]


def read_nouns() -> list[Noun]:
    """Read the nouns, each with the kind that stands above it."""
    nouns, kind = [], ""
    for line in NOUN_TABLE.splitlines():
        if line.startswith("["):
            kind = line.strip("[]")
            continue
        for entry in filter(None, line.split(";")):
            forms = ["" if form == "-" else form for form in entry.replace("|", " ").split()]
            english, plural, german, german_plural, gender = forms
            nouns.append(Noun(english, plural, german, german_plural, gender, kind))
    return nouns


def read_verb(cells: list[str]) -> Verb:
    """Read one row of the verb table."""
    base, past, participle = cells[0].split()
    base, _, particle = base.partition("-")
    infinitive, third, german_participle = cells[1].split()
    prefix, _, infinitive = infinitive.rpartition("+")
    english = (base, past, participle, particle.replace("-", " "))
    german = (prefix, infinitive, third, german_participle)
    subjects, objects, adjuncts, notes = (cell.split() for cell in cells[2:])
    kinds = (frozenset(subjects), frozenset(objects), tuple(adjuncts), frozenset(notes))
    return Verb(*english, *german, *kinds)


def read_determiner(cells: list[str]) -> Determiner:
    """Read one row of the determiner table."""
    singular, plural = ("" if word == "-" else word for word in cells[0].split())
    return Determiner(singular, plural, cells[1], cells[2], bool(cells[3]))


NOUNS = read_nouns()
VERBS = [read_verb(cells) for cells in rows(VERB_TABLE, 6)]
ADJECTIVES = [
    Adjective(english, german.split()[0], german.split()[-1], frozenset(kinds.split()))
    for english, german, kinds in rows(ADJECTIVE_TABLE, 3)
]
ADVERBS = [
    Adverb(english, german, frozenset(tenses.split()), position, bool(negatable))
    for english, german, tenses, position, negatable in rows(ADVERB_TABLE, 5)
]
DETERMINERS = [read_determiner(cells) for cells in rows(DETERMINER_TABLE, 4)]
THE = DETERMINERS[0]
A = Determiner("a", "", "ein", "mixed", False)
NO = Determiner("a", "", "kein", "mixed", True)
BARE = Determiner("", "", "", "number", True)
# "her man" would be her husband, whom German calls the same and English does not.
NEVER_OWNED = ("man", "woman")


@cache
def nouns_of(kinds: frozenset[str], without: str = "") -> list[Noun]:
    """List the nouns that are one of, or of one of, these kinds, except the noun `without`."""
    return [n for n in NOUNS if {n.kind, n.english} & kinds and n.english != without]


def ending(endings: Endings, row: str, case: Case) -> str:
    """Look up one ending; ``-`` stands for none."""
    return endings[row].split()[CASES.index(case)].strip("-")


def object_case(verb: Verb | None) -> Case:
    """Give the case of a verb's object: dem Mann helfen, den Mann sehen."""
    return "dative" if verb and "dative" in verb.notes else "accusative"


def third_person(base: str) -> str:
    """Give the English third person singular: buys, washes, carries."""
    if base.endswith(("s", "sh", "ch", "x", "o")):
        return base + "es"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ies"
    return base + "s"


def german_noun(noun: Noun, plural: bool, case: Case) -> str:
    """Give the form of a noun; only the dative plural adds a letter: mit Hunden."""
    if not plural:
        return noun.german
    adds = case == "dative" and not noun.german_plural.endswith(("n", "s"))
    return noun.german_plural + "n" * adds
