"""Everything about data that a training run needs, as Lightning data modules."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar

import datasets
from lightning.pytorch import LightningDataModule

from seqattn.data.base import Source, Texts
from seqattn.data.batch import Batch
from seqattn.data.bucketing import BucketSampler
from seqattn.data.loader import BatchLoader
from seqattn.data.options import LoaderOptions, SpanOptions
from seqattn.data.span_batch import Questions, SpanBatch, SpanEncoder
from seqattn.data.span_dataset import QuestionTables, SpanDataset, tokenize_questions
from seqattn.data.span_text import vocabulary_texts
from seqattn.data.token_dataset import TokenDataset, tokenize
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.vocabulary import TokenizerConfig, train_tokenizer
from seqattn.errors import UserError
from seqattn.storage import file_faults

BatchT = TypeVar("BatchT")
OptionsT = TypeVar("OptionsT", LoaderOptions, SpanOptions)
DatasetT = TypeVar("DatasetT", TokenDataset, SpanDataset)


class TextData(LightningDataModule, Generic[BatchT, OptionsT, DatasetT]):
    """Text for training, validation and evaluation.

    The vocabulary is trained on the training split at first use and the splits are tokenised
    once; both are cached by content. Give the `Trainer` `use_distributed_sampler=False`: the
    batches are already shared out among the ranks.

    Args:
        source: where the text comes from.
        tokenizer_config: the vocabulary to train where no `tokenizer` is given.
        options: how batches are made; None for the options' defaults.
        cache_dir: where vocabularies, ids and the memory-mapped text are kept; None for the
            environment's SEQATTN_CACHE or else ~/.cache/seqattn.
        seed: of the batches' order.
        tokenizer: a ready tokenizer, to resume or to evaluate a bundle; None to train one.
    """

    default_options: type[OptionsT]

    def __init__(
        self,
        source: Source,
        tokenizer_config: TokenizerConfig,
        options: OptionsT | None = None,
        cache_dir: str | None = None,
        seed: int = 0,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        super().__init__()
        self.source = source
        self.tokenizer_config = tokenizer_config
        self.options: OptionsT = options or self.default_options()
        default = os.environ.get("SEQATTN_CACHE") or "~/.cache/seqattn"
        self.cache_dir = Path(cache_dir or default).expanduser()
        self.seed = seed
        self._tokenizer = tokenizer
        self._splits: dict[str, DatasetT] = {}

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary, trained or found in the cache if it is not yet here."""
        if self._tokenizer is None:
            source, target = self._learnt_texts(self._rows("train"))
            self._tokenizer = train_tokenizer(source, target, self.tokenizer_config, self.cache_dir)
        return self._tokenizer

    def prepare_data(self) -> None:
        """Fills the caches; Lightning calls it in one process, before the others read them."""
        for split in ("train", "val"):
            self._tokenized(split)

    def setup(self, stage: str | None = None) -> None:
        """Makes the training and validation data ready, if `stage` wants them.

        Raises:
            UserError: a split cannot be read, or nothing of it can be used.
        """
        wanted = {"fit": ["train", "val"], "validate": ["val"], None: ["train", "val"]}
        for split in wanted.get(stage, []):
            if split not in self._splits:
                self._splits[split] = self._dataset(split)

    def train_dataloader(self) -> BatchLoader[BatchT]:
        """The training batches of this rank, shuffled anew each epoch, resumable."""
        self.setup("fit")
        return self._loader("train", shuffle=True)

    def val_dataloader(self) -> BatchLoader[BatchT]:
        """The validation batches of this rank, always the same, the longest first."""
        self.setup("validate")
        return self._loader("val", shuffle=False)

    @property
    def longest(self) -> tuple[int, int]:
        """Tokens of the longest source (or window) and target (or question), end marks counted."""
        kept = self._splits.values()
        source = max((int(data.source_lengths.max()) for data in kept), default=0)
        return source, max((int(data.target_lengths.max()) for data in kept), default=0)

    def report(self) -> list[str]:
        """Says in a line for each split what was left out, and what was cut."""
        return [self._account(split, data) for split, data in self._splits.items()]

    @abstractmethod
    def _learnt_texts(self, rows: datasets.Dataset) -> tuple[Iterable[str], Iterable[str]]:
        """What the vocabulary learns from: texts of the source and of the target side."""

    @abstractmethod
    def _tokenized(self, split: str) -> Any:
        """A split's ids, made once."""

    @abstractmethod
    def _dataset(self, split: str) -> DatasetT:
        """What of a split is trained or validated on."""

    @abstractmethod
    def _account(self, split: str, data: DatasetT) -> str:
        """What became of a split."""

    def _rows(self, split: str) -> datasets.Dataset:
        cache = self.cache_dir / "datasets"
        with file_faults("make", cache):
            cache.mkdir(parents=True, exist_ok=True)
        return self.source.load(split, cache)

    def _loader(self, split: str, shuffle: bool) -> BatchLoader[BatchT]:
        rank = 0 if self.trainer is None else self.trainer.global_rank
        world = 1 if self.trainer is None else self.trainer.world_size
        data, options = self._splits[split], self.options
        lengths = (data.source_lengths, data.target_lengths)
        sampler = BucketSampler(*lengths, options, self.seed, rank, world, shuffle)
        return BatchLoader(data, sampler, options.num_workers, options.pin_memory)  # type: ignore[arg-type]


