"""A few questions, and a tokenizer for them."""

import datasets

from seqattn.data.base import Source
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.extras.answers.span_text import cut_words

CONTEXTS = [
    "In 1990 the old mill near Köln burnt down; it cost (about) US$5.2 million to rebuild.",
    "Mary's sister, Ann, has a red   bicycle — 東京で買った — and rides it to work every day.",
    "The river is 12km long.",
]
ROWS = [
    ("q0", "When did the mill burn down?", 0, ["1990", "In 1990"]),
    ("q1", "What did it cost to rebuild?", 0, ["US$5.2 million"]),
    ("q2", "Where was the bicycle bought?", 1, ["東京"]),
    ("q3", "Who is Ann's sister?", 1, ["Mary"]),
    ("q4", "How long is the river?", 2, ["12km"]),
    ("q5", "How deep is the river?", 2, []),
    ("q6", "What does she ride to work?", 1, ["red   bicycle"]),
]
"""Id, question, number of the context, right answers."""


class FewQuestions(Source):
    """The same rows for training and validation, or others."""

    def __init__(self, rows=ROWS, contexts=CONTEXTS):
        table = [
            {
                "id": name,
                "question": question,
                "context": contexts[number],
                "answers": answers,
                "starts": [contexts[number].index(answer) for answer in answers],
            }
            for name, question, number, answers in rows
        ]
        strings = datasets.List(datasets.Value("string"))
        features = datasets.Features(
            {
                **dict.fromkeys(("id", "question", "context"), datasets.Value("string")),
                "answers": strings,
                "starts": datasets.List(datasets.Value("int64")),
            }
        )
        self.table = datasets.Dataset.from_list(table, features=features)

    def load(self, split, cache_dir=None):
        return self.table


def small_tokenizer(directory, kind="unigram", vocab_size=80, **options) -> Tokenizer:
    texts = [cut_words(text).text for text in CONTEXTS]
    questions = [cut_words(question).text for _, question, *_ in ROWS]
    config = TokenizerConfig(kind, vocab_size=vocab_size, **options)
    return train_tokenizer(questions, texts, config, directory)
