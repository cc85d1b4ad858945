"""Codes of languages, as people write them and as `sentencex` reads them."""

import re

from seqattn.checking import shown
from seqattn.errors import UserError

_SHORTER = """
aar aa abk ab afr af aka ak amh am ara ar arg an asm as ava av ave ae aym ay aze az bak ba bam bm
bel be ben bn bis bi bod bo bos bs bre br bul bg cat ca ces cs cha ch che ce chu cu chv cv cor kw
cos co cre cr cym cy dan da deu de div dv dzo dz ell el eng en epo eo est et eus eu ewe ee fao fo
fas fa fij fj fin fi fra fr fry fy ful ff gla gd gle ga glg gl glv gv grn gn guj gu hat ht hau ha
hbs sh heb he her hz hin hi hmo ho hrv hr hun hu hye hy ibo ig ido io iii ii iku iu ile ie ina ia
ind id ipk ik isl is ita it jav jv jpn ja kal kl kan kn kas ks kat ka kau kr kaz kk khm km kik ki
kin rw kir ky kom kv kon kg kor ko kua kj kur ku lao lo lat la lav lv lim li lin ln lit lt ltz lb
lub lu lug lg mah mh mal ml mar mr mkd mk mlg mg mlt mt mon mn mri mi msa ms mya my nau na nav nv
nbl nr nde nd ndo ng nep ne nld nl nno nn nob nb nor no nya ny oci oc oji oj ori or orm om oss os
pan pa pli pi pol pl por pt pus ps que qu roh rm ron ro run rn rus ru sag sg san sa sin si slk sk
slv sl sme se smo sm sna sn snd sd som so sot st spa es sqi sq srd sc srp sr ssw ss sun su swa sw
swe sv tah ty tam ta tat tt tel te tgk tg tgl tl tha th tir ti ton to tsn tn tso ts tuk tk tur tr
twi tw uig ug ukr uk urd ur uzb uz ven ve vie vi vol vo wln wa wol wo xho xh yid yi yor yo zha za
zho zh zul zu
"""  # three letters of ISO 639-2/T, and two of ISO 639-1
_OTHER_NAMES = """
acq ar ajp ar alb sq als sq arb ar arm hy ars ar ayr ay azj az baq eu bur my chi zh cmn zh cze cs
dut nl ekk et fil tl fre fr fuv ff gaz om geo ka ger de gre el ice is in id iw he ji yi khk mn kmr
ku knc kr lvs lv mac mk mao mi may ms mo ro npi ne ory or pbt ps per fa pes fa plt mg prs fa quy qu
quz qu rum ro slo sk swh sw tib bo uzn uz wel cy ydd yi yue zh zsm ms
"""  # ISO 639-2/B, languages of a macrolanguage, and withdrawn codes
_RULES = """
ab am an ar av ay ba bg bm bn ca ce co cs cv da de el en es fi fr gl gn gu hi ht hy it ja kk kl kn
kv lb li ln mg ml mr my nl oc os pa pl pt qu rm ru sa sg sk ta te tt ty uk wa wo
acm aeb alt anp apc arn arq ary arz ast atj avk awa bar bci blk bpy bxr csb dsb dua egl eml ext fit
fon frc frp frr fur gcf gcr gld gsw guc hke hrx hsb hyw inh jut kaa kab kbp kea kjh kjp koi krc krl
ksh ksw kum lad lbe lez lij lld lmo lua mag mai mdf mhr mnw mrj mwl myv nah nap nds olo pcd pdc pdt
pfl pms pnt qug rgn rue rut sah scn sdc ses shy sjd sli smn srn sro stq sty szl tcy tet tyv udm vec
vls vmf vmw vot wls xal
"""  # measured on sentencex 1.0.32: all others split as a code that it does not know
_WITHOUT_RULES = """
ace ady akk ang arc azb bal ban bcl bem ber bho bjn brx bua bug ceb chm chr cjk ckb cop crh crk dgo
dik doi dtp dyu egy gag gan glk gom gor got grc hak haw hif hil hmn hne ike ilo jam jbo kac kam kmb
kok ktu lfn loz ltg lue luo lus lzh lzz mam mfe min mni mos mrw mzn nan new nia nov nqo nso nus nyn
pag pam pap pcm pnb quc rom rup ryu sat sco sdh shi shn skr sma smj sms swg syc taq tdt tig tlh tmh
toi tok tpi tum tzm umb vep vro wal war wuu xmf yua zdj zea zgh zza
"""  # further ones of three letters, of which people have corpora


def _pairs(names: str) -> dict[str, str]:
    codes = names.split()
    return dict(zip(codes[::2], codes[1::2], strict=True))


WORDS = AUTO, NONE = "auto", "none"
"""What stands in place of a language: that of training, or no splitting."""
_CODES = _pairs(_SHORTER) | _pairs(_OTHER_NAMES)
RULES = frozenset(_RULES.split())
"""Languages with rules of their own or of a relative, such as `lb` with those of `de`.

Others, such as Turkish and Chinese, are split at the ends of sentences of all scripts, with the
abbreviations of English.
"""
LANGUAGES = RULES | {*_CODES.values(), *_WITHOUT_RULES.split()}
"""Known languages: two letters if there are two, otherwise three."""


def find_language(name: str) -> str | None:
    """Return the code of a language, None if it is not known. Args: name: as in `language_code`."""
    first = re.split(r"[-_.@]", name.strip().lower(), maxsplit=1)[0]
    code = _CODES.get(first, first)
    return code if code in LANGUAGES else None


def language_code(name: str) -> str:
    """Return the code by which `split_sentences` knows a language.

    Args:
        name: its code, with a script or a country or without: de, deu, deu_Latn, de-AT, en_XX.

    Raises:
        UserError: if it is not known.
    """
    code = find_language(name)
    if code is None:
        start = name.strip().lower()[:20]
        likely = start if start in WORDS else _CODES.get(start[:3], start[:3])
        is_known = likely in {*LANGUAGES, *WORDS}
        others = "give auto, none or a code such as de, zho_Hans or pt-BR"
        hint = f"did you mean {likely}?" if is_known else others
        raise UserError(f"unknown language {shown(name)}; {hint}")
    return code
