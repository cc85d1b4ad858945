"""The text that suites run on."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from seqattn.data.base import Source
from seqattn.data.batch import Batch
from seqattn.data.module import Seq2SeqData
from seqattn.data.options import LoaderOptions
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError

Rows = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Corpus:
    """Pairs of texts under one vocabulary, which is learnt from them.

    Args:
        source: where the texts come from.
        tokenizer: the vocabulary; joint.
        cache_dir: where vocabularies and ids are kept; None for the data's default.
        seed: of the batches' order.
    """

    source: Source
    tokenizer: TokenizerConfig
    cache_dir: str | None = None
    seed: int = 0

    def batches(self, max_tokens: int, count: int) -> tuple[list[Batch], int]:
        """The first batches of an epoch, as a run would train on them, and the vocabulary's size.

        Args:
            max_tokens: of a batch, padding included.
            count: how many batches.

        Raises:
            UserError: where the data has fewer.
        """
        data = self._data(max_tokens)
        found = list(islice(data.train_dataloader(), count))
        if len(found) < count:
            raise UserError(
                f"the rounds, their steps and a warm-up need {count} batches, the data gives "
                f"{len(found)} of {max_tokens:,} tokens; lower rounds, steps or max_tokens"
            )
        return found, data.tokenizer.source_size

    def sentences(self, count: int) -> tuple[Rows, int]:
        """Ids of the test split's first sources (0 for all), and the vocabulary's size.

        Sources without a token are left out.
        """
        data = self._data(4096)
        ids = data.tokenizer.encode_source(data.rows("test").sources[: count or None])
        return [row for row in ids if len(row) > 1], data.tokenizer.source_size

    def texts(self) -> tuple[list[tuple[str, str]], Tokenizer]:
        """The pairs of the training split, and the vocabulary."""
        data = self._data(4096)
        rows = data.rows("train")
        return list(zip(rows.sources, rows.targets, strict=True)), data.tokenizer

    def _data(self, max_tokens: int) -> Seq2SeqData:
        if not self.tokenizer.joint:
            raise UserError("the contestants share one vocabulary; set tokenizer.joint=true")
        options = LoaderOptions(max_tokens=max_tokens, max_length=min(128, max_tokens))
        return Seq2SeqData(self.source, self.tokenizer, options, self.cache_dir, self.seed)
