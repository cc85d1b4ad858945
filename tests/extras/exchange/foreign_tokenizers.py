"""Small tokenizers as transformers saves them, for each family of models."""

import io
import json
from functools import cache
from pathlib import Path
from random import Random

import sentencepiece

ROOT = Path(__file__).parents[3]
OTHERS = ["我们今天去公园 。", "שלום עולם", "Привет, мир!", "naïve café — “quoted” …", "ẞ ß Å é"]


@cache
def lines(side):
    """Lines of the bundled corpus and of other scripts. Args: side: en or de."""
    text = (ROOT / f"data/demo_translation/train.{side}").read_text("utf-8")
    return [*text.splitlines()[:800], *OTHERS * 8]


def pieces_of(path, texts, size, kind="unigram", **options):
    """Trains a sentencepiece model, writes it to a path, and returns its pieces."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, vocab_size=size, model_type=kind,
        hard_vocab_limit=False, num_threads=1, minloglevel=2, **options,
    )  # fmt: skip
    path.write_bytes(model.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return [processor.id_to_piece(n) for n in range(processor.get_piece_size())]


def marian(path, separate=False, codes=()):
    """A folder such as Helsinki-NLP/opus-mt-en-de's. Some pieces of its models are not in it."""
    from transformers import MarianTokenizer

    sides = [
        pieces_of(path / f"{side}.spm", lines(language), size)[3:]
        for side, language, size in (("source", "en", 400), ("target", "de", 390))
    ]
    more = {}
    if separate:
        names = [["</s>", "<unk>", *side[:-9], "<pad>"] for side in sides]
        size = max(map(len, names))
        names = [
            [*one[:-1], *map(str, range(1_000, 1_000 + size - len(one))), "<pad>"] for one in names
        ]
        more = {"target_vocab_file": str(path / "target_vocab.json"), "separate_vocabs": True}
        vocabularies = dict(zip(("vocab.json", "target_vocab.json"), names, strict=True))
    else:
        both = dict.fromkeys([*codes, *sides[0][:-9], *sides[1][:-9]])
        vocabularies = {"vocab.json": ["</s>", "<unk>", *both, "<pad>"]}
    for name, pieces in vocabularies.items():
        content = {piece: number for number, piece in enumerate(pieces)}
        (path / name).write_text(json.dumps(content))
    files = [str(path / name) for name in ("source.spm", "target.spm", "vocab.json")]
    tokenizer = MarianTokenizer(*files, **more)
    size = len(vocabularies["vocab.json"])
    return tokenizer, {
        "model_type": "marian", "vocab_size": size, "pad_token_id": size - 1, "eos_token_id": 0,
        "decoder_start_token_id": size - 1,
    }  # fmt: skip


def m2m_100(path):
    from transformers import M2M100Tokenizer

    pieces = pieces_of(path / "sentencepiece.bpe.model", [*lines("en"), *lines("de")], 500, "bpe")
    names = ["<s>", "<pad>", "</s>", "<unk>", *pieces[3:-9]]
    (path / "vocab.json").write_text(json.dumps({name: n for n, name in enumerate(names)}))
    files = str(path / "vocab.json"), str(path / "sentencepiece.bpe.model")
    tokenizer = M2M100Tokenizer(*files, src_lang="en", tgt_lang="de")
    return tokenizer, {
        "model_type": "m2m_100", "vocab_size": len(names) + 108, "pad_token_id": 1,
        "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2,
    }  # fmt: skip


