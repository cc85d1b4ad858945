"""Data of a training run: vocabulary, splits and loaders."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any, ClassVar

import datasets
import numpy as np

from seqattn.checking import parameters
from seqattn.data.base import MissingSplit, Source, Texts, name_files
from seqattn.data.loader import BatchLoader, StepLoader, TokenRows
from seqattn.data.options import LoaderOptions
from seqattn.data.text_lines import is_letterless
from seqattn.data.token_dataset import PairSampling, TokenDataset, tokenize
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.errors import UserError
from seqattn.storage import default_cache, digest_of, user_path

_FIRST_ROWS, _FIRST_TOKENS = 16, 2048  # limits of `first`; tokens per side
_COMPARED = 1000  # pairs whose sides are compared
_LETTERLESS = 10_000  # pairs that show whether texts without a letter are copied
_EXCEPTIONS = 0.1  # largest share of them

LearntTexts = tuple[Iterable[str], Iterable[str]]
"""Source and target texts that a vocabulary is trained on, each iterated several times."""


class Seq2SeqData:
    """Pairs of texts for training, validation and evaluation.

    The vocabulary is trained on the training split at first use and the splits are tokenized
    once; both are cached by content.

    Args:
        tokenizer_config: settings of the vocabulary to train if `tokenizer` is None.
        options: settings of batches; None for the defaults.
        cache_dir: for vocabularies, ids and memory-mapped text; None for the environment's
            SEQATTN_CACHE or else ~/.cache/seqattn.
        tokenizer: an existing tokenizer, to resume or to evaluate a bundle; None to train one.
        join: builds other training rows, such as those that join pairs of a document, from the
            pairs, their texts, the tokenizer and the options. None to train on the pairs.
        parts: further arguments for the data of each of `source.sources`, by name.
        learnt: returns source and target texts to train the vocabulary on, from those of the
            training split; None to train on these.
    """

    options: LoaderOptions
    default_options: ClassVar[type[Any]] = LoaderOptions
    unit: ClassVar[str] = "pairs"
    """Name of the rows of a split."""

    def __init__(
        self,
        source: Source,
        tokenizer_config: TokenizerConfig,
        options: Any = None,
        cache_dir: str | None = None,
        seed: int = 0,
        tokenizer: Tokenizer | None = None,
        join: Callable[..., TokenRows[Any]] | None = None,
        parts: Mapping[str, Mapping[str, Any]] | None = None,
        learnt: Callable[[Iterable[str], Iterable[str]], LearntTexts] | None = None,
    ) -> None:
        self.source, self._join, self.parts, self._learnt = source, join, parts or {}, learnt
        self.tokenizer_config = tokenizer_config
        self.options = options or self.default_options()
        if (
            tokenizer_config.one_segmentation
            and getattr(self.options, "subword_sampling", None) is not None
        ):
            raise UserError(
                "loader.subword_sampling needs subwords on both sides; set it to null, or choose "
                "tokenizer=unigram or bpe"
            )
        self.cache_dir = user_path(cache_dir) if cache_dir else default_cache()
        self.seed = seed
        self.scored: Sequence[str] = ("val",)
        """Splits needed besides train."""
        self.rank_batches = 1
        """Batches of an optimizer step on each rank."""
        self._tokenizer = tokenizer
        self._tables: dict[str, datasets.Dataset] = {}
        self._splits: dict[str, TokenRows[Any]] = {}

    @property
    def tokenizer(self) -> Tokenizer:
        """Vocabulary, trained or loaded from the cache at first use."""
        if self._tokenizer is None:
            self._tokenizer = self.source.tokenizer
        if self._tokenizer is None:
            # all splits, so that one that cannot be read is noticed before a long training
            splits = ("train", *self.scored)
            self.source.check_files(splits)
            rows = {split: self._rows(split) for split in splits}
            source, target = self._learnt_texts(rows["train"])
            self._tokenizer = train_tokenizer(source, target, self.tokenizer_config, self.cache_dir)
        return self._tokenizer

    def split(self, name: str) -> TokenRows[Any]:
        """Return train or val, read once; raise UserError for a split without usable rows."""
        if name not in self._splits:
            data = self._dataset(name)
            if len(data) == 0:
                raise UserError(
                    f"the {name} split has no usable {self.unit}: {data.summary(name)}; "
                    f"{data.advice}"
                )
            if name == "train" and self._join is not None:
                data = self._join(data, self._rows(name), self.tokenizer, self.options)
            self._splits[name] = data
        return self._splits[name]

    def load(self) -> None:
        """Read train and val, see `split`."""
        for name in ("train", "val"):
            self.split(name)

    def loader(self, name: str, trainer: Any = None) -> Any:
        """Return a `StepLoader` of train, reshuffled each epoch, or a `BatchLoader` of val.

        Args:
            trainer: Lightning's, with `use_distributed_sampler=False`; its rank gets a share of the
                batches. None for all of them.
        """
        trains, limits = name == "train", self.options
        rank, world = (trainer.global_rank, trainer.world_size) if trainer else (0, 1)
        if limits.pin_memory is None and trainer:
            limits = replace(limits, pin_memory=trainer.strategy.root_device.type == "cuda")
        return (StepLoader if trains else BatchLoader)(
            self.split(name), limits, seed=self.seed, rank=rank, world=world, shuffle=trains,
            step_batches=world * (self.rank_batches if trains else 1),
        )  # fmt: skip

    def first(self, split: str) -> Any:
        """Return the first rows of a loaded split as a batch, independent of its batches."""
        data = self._splits[split]
        longest = np.maximum(data.source_lengths[:_FIRST_ROWS], data.target_lengths[:_FIRST_ROWS])
        padded = np.maximum.accumulate(longest) * np.arange(1, len(longest) + 1)
        return data.batch(range(max(1, int((padded <= _FIRST_TOKENS).sum()))))

    def row_numbers(self, split: str) -> list[int]:
        """Return the distinct row numbers of a loaded split that are trained or validated on."""
        return np.unique(self._splits[split].rows).tolist()

    @property
    def longest(self) -> tuple[int, int]:
        """Length of the longest source (or window of one) and target, end marks included."""
        splits = self._splits.values()
        source = max((int(data.source_lengths.max()) for data in splits), default=0)
        return source, max((int(data.target_lengths.max()) for data in splits), default=0)

    def notices(self) -> list[str]:
        """Return a line for each split: its origin, what was left out, and what was cut."""
        lines = [
            f"{data.summary(split)}; read from {self.source.origin(split)}"
            for split, data in self._splits.items()
        ]
        train, val = self.source.files("train"), self.source.files("val")
        if train and not self.source.held_out and _are_equal(train, val):
            lines.append(
                f"warning: val has the same text as train ({name_files(val)}), so its scores do "
                "not show how well the model generalizes"
            )
        if self._has_equal_sides():
            lines.append(
                "warning: sources and targets of val are equal; check which files or columns are "
                "read"
            )
        return lines

    def rows(self, split: str) -> Texts:
        """Return the raw texts of a split, with nothing left out."""
        return Texts.of(self._rows(split))

    def _has_equal_sides(self) -> bool:
        """Return True if sources and targets of val are equal, and should not be."""
        first = self._rows("val").select_columns(["source", "target"])[:_COMPARED]
        return not self.source.equal_sides and bool(first["source"] == first["target"])

    def sample_sources(self, count: int) -> list[str]:
        """Return at most `count` evenly spaced sources of train, or of val if train is ids."""
        rows = self._tables.get("train", self._tables["val"])
        return list(rows.select(range(0, len(rows), -(-len(rows) // count)))["source"])

    @property
    def copies_letterless(self) -> bool:
        """True if texts without a letter are an exception among the first pairs of training, and
        at least half of them have an equal target.

        Where they are not, as in a task on digits, copies would hide what a model has learned.
        """
        rows = self._tables.get("train", self._tables["val"])[:_LETTERLESS]
        sources, heads = rows["source"], rows.get("head") or repeat(0)
        read = ((text[head:], target) for text, head, target in zip(sources, heads, rows["target"]))
        copied = [text.strip() == target.strip() for text, target in read if is_letterless(text)]
        return 2 * sum(copied) >= len(copied) and len(copied) <= _EXCEPTIONS * len(sources)

    def _learnt_texts(self, rows: datasets.Dataset) -> LearntTexts:
        """Return source and target texts to train the vocabulary on."""
        if "target" not in rows.column_names:
            raise UserError(
                "training requires targets; set data.target_column or data.target_suffix"
            )
        texts = rows["source"], rows["target"]
        return texts if self._learnt is None else self._learnt(*texts)

    def _dataset(self, split: str) -> TokenRows[Any]:
        """Return the rows of a split that are trained or validated on, as cached ids."""
        if split == "train" and self.source.sources:
            if self.source.tokenizer is None:
                self._rows(split)  # for `sample_sources`
            return self.source.mixed(self)
        encoded = self.source.rows(self.tokenizer, self.options) if split == "train" else None
        if encoded is not None:
            return encoded
        rows, alpha = self._rows(split), self.options.subword_sampling
        ids = tokenize(rows, self.tokenizer, self.cache_dir / "tokens")
        if split != "train" or (alpha is None and not self.source.redraws):
            return TokenDataset(ids, self.options, ends=bool(self.source.documents))
        texts = rows if self.source.redraws else rows.select_columns(["source", "target"])
        sampling = PairSampling(texts, self.tokenizer, alpha, self.seed, self.source)
        return TokenDataset(ids, self.options, sampling)

    def _rows(self, split: str) -> datasets.Dataset:
        """Return the texts of a split, read once; raise UserError for a split without any."""
        if split in self._tables:
            return self._tables[split]
        try:
            rows = self.source.load(split, self.cache_dir / "datasets")
        except MissingSplit as error:
            if split != "val" or "hold_out" not in parameters(type(self.source)):
                raise
            raise UserError(
                f"{error}; or set data.hold_out=0.05 to validate on a share of train"
            ) from error
        if len(rows) == 0:
            raise UserError(f"the {split} split has no {self.unit}")
        self._tables[split] = rows
        return rows


def _are_equal(files: Sequence[Path], other_files: Sequence[Path]) -> bool:
    """Return True if files have the same bytes; only those of equal sizes are read."""
    pair = (files, other_files)
    sizes = [[path.stat().st_size for path in some] for some in pair]
    return sizes[0] == sizes[1] and len({tuple(map(digest_of, some)) for some in pair}) == 1
