"""Everything about data that a training run needs, as Lightning data modules."""

import os
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

import datasets
import numpy as np
from lightning.pytorch import LightningDataModule

from seqattn.data.base import Source, Texts
from seqattn.data.loader import BatchLoader, TokenRows
from seqattn.data.options import BatchLimits, LoaderOptions, SpanOptions
from seqattn.data.shards import ShardRows, Shards
from seqattn.data.span_batch import Questions, SpanEncoder
from seqattn.data.span_dataset import SpanDataset, tokenize_questions
from seqattn.data.span_text import cut_words
from seqattn.data.token_dataset import SubwordSampling, TokenDataset, tokenize
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.errors import UserError
from seqattn.storage import user_path

_FIRST_ROWS, _FIRST_TOKENS = 16, 2048  # of a batch that is looked at, at most; tokens of a side


class TextData(LightningDataModule):
    """Text for training, validation and evaluation.

    The vocabulary is trained on the training split at first use and the splits are tokenised
    once; both are cached by content. Give the `Trainer` `use_distributed_sampler=False`: the
    batches are already shared out among the ranks.

    Args:
        tokenizer_config: the vocabulary to train where no `tokenizer` is given.
        options: how batches are made; None for the options' defaults.
        cache_dir: where vocabularies, ids and the memory-mapped text are kept; None for the
            environment's SEQATTN_CACHE or else ~/.cache/seqattn.
        tokenizer: a ready tokenizer, to resume or to evaluate a bundle; None to train one.
    """

    default_options: type[BatchLimits]
    unit: ClassVar[str]
    """What a split has."""

    def __init__(
        self,
        source: Source,
        tokenizer_config: TokenizerConfig,
        options: Any = None,
        cache_dir: str | None = None,
        seed: int = 0,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        super().__init__()
        self.source = source
        self.tokenizer_config = tokenizer_config
        self.options = options or self.default_options()
        default = os.environ.get("SEQATTN_CACHE") or "~/.cache/seqattn"
        self.cache_dir = user_path(cache_dir or default)
        self.seed = seed
        self._tokenizer = tokenizer
        self._splits: dict[str, TokenRows[Any]] = {}

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary, trained or found in the cache if it is not yet here."""
        if self._tokenizer is None and isinstance(self.source, Shards):
            self._tokenizer = self.source.tokenizer
        if self._tokenizer is None:
            source, target = self._learnt_texts(self._rows("train"))
            self._tokenizer = train_tokenizer(source, target, self.tokenizer_config, self.cache_dir)
        return self._tokenizer

    def prepare_data(self) -> None:
        """Fills the caches; Lightning calls it in one process, before the others read them."""
        for split in ("train", "val"):
            self._dataset(split)

    def setup(self, stage: str | None = None) -> None:
        """Makes the data that `stage` wants ready; a split of nothing usable is a `UserError`."""
        wanted = {"fit": ["train", "val"], "validate": ["val"], None: ["train", "val"]}
        for split in wanted.get(stage, []):
            if split in self._splits:
                continue
            data = self._dataset(split)
            if len(data) == 0:
                raise UserError(
                    f"the {split} split must keep some {self.unit}, {data.account(split)}; "
                    f"{data.advice}"
                )
            self._splits[split] = data

    def train_dataloader(self) -> BatchLoader[Any]:
        """The training batches of this rank, shuffled anew each epoch."""
        self.setup("fit")
        return self._loader("train", shuffle=True)

    def val_dataloader(self) -> BatchLoader[Any]:
        """The validation batches of this rank, always the same, the longest first."""
        self.setup("validate")
        return self._loader("val", shuffle=False)

    def first(self, split: str) -> Any:
        """The first rows of a ready split as a batch, whatever batches it is cut into."""
        data = self._splits[split]
        longest = np.maximum(data.source_lengths[:_FIRST_ROWS], data.target_lengths[:_FIRST_ROWS])
        padded = np.maximum.accumulate(longest) * np.arange(1, len(longest) + 1)
        return data.batch(range(max(1, int((padded <= _FIRST_TOKENS).sum()))))

    def kept(self, split: str) -> list[int]:
        """The rows of a ready split that are trained or validated on, each once."""
        return np.unique(self._splits[split].rows).tolist()

    @property
    def longest(self) -> tuple[int, int]:
        """Tokens of the longest source (or window) and target (or question), end marks counted."""
        kept = self._splits.values()
        source = max((int(data.source_lengths.max()) for data in kept), default=0)
        return source, max((int(data.target_lengths.max()) for data in kept), default=0)

    def report(self) -> list[str]:
        """Says in a line for each split where it is from, what was left out, and what was cut."""
        return [
            f"{data.account(split)}; read from {self.source.origin(split)}"
            for split, data in self._splits.items()
        ]

    @abstractmethod
    def _learnt_texts(self, rows: datasets.Dataset) -> tuple[Iterable[str], Iterable[str]]:
        """What the vocabulary learns from: texts of the source and of the target side."""

    @abstractmethod
    def _dataset(self, split: str) -> TokenRows[Any]:
        """What of a split is trained or validated on, its ids made once."""

    def _rows(self, split: str) -> datasets.Dataset:
        rows = self.source.load(split, self.cache_dir / "datasets")
        if len(rows) == 0:
            raise UserError(f"the {split} split must hold some {self.unit}, it has none")
        return rows

    def _loader(self, split: str, shuffle: bool) -> BatchLoader[Any]:
        rank = 0 if self.trainer is None else self.trainer.global_rank
        world = 1 if self.trainer is None else self.trainer.world_size
        accumulated = self.trainer.accumulate_grad_batches if self.trainer and shuffle else 1
        order = {"seed": self.seed, "rank": rank, "world": world, "shuffle": shuffle}
        limits = self.options
        if limits.pin_memory is None and self.trainer is not None:
            limits = replace(limits, pin_memory=self.trainer.strategy.root_device.type == "cuda")
        return BatchLoader(self._splits[split], limits, **order, step_batches=world * accumulated)


class Seq2SeqData(TextData):
    """Pairs of texts for training, validation and evaluation; see `TextData`."""

    options: LoaderOptions
    default_options = LoaderOptions
    unit = "pairs"

    def rows(self, split: str) -> Texts:
        """A split's texts as they came, nothing left out."""
        return Texts.of(self._rows(split))

    def _learnt_texts(self, rows: datasets.Dataset) -> tuple[Iterable[str], Iterable[str]]:
        if "target" not in rows.column_names:
            raise UserError(
                "training needs both sides and there is no target; name it by "
                "data.target_column or data.target_suffix"
            )
        return rows["source"], rows["target"]

    def _dataset(self, split: str) -> TokenDataset | ShardRows:
        if split == "train" and isinstance(self.source, Shards):
            return self.source.rows(self.tokenizer, self.options)
        rows, alpha = self._rows(split), self.options.subword_sampling
        ids = tokenize(rows, self.tokenizer, self.cache_dir / "tokens")
        if split != "train" or alpha is None:
            return TokenDataset(ids, self.options)
        texts = rows.select_columns(["source", "target"])
        sampling = SubwordSampling(texts, self.tokenizer, alpha, self.seed)
        return TokenDataset(ids, self.options, sampling)


class SpanData(TextData):
    """Questions on contexts, which must share a vocabulary; see `TextData`."""

    options: SpanOptions
    default_options = SpanOptions
    unit = "questions"

    def __init__(
        self, source: Source, tokenizer_config: TokenizerConfig, *rest: Any, **more: Any
    ) -> None:
        if not tokenizer_config.joint:
            raise UserError("questions and contexts share a vocabulary; set tokenizer.joint=true")
        super().__init__(source, tokenizer_config, *rest, **more)

    def rows(self, split: str) -> Questions:
        """A split as it came, nothing left out."""
        return Questions.of(self._rows(split))

    def encoder(self) -> SpanEncoder:
        """What turns any questions into batches as those of this data."""
        return SpanEncoder(self.tokenizer, self.options)

    def _learnt_texts(self, rows: datasets.Dataset) -> tuple[Iterable[str], Iterable[str]]:
        # each different text once, as it is tokenised
        columns = (dict.fromkeys(rows[name]) for name in ("question", "context"))
        questions, contexts = ([cut_words(text).text for text in texts] for texts in columns)
        return questions, contexts

    def _dataset(self, split: str) -> SpanDataset:
        tables = tokenize_questions(self._rows(split), self.tokenizer, self.cache_dir / "tokens")
        return SpanDataset(*tables, self.options, drops=split == "train")
