"""Everything about questions on contexts that a training run needs, as a Lightning data module."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from datasets import Dataset
from lightning.pytorch import LightningDataModule

from seqattn.data.bucketing import BatchLimits, BucketSampler
from seqattn.data.loader import BatchLoader
from seqattn.data.span_batch import Questions, SpanBatch
from seqattn.data.span_encode import SpanEncoder
from seqattn.data.span_text import TextReader, vocabulary_texts
from seqattn.data.spans import SpanDataset, Tally, WindowLimits
from seqattn.data.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from seqattn.errors import UserError


class QuestionSource(Protocol):
    """Anything that gives questions on contexts in splits."""

    def splits(self) -> list[str]:
        """Names the splits that are there, of train, val, test."""

    def load(self, split: str, cache_dir: Path | None = None) -> Dataset:
        """Reads a split into the columns "id", "question", "context", "answers", "starts".

        The last two are lists, the answers' texts and the characters where they begin; both are
        empty for a question without an answer.

        Args:
            split: train, val or test.
            cache_dir: where `datasets` keeps its memory-mapped copy; None for its own place.

        Raises:
            UserError: the split is not there or cannot be read.
        """


@dataclass(frozen=True)
class SpanOptions:
    """How windows and batches are made.

    Args:
        window: tokens of a context that are read together; a longer context is read in windows.
        stride: tokens from a window's first to the next one's first.
        max_question: tokens of a question, the end mark counted; longer ones are left out of
            training and cut elsewhere.
        max_tokens: tokens in a batch at most: rows x the longest window or question.
        max_rows: windows in a batch at most; None for no bound.
        max_square: bound on rows x (longest window) squared, which attention's weights grow with;
            None for no bound.
        num_workers: processes that prepare batches; 0 is quick enough.
        pin_memory: page-locked memory, of use with a GPU only.

    Raises:
        UserError: a value out of its range, or a window that no batch can hold.
    """

    window: int = 384
    stride: int = 192
    max_question: int = 64
    max_tokens: int = 8192
    max_rows: int | None = None
    max_square: int | None = None
    num_workers: int = 0
    pin_memory: bool = False

    def __post_init__(self) -> None:
        longest = max(self.windows.window, self.windows.max_question)
        if self.num_workers < 0:
            raise UserError(f"num_workers must be at least 0, got {self.num_workers}")
        if self.limits.rows(longest) < 1:
            raise UserError(
                f"max_tokens and max_square must hold a window or question of {longest} tokens, "
                f"got {self.max_tokens} and {self.max_square}"
            )

    @property
    def windows(self) -> WindowLimits:
        """The part that says what is read together."""
        return WindowLimits(self.window, self.stride, self.max_question)

    @property
    def limits(self) -> BatchLimits:
        """The part that bounds a batch."""
        return BatchLimits(self.max_tokens, self.max_rows, self.max_square)


class SpanData(LightningDataModule):
    """Questions on contexts for training, validation and evaluation.

    One vocabulary serves both, is trained on the training split at first use and cached by
    content. Give the `Trainer` `use_distributed_sampler=False`: the batches are already shared out
    among the ranks.

    Args:
        source: where the questions come from.
        tokenizer_config: the vocabulary to train where no `tokenizer` is given.
        options: how windows and batches are made.
        cache_dir: where vocabularies and the memory-mapped text are kept; None for the
            environment's SEQATTN_CACHE or else ~/.cache/seqattn.
        seed: of the batches' order.
        tokenizer: a ready tokenizer, to resume or to evaluate a bundle; None to train one.

    Raises:
        UserError: two vocabularies are asked for.
    """

    def __init__(
        self,
        source: QuestionSource,
        tokenizer_config: TokenizerConfig,
        options: SpanOptions | None = None,
        cache_dir: str | None = None,
        seed: int = 0,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        super().__init__()
        if not tokenizer_config.joint:
            raise UserError("questions and contexts share a vocabulary; set tokenizer.joint=true")
        self.source = source
        self.tokenizer_config = tokenizer_config
        self.options = options or SpanOptions()
        default = os.environ.get("SEQATTN_CACHE") or "~/.cache/seqattn"
        self.cache_dir = Path(cache_dir or default).expanduser()
        self.seed = seed
        self._tokenizer = tokenizer
        self._splits: dict[str, SpanDataset] = {}

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary, trained or found in the cache if it is not yet here."""
        if self._tokenizer is None:
            rows = self._rows("train")
            self._tokenizer = train_tokenizer(
                vocabulary_texts(rows["question"]),
                vocabulary_texts(rows["context"]),
                self.tokenizer_config,
                self.cache_dir,
            )
        return self._tokenizer

    def prepare_data(self) -> None:
        """Fills the caches; Lightning calls it in one process, before the others read them."""
        for split in ("train", "val"):
            self._rows(split)
        assert self.tokenizer

    def setup(self, stage: str | None = None) -> None:
        """Makes the training and validation data ready, if `stage` wants them.

        Raises:
            UserError: a split cannot be read, or no question of it can be.
        """
        wanted = {"fit": ["train", "val"], "validate": ["val"], None: ["train", "val"]}
        reader = TextReader(self.tokenizer)
        for split in wanted.get(stage, []):
            if split not in self._splits:
                rows, limits = self._rows(split), self.options.windows
                data = SpanDataset(rows, reader, limits, drops=split == "train")
                if len(data) == 0:
                    raise UserError(
                        f"the {split} split must keep some questions, {_told(split, data.tally)}; "
                        "raise max_question"
                    )
                self._splits[split] = data

    def train_dataloader(self) -> BatchLoader[SpanBatch]:
        """Gives the training batches of this rank, shuffled anew each epoch, resumable."""
        self.setup("fit")
        return self._loader("train", shuffle=True)

    def val_dataloader(self) -> BatchLoader[SpanBatch]:
        """Gives the validation batches of this rank, always the same, the longest first."""
        self.setup("validate")
        return self._loader("val", shuffle=False)

    def rows(self, split: str) -> Questions:
        """Gives a split as it came, nothing left out. Args: split: train, val or test."""
        return Questions.of(self._rows(split))

    def encoder(self) -> SpanEncoder:
        """Gives what turns any questions into batches as those of this data."""
        return SpanEncoder(self.tokenizer, self.options.windows, self.options.limits)

    @property
    def longest(self) -> tuple[int, int]:
        """Tokens of the longest window and the longest question."""
        kept = self._splits.values()
        window = max((int(data.source_lengths.max()) for data in kept), default=0)
        question = max((int(data.target_lengths.max()) for data in kept), default=0)
        return window, question

    def report(self) -> list[str]:
        """Says in a line for each split what became of its questions."""
        return [_told(split, data.tally) for split, data in self._splits.items()]

    def _rows(self, split: str) -> Dataset:
        return self.source.load(split, self.cache_dir / "datasets")

    def _loader(self, split: str, shuffle: bool) -> BatchLoader[SpanBatch]:
        rank = 0 if self.trainer is None else self.trainer.global_rank
        world = 1 if self.trainer is None else self.trainer.world_size
        data, options = self._splits[split], self.options
        lengths = (data.source_lengths, data.target_lengths)
        sampler = BucketSampler(*lengths, options.limits, self.seed, rank, world, shuffle)
        return BatchLoader(data, sampler, options.num_workers, options.pin_memory)


def _told(split: str, tally: Tally) -> str:
    verb = "left out" if split == "train" else "cut"
    parts: Sequence[tuple[int, str]] = (
        (tally.long, f"{verb}: the question is too long"),
        (tally.empty, "have an empty side" + (", left out" if split == "train" else "")),
        (tally.inexact, "have an answer within a token, which is taken whole"),
        (tally.split, "have an answer that no window holds"),
    )
    told = [f"{count:,} {words}" for count, words in parts if count]
    line = f"{tally.questions:,} {split} questions in {tally.windows:,} windows"
    return "; ".join([line, *told])
