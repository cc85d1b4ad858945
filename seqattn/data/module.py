"""Everything about data that a training run needs, as a Lightning data module."""

from __future__ import annotations

import os
from pathlib import Path

from datasets import Dataset
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader

from seqattn.data.batch import Batch
from seqattn.data.bucketing import BucketSampler
from seqattn.data.loader import BatchLoader
from seqattn.data.options import LoaderOptions
from seqattn.data.sources import Source
from seqattn.data.texts import Texts
from seqattn.data.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from seqattn.data.tokens import TokenDataset, tokenize
from seqattn.errors import UserError

__all__ = ["LoaderOptions", "Seq2SeqData"]


class Seq2SeqData(LightningDataModule):
    """Sentence pairs for training, validation and evaluation.

    The vocabulary is trained on the training split at first use and the splits are tokenised
    once; both are cached by content. Give the `Trainer` `use_distributed_sampler=False`: the
    batches are already shared out among the ranks. Pass `batch_size=` to `self.log`.

    Args:
        source: where the text comes from.
        tokenizer_config: the vocabulary to train where no `tokenizer` is given.
        options: how batches are made.
        cache_dir: where vocabularies, ids and the memory-mapped text are kept; None for the
            environment's SEQATTN_CACHE or else ~/.cache/seqattn.
        seed: of the batches' order.
        tokenizer: a ready tokenizer, to resume or to evaluate a bundle; None to train one.

    Attributes:
        tokenizer: the vocabulary; there after `setup`, or from the start if given.
    """

    def __init__(
        self,
        source: Source,
        tokenizer_config: TokenizerConfig,
        options: LoaderOptions | None = None,
        cache_dir: str | None = None,
        seed: int = 0,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        super().__init__()
        self.source = source
        self.tokenizer_config = tokenizer_config
        self.options = options or LoaderOptions()
        default = os.environ.get("SEQATTN_CACHE") or "~/.cache/seqattn"
        self.cache_dir = Path(cache_dir or default).expanduser()
        self.seed = seed
        self._tokenizer = tokenizer
        self._splits: dict[str, TokenDataset] = {}
        self._report: dict[str, str] = {}

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary, trained or found in the cache if it is not yet here."""
        if self._tokenizer is None:
            texts = self._texts("train")
            if "target" not in texts.column_names:
                raise UserError(
                    "training needs both sides and there is no target; name it by "
                    "data.target_column or data.target_suffix"
                )
            self._tokenizer = train_tokenizer(
                texts["source"], texts["target"], self.tokenizer_config, self.cache_dir
            )
        return self._tokenizer

    def prepare_data(self) -> None:
        """Fills the caches; Lightning calls it in one process, before the others read them."""
        for split in ("train", "val"):
            tokenize(self._texts(split), self.tokenizer, self.cache_dir)

    def setup(self, stage: str | None = None) -> None:
        """Makes the training and validation data ready, if `stage` wants them.

        Raises:
            UserError: a split cannot be read, or no pair of it passes the length limit.
        """
        wanted = {"fit": ["train", "val"], "validate": ["val"], None: ["train", "val"]}
        for split in wanted.get(stage, []):
            if split not in self._splits:
                self._splits[split] = self._tokenized(split)

    def train_dataloader(self) -> BatchLoader[Batch]:
        """Gives the training batches of this rank, shuffled anew each epoch, resumable."""
        self.setup("fit")
        sampler = self._sampler("train", shuffle=True)
        options = self.options
        return BatchLoader(self._splits["train"], sampler, options.num_workers, options.pin_memory)

    def val_dataloader(self) -> DataLoader[Batch]:
        """Gives the validation batches of this rank, always the same, the longest first."""
        self.setup("validate")
        sampler = self._sampler("val", shuffle=False)
        options = self.options
        return BatchLoader(self._splits["val"], sampler, options.num_workers, options.pin_memory)

    def rows(self, split: str) -> Texts:
        """Gives a split's texts as they came, nothing left out. Args: split: train, val or test."""
        return Texts.of(self._texts(split))

    @property
    def longest(self) -> tuple[int, int]:
        """Tokens of the longest source and target that are kept, the end mark counted."""
        kept = self._splits.values()
        source = max((int(data.source_lengths.max()) for data in kept), default=0)
        target = max((int(data.target_lengths.max()) for data in kept), default=0)
        return source, target

    def report(self) -> list[str]:
        """Says in a line for each split what was left out, and what was cut."""
        return list(self._report.values())

    def _texts(self, split: str) -> Dataset:
        return self.source.load(split, self.cache_dir / "datasets")

    def _tokenized(self, split: str) -> TokenDataset:
        table = tokenize(self._texts(split), self.tokenizer, self.cache_dir)
        dataset = TokenDataset(table, self.options.max_length, self.options.sources)
        if len(dataset) == 0:
            dropped = self.options.account(dataset, split)[0]
            raise UserError(f"the {split} split must keep some pairs, {dropped}; raise max_length")
        self._report[split] = "; ".join(self.options.account(dataset, split))
        return dataset

    def _sampler(self, split: str, shuffle: bool) -> BucketSampler:
        rank = 0 if self.trainer is None else self.trainer.global_rank
        world = 1 if self.trainer is None else self.trainer.world_size
        data = self._splits[split]
        lengths = (data.source_lengths, data.target_lengths)
        return BucketSampler(*lengths, self.options.limits, self.seed, rank, world, shuffle)