class Seq2SeqData(TextData[Batch, LoaderOptions, TokenDataset]):
    """Pairs of texts for training, validation and evaluation; see `TextData`."""

    default_options = LoaderOptions

    def rows(self, split: str) -> Texts:
        """A split's texts as they came, nothing left out. Args: split: such as val."""
        return Texts.of(self._rows(split))

    def _learnt_texts(self, rows: datasets.Dataset) -> tuple[Iterable[str], Iterable[str]]:
        if "target" not in rows.column_names:
            raise UserError(
                "training needs both sides and there is no target; name it by "
                "data.target_column or data.target_suffix"
            )
        return rows["source"], rows["target"]

    def _tokenized(self, split: str) -> datasets.Dataset:
        return tokenize(self._rows(split), self.tokenizer, self.cache_dir)

    def _dataset(self, split: str) -> TokenDataset:
        data = TokenDataset(self._tokenized(split), self.options.max_length, self.options.sources)
        if len(data) == 0:
            dropped = self._phrases(split, data)[0]
            raise UserError(f"the {split} split must keep some pairs, {dropped}; raise max_length")
        return data

    def _account(self, split: str, data: TokenDataset) -> str:
        return "; ".join(self._phrases(split, data))

    def _phrases(self, split: str, data: TokenDataset) -> list[str]:
        options, dropped = self.options, data.dropped
        maximum = options.sources.maximum
        beyond = f"longer than {options.max_length} tokens"
        if options.long_sources != "drop":
            beyond = f"with a target {beyond}"
        elif maximum != options.max_length:
            beyond = (
                f"with a source beyond {maximum} or a target beyond {options.max_length} tokens"
            )
        phrases = [f"kept all {data.total:,} {split} pairs"]
        if sum(dropped):
            phrases = [
                f"dropped {sum(dropped):,} of {data.total:,} {split} pairs: "
                f"{dropped.long:,} {beyond}, {dropped.empty:,} with an empty side"
            ]
        if data.cut:
            what = f"to their first {maximum} tokens"
            if options.long_sources == "window":
                what = f"into {data.pieces:,} windows of {maximum} tokens"
            share = 100 * data.cut / data.total
            phrases.append(f"cut {data.cut:,} sources ({share:.1f} %) {what}")
        return phrases


class SpanData(TextData[SpanBatch, SpanOptions, SpanDataset]):
    """Questions on contexts, which must share a vocabulary; see `TextData`."""

    default_options = SpanOptions

    def __init__(
        self, source: Source, tokenizer_config: TokenizerConfig, *rest: Any, **more: Any
    ) -> None:
        if not tokenizer_config.joint:
            raise UserError("questions and contexts share a vocabulary; set tokenizer.joint=true")
        super().__init__(source, tokenizer_config, *rest, **more)

    def rows(self, split: str) -> Questions:
        """A split as it came, nothing left out. Args: split: such as val."""
        return Questions.of(self._rows(split))

    def encoder(self) -> SpanEncoder:
        """What turns any questions into batches as those of this data."""
        return SpanEncoder(self.tokenizer, self.options)

    def _learnt_texts(self, rows: datasets.Dataset) -> tuple[Iterable[str], Iterable[str]]:
        return vocabulary_texts(rows["question"]), vocabulary_texts(rows["context"])

    def _tokenized(self, split: str) -> QuestionTables:
        return tokenize_questions(self._rows(split), self.tokenizer, self.cache_dir)

    def _dataset(self, split: str) -> SpanDataset:
        data = SpanDataset(self._tokenized(split), self.options, drops=split == "train")
        if len(data) == 0:
            told = self._account(split, data)
            raise UserError(
                f"the {split} split must keep some questions, {told}; raise max_question"
            )
        return data

    def _account(self, split: str, data: SpanDataset) -> str:
        tally = data.tally
        verb = "left out" if split == "train" else "cut"
        parts = (
            (tally.long, f"{verb}: the question is too long"),
            (tally.empty, "have an empty side" + (", left out" if split == "train" else "")),
            (tally.inexact, "have an answer within a token, which is taken whole"),
            (tally.split, "have an answer that no window holds"),
        )
        line = f"{tally.questions:,} {split} questions in {tally.windows:,} windows"
        return "; ".join([line, *(f"{count:,} {words}" for count, words in parts if count)])
