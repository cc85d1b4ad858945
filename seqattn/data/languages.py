"""Names and codes of languages."""

import re

_LANGUAGES = """Arabic ar arb; Bengali bn ben; Bulgarian bg bul; Catalan ca cat; Chinese zh zho;
Croatian hr hrv; Czech cs ces; Danish da dan; Dutch nl nld; English en eng; Estonian et est;
Finnish fi fin; French fr fra; German de deu; Greek el ell; Hebrew he heb; Hindi hi hin; Hungarian
hu hun; Indonesian id ind; Irish ga gle; Italian it ita; Japanese ja jpn; Korean ko kor; Latvian lv
lvs; Lithuanian lt lit; Malay ms zsm; Norwegian no nb nob; Persian fa pes; Polish pl pol; Portuguese
pt por; Romanian ro ron; Russian ru rus; Serbian sr srp; Slovak sk slk; Slovenian sl slv; Spanish
es spa; Swahili sw swh; Swedish sv swe; Tamil ta tam; Thai th tha; Turkish tr tur; Ukrainian uk ukr;
Urdu ur urd; Vietnamese vi vie; Welsh cy cym"""
_CODES = {code: codes for codes in map(str.split, _LANGUAGES.split(";")) for code in codes[1:]}


def known_language(code: str) -> list[str]:
    """Return a language's name and codes, by one such as "deu" or "de_AT"; [] if it is unknown."""
    return _CODES.get(re.split("[-_]", code)[0].lower(), [])


def language_name(code: str) -> str:
    """Return the name of a language, also by a code with a script or region; else the code."""
    return [*known_language(code), code][0]
