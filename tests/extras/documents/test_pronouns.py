"""A model of documents chooses a pronoun whose gender stands a sentence before."""

from itertools import product
from random import Random

import pytest

import seqattn
from seqattn.generation.forced_decoding import forced_log_probabilities
from tests.cli.small import run

NOUNS = {
    "Der {} Er": "dog Hund tree Baum table Tisch train Zug",
    "Die {} Sie": "cat Katze lamp Lampe flower Blume clock Uhr",
    "Das {} Es": "house Haus book Buch car Auto horse Pferd",
}
FIRST = {"is here": "ist hier", "was old": "war alt", "stays": "bleibt", "falls": "fällt"}
SECOND = {"is red": "ist rot", "was good": "war gut", "moves": "bewegt sich", "helps": "hilft"}
PRONOUNS = {words.split()[2] for words in NOUNS}


def documents():
    pairs = []
    for words, nouns in NOUNS.items():
        article, _, pronoun = words.split()
        names = iter(nouns.split())
        for (english, german), first, second in product(zip(names, names), FIRST, SECOND):
            source = f"The {english} {first}.", f"It {second}."
            target = f"{article} {german} {FIRST[first]}.", f"{pronoun} {SECOND[second]}."
            pairs.append((source, target))
    Random(0).shuffle(pairs)
    return pairs


@pytest.mark.exhaustive
def test_pronouns_are_right_with_the_sentence_before_and_guessed_without(capfd, tmp_path):
    pairs = documents()
    for name, some in (("train", pairs[:140]), ("val", pairs[140:160])):
        for side, suffix in enumerate(("en", "de")):
            text = "".join("\n".join(pair[side]) + "\n\n" for pair in some)
            (tmp_path / f"{name}.{suffix}").write_text(text, encoding="utf-8")
    data = "data=parallel_text data.source_suffix=en data.target_suffix=de data.documents=lines"
    model = "model.dim=64 model.ffn_dim=128 model.encoder_layers=2 model.decoder_layers=2"
    training = "trainer.max_steps=400 loader.max_tokens=600 optimizer.lr=0.002 task.final=null"
    words = f"{data} tokenizer=documents tokenizer.vocab_size=null {model} attention.num_heads=4"
    own = f"data.root={tmp_path}", f"run_dir={tmp_path}/run"
    assert run(capfd, "train", *words.split(), *training.split(), *own).code == 0
    bundle = seqattn.load(tmp_path / "run" / "model")

    def is_right(source, target, wrong):
        sides = zip(bundle.encode([source] * 2), bundle.tokenizer.encode_target([target, wrong]))
        right, other = forced_log_probabilities(bundle.model, [(one[0], ids) for one, ids in sides])
        return right > other

    alone, together = [], []
    for (first, second), (before, after) in pairs[160:]:
        pronoun, rest = after.split(maxsplit=1)
        for other in PRONOUNS - {pronoun}:
            wrong = f"{other} {rest}"
            alone.append(is_right(second, after, wrong))
            together.append(
                is_right(f"{first}\n{second}", f"{before}\n{after}", f"{before}\n{wrong}")
            )
    assert 0.3 < sum(alone) / len(alone) < 0.7
    assert sum(together) / len(together) > 0.95
    texts = ["\n".join(source) for source, _ in pairs[160:]]
    outputs = bundle.generate(texts, document_context=1)
    right = [one.endswith(target[1]) for one, (_, target) in zip(outputs, pairs[160:], strict=True)]
    assert sum(right) / len(right) > 0.9