def _fairseq(path, name, kind, config, codes, **languages):
    import transformers

    file = path / "sentencepiece.bpe.model"
    pieces = pieces_of(file, [*lines("en"), *lines("de")], 500, kind)
    names = ["<s>", "<pad>", "</s>", "<unk>", *pieces[3:], *codes, "<mask>"]
    special = {
        str(row): {"content": name, "lstrip": name == "<mask>", "special": True}
        for row, name in enumerate(names)
        if row < 4 or row > len(pieces)
    }
    settings = {"tokenizer_class": name, "added_tokens_decoder": special, **languages}
    settings["additional_special_tokens"] = codes
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = getattr(transformers, name).from_pretrained(path, **languages)
    return tokenizer, {
        **config, "vocab_size": len(tokenizer), "pad_token_id": 1, "bos_token_id": 0,
        "eos_token_id": 2, "decoder_start_token_id": 2,
    }  # fmt: skip


def nllb(path):
    codes = {"src_lang": "eng_Latn", "tgt_lang": "deu_Latn"}
    from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES

    config = {"model_type": "m2m_100"}
    return _fairseq(path, "NllbTokenizer", "bpe", config, FAIRSEQ_LANGUAGE_CODES, **codes)


def mbart50(path):
    codes = {"src_lang": "en_XX", "tgt_lang": "de_DE"}
    from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES

    config = {"model_type": "mbart"}
    return _fairseq(path, "MBart50Tokenizer", "unigram", config, FAIRSEQ_LANGUAGE_CODES, **codes)


def t5(path):
    from transformers import T5Tokenizer

    marks = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    pieces = pieces_of(path / "spiece.model", [*lines("en"), *lines("de")], 500, **marks)
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "T5Tokenizer"}))
    return T5Tokenizer.from_pretrained(path), {
        "model_type": "t5", "vocab_size": len(pieces) + 128, "pad_token_id": 0, "eos_token_id": 1,
        "decoder_start_token_id": 0,
    }  # fmt: skip


def pegasus(path):
    from transformers import PegasusTokenizer

    marks = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    pieces = pieces_of(path / "spiece.model", lines("en"), 400, **marks)
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PegasusTokenizer"}))
    return PegasusTokenizer.from_pretrained(path), {
        "model_type": "pegasus", "vocab_size": len(pieces) + 103, "pad_token_id": 0,
        "eos_token_id": 1, "decoder_start_token_id": 0,
    }  # fmt: skip


def bart(path):
    from tokenizers import ByteLevelBPETokenizer
    from transformers import BartTokenizer

    learnt = ByteLevelBPETokenizer()
    marks = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    learnt.train_from_iterator(lines("en"), 500, special_tokens=marks, show_progress=False)
    learnt.save_model(str(path))
    return BartTokenizer.from_pretrained(path), {
        "model_type": "bart", "vocab_size": learnt.get_vocab_size(), "pad_token_id": 1,
        "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2,
    }  # fmt: skip


@cache
def nasty():
    """A thousand lines that tokenizers stumble over, none of which spells a mark."""
    chance = Random(1)
    words = " ".join([*lines("en")[:60], *lines("de")[:60], *OTHERS]).split()
    parts = [
        "  ", "\t", "\u00a0", "\u3000", "\u200b", "\u200d", "\ufeff", "\x01", "\x7f", "\u0301",
        "e\u0301", "☃", "👩‍👩‍👧", "🇩🇪", "中文", "שלום", "مرحبا", "ﬁ", "①", "\uff21", "½", "...",
        "…", "“", "'", '"', "<", ">", "&amp;", "<b>", "\\n", "\\", "{}", "%s", "1,000.5", "x" * 300,
        "ab" * 200, "ß" * 9, "\ud7ff", "\ue000", "\U0010fffd", "İ", "ǅ", "न्", "ก็", "-", "--", "_",
        "▁", "#", "@-@",
    ]  # fmt: skip
    texts = ["", " ", "\t", *parts, *(f" {part} " for part in parts), *OTHERS, *lines("de")[:50]]
    while len(texts) < 1_000:
        some = chance.choices(words, k=chance.randrange(6)) + chance.choices(parts, k=3)
        chance.shuffle(some)
        texts.append(chance.choice(["", " "]).join(some) + chance.choice(["", " ", "  "]))
    return texts
