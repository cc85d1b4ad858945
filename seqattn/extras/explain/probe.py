"""Probes of a bundle's encoder: neighbors of states in context, and labels they predict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from seqattn.bundle.bundle import Bundle
from seqattn.checking import Count, Seed
from seqattn.data.base import Texts, chosen_lines
from seqattn.data.text_files import read_lines
from seqattn.data.word_links import WORD, words_in
from seqattn.errors import UserError
from seqattn.extras.explain.probes import (
    Labels,
    WordPieces,
    nearest_words,
    uniform_attention,
    word_states,
)
from seqattn.inputs import check_there
from seqattn.screen import print_table
from seqattn.storage import user_path, write_json
from seqattn.subcommands.bundle_run import BundleRun, Split
from seqattn.tokens import EOS
from seqattn.training.run_directory import room_for_files
from seqattn.training.task_options import task_class

_MAX_WORDS = 4  # maximum occurrences of the word


@dataclass(frozen=True, kw_only=True)
class Probing(BundleRun):
    """Nearest neighbors of a word's states, and linear probes of word labels, by layer.

    Args:
        bundle, device, trust: as `BundleRun`.
        data: source of the sentences.
        split: train, val or test.
        cache_dir: cache directory of the data; None for the default.
        sentences: use the first N sentences of the split.
        labels: file with a line per sentence, with a label for each word.
        word: word to find neighbors of.
        texts: sentences that contain the word; [] to search the split for it.
        neighbors: number of neighbors to show.
        seed: seed of the control labels.
        output: JSON file; None for none.

    Raises:
        UserError: if there are neither labels nor a word.
    """

    data: Any
    split: Split = "test"
    cache_dir: str | None = None
    sentences: Count = 1000
    labels: str | None = None
    word: str | None = None
    texts: list[str] = field(default_factory=list)
    neighbors: Count = 5
    seed: Seed = 0
    output: str | None = None

    def __post_init__(self) -> None:
        if not (self.labels or self.word):
            raise UserError("missing required key: labels or word (add labels=FILE or word=bank)")
        if self.texts and not self.word:
            raise UserError("texts requires word; add word=bank or remove texts")

    def run(self) -> dict[str, Any]:
        """Compute states, probe them and print; return the contents of the file.

        Raises:
            UserError: if bundle, data or labels cannot be used, the word does not occur twice, or
                the file cannot be written.
        """
        if self.output is None:
            return self._run()
        path = user_path(self.output)
        if path.is_dir():
            raise UserError(f"output must be a file such as probe.json, got {self.output}")
        with room_for_files(path.parent):
            results = self._run()
            write_json(path, results)
        return results

    def _run(self) -> dict[str, Any]:
        bundle = self.load().texts("probe")
        source = task_class(bundle.config).source(self.data)
        rows = source.load(self.split, Path(self.cache_dir) if self.cache_dir else None)
        read = in_words(bundle, Texts.of(rows).sources[: self.sentences])
        labels = self._labels(read, len(rows)) if self.labels else None
        results: dict[str, Any] = {"bundle": self.bundle, "split": self.split}
        if self.word:
            results["neighbors"] = self._neighbors(bundle, in_words(bundle, self.texts), read)
        if labels is not None:
            results["probe"] = self._probe(bundle, read, labels)
        return results

    def _labels(self, read: Sequence[WordPieces], rows: int) -> Labels:
        path = user_path(str(self.labels))
        check_there(path, "a file of labels")
        lines, part = list(read_lines(path)), self.data.parts.get(self.split)
        if part is not None and len(lines) != len(read):
            lines = [lines[number] for number in chosen_lines(len(lines), rows, part, path)]
        if len(lines) < len(read):
            raise UserError(f"{path} has {len(lines):,} lines for {len(read):,} sentences")
        labels = [words_in(line) for line in lines[: len(read)]]
        for number, (row, sentence) in enumerate(zip(labels, read, strict=True), 1):
            if len(row) != len(sentence.words):
                raise UserError(
                    f"{path} line {number:,} has {len(row)} labels for {len(sentence.words)} words"
                )
        held_out, learnt = labels[4::5], [row for n, row in enumerate(labels) if n % 5 != 4]
        if not any(held_out) or not any(learnt) or len({one for row in labels for one in row}) < 2:
            raise UserError(f"{path} must contain at least two labels and five sentences")
        forms = [[_form(word) for word in sentence.words] for sentence in read]
        return Labels.of(labels, forms, self.seed)

    def _probe(self, bundle: Bundle, read: Sequence[WordPieces], labels: Labels) -> dict[str, Any]:
        states, even = _both_states(bundle, read)
        accuracies: dict[str, Any] = {"majority": labels.majority, "by word form": labels.by_form}
        accuracies["layers"] = {}
        for layer, of in states.items():
            accuracy, control = labels.accuracy(of), labels.accuracy(of, control=True)
            accuracies["layers"][layer] = {
                "accuracy": accuracy,
                "control": control,
                "selectivity": accuracy - control,
                "uniform attention": None if even is None else labels.accuracy(even[layer]),
            }
        rows = {
            layer: ["-" if x is None else f"{100 * x:.1f}" for x in of.values()]
            for layer, of in accuracies["layers"].items()
        }
        num_held_out = int((~labels.learnt).sum())
        notes = [
            f"accuracy in % on {num_held_out:,} words (every fifth sentence), trained on "
            f"{len(labels.own) - num_held_out:,}; {len(labels.classes)} labels",
            f"most frequent label: {100 * labels.majority:.1f}; most frequent label of each word "
            f"form: {100 * labels.by_form:.1f}; control: random labels per word form",
        ]
        print_table(
            f"linear probe of {self.labels}", rows, list(accuracies["layers"]["embedding"]), notes
        )
        return accuracies

    def _neighbors(
        self, bundle: Bundle, examples: list[WordPieces], read: list[WordPieces]
    ) -> dict[str, Any]:
        sentences = [*examples, *read]
        looked_in = len(examples) or len(read)
        words = [(sentence, n) for sentence in sentences for n in range(len(sentence.words))]
        inside = sum(len(sentence.words) for sentence in sentences[:looked_in])
        form = _form(str(self.word))
        places = [n for n in range(inside) if _form(words[n][0].words[words[n][1]]) == form]
        if len(places) < 2:
            raise UserError(
                f"word={self.word} must occur at least twice, once per sense, got {len(places)}; "
                "add sentences that contain it with texts=[...]"
            )
        places = places[:_MAX_WORDS]
        if all(words[index][0].lacks(words[index][1]) for index in places):
            raise UserError(
                f"word={self.word} has characters that the vocabulary lacks, so its states are "
                "those of any unknown word; choose another word"
            )
        layers: dict[str, Any] = {}
        states, even = _both_states(bundle, sentences)
        for layer, of in states.items():
            kinds = {layer: of} if layer == "embedding" else {f"{layer}, attention": of}
            if even is not None and layer != "embedding":
                kinds[f"{layer}, uniform attention"] = even[layer]
            for kind, vectors in kinds.items():
                near = [nearest_words(vectors, index, self.neighbors) for index in places]
                layers[kind] = {
                    "cosine": nearest_words(vectors[places[:2]], 0, 1)[0][1],
                    "neighbors": [[(_in_context(*words[n]), x) for n, x in one] for one in near],
                }
        at = [" ".join(words[index][0].words) for index in places]
        self._print_neighbors(layers, at)
        return {"places": at, "layers": layers}

    def _print_neighbors(self, layers: Mapping[str, Any], sentences: Sequence[str]) -> None:
        rows = {
            layer: [
                f"{of['cosine']:.2f}",
                *("\n".join(f"{word} {x:.2f}" for word, x in near) for near in of["neighbors"]),
            ]
            for layer, of in layers.items()
        }
        names = [f"{self.word} {number}" for number in range(1, len(sentences) + 1)]
        notes = [f"{name}: {text}" for name, text in zip(names, sentences, strict=True)]
        notes.append(f"cosine: of {names[0]} and {names[1]}; neighbors are shown in context")
        print_table(f"nearest neighbors of {self.word}", rows, ["cosine", *names], notes)


def in_words(bundle: Bundle, texts: Sequence[str]) -> list[WordPieces]:
    """Split texts into words at spaces, see `words_in`, with the ids of each."""
    sentences = []
    for text, (ids, offsets) in zip(texts, bundle.tokenizer.source_offsets(texts), strict=True):
        spans = [match.span() for match in WORD.finditer(text)]
        owners = [
            next((n for n, (start, end) in enumerate(spans) if start < last <= end), None)
            for _, last in offsets
        ]
        sentences.append(WordPieces(words_in(text), [*ids, EOS], [*owners, None]))
    return sentences


def _both_states(
    bundle: Bundle, read: Sequence[WordPieces]
) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor] | None]:
    """Return states with the model's attention, and with uniform attention if possible."""
    states, even = word_states(bundle.model, read), uniform_attention(bundle.model)
    if even is None:
        return states, None
    with even:
        return states, word_states(bundle.model, read)


def _form(word: str) -> str:
    """Return a word in lower case without the punctuation around it."""
    return word.strip(".,;:!?\"'()").casefold() or word


def _in_context(sentence: WordPieces, word: int) -> str:
    """Return a word in capitals, between its neighbors."""
    words = sentence.words
    return " ".join([*words[max(0, word - 1) : word], words[word].upper(), *words[word + 1 :][:1]])
