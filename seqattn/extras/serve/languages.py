"""English names of languages, by the codes of ISO 639-1 and of NLLB."""

import re

_TABLE = """
Arabic ar arb; Basque eu eus; Bengali bn ben; Bulgarian bg bul; Catalan ca cat; Chinese zh zho;
Croatian hr hrv; Czech cs ces; Danish da dan; Dutch nl nld; English en eng; Esperanto eo epo;
Estonian et est; Finnish fi fin; French fr fra; Galician gl glg; German de deu; Greek el ell;
Hebrew he heb; Hindi hi hin; Hungarian hu hun; Icelandic is isl; Indonesian id ind; Irish ga gle;
Italian it ita; Japanese ja jpn; Korean ko kor; Latvian lv lvs; Lithuanian lt lit; Malay ms zsm;
Norwegian no nb nob; Persian fa pes; Polish pl pol; Portuguese pt por; Romanian ro ron;
Russian ru rus; Serbian sr srp; Slovak sk slk; Slovenian sl slv; Spanish es spa; Swahili sw swh;
Swedish sv swe; Tamil ta tam; Thai th tha; Turkish tr tur; Ukrainian uk ukr; Urdu ur urd;
Vietnamese vi vie; Welsh cy cym
"""
_NAMES = {code: name for name, *codes in map(str.split, _TABLE.split(";")) for code in codes}


def language_name(code: str) -> str:
    """Return the name of a language, also by a code with a script or region; else the code."""
    return _NAMES.get(re.split("[-_]", code)[0].lower(), code)
