"""Text that suites run on."""

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
    """Pairs of texts with one vocabulary trained on them.

    Args:
        source: source of the texts.
        tokenizer: settings of the joint vocabulary.
        cache_dir: cache directory of vocabularies and ids; None for the data's default.
        seed: seed of the batches' order.
    """

    source: Source
    tokenizer: TokenizerConfig
    cache_dir: str | None = None
    seed: int = 0

    def batches(self, max_tokens: int, count: int) -> tuple[list[Batch], int]:
        """Return the first training batches of an epoch, and the vocabulary's size.

        Args:
            max_tokens: maximum tokens of a batch, padding included.
            count: number of batches.

        Raises:
            UserError: if the data has fewer.
        """
        data = self._data(max_tokens)
        batches = [batch for [batch] in islice(data.loader("train"), count)]
        if len(batches) < count:
            raise UserError(
                f"rounds, steps and warm-up need {count} batches, the data has {len(batches)} of "
                f"{max_tokens:,} tokens; lower suite.rounds, suite.steps or suite.max_tokens"
            )
        return batches, data.tokenizer.source_size

    def sentences(self, count: int) -> tuple[Rows, int]:
        """Return ids of the test split's first sources (0 for all), and the vocabulary's size.

        Sources without a token are skipped.
        """
        data = self._data(4096)
        ids = data.tokenizer.encode_source(data.rows("test").sources[: count or None])
        return [row for row in ids if len(row) > 1], data.tokenizer.source_size

    def texts(self) -> tuple[list[tuple[str, str]], Tokenizer]:
        """Return the pairs of the training split, and the vocabulary."""
        data = self._data(4096)
        rows = data.rows("train")
        return list(zip(rows.sources, rows.targets, strict=True)), data.tokenizer

    def _data(self, max_tokens: int) -> Seq2SeqData:
        if not self.tokenizer.joint:
            raise UserError("contestants need a joint vocabulary; set tokenizer.joint=true")
        options = LoaderOptions(max_tokens=max_tokens, max_length=min(128, max_tokens))
        return Seq2SeqData(self.source, self.tokenizer, options, self.cache_dir, self.seed)
