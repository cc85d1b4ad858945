"""Setup of a training on words and features."""

from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar

from seqattn.data.module import Seq2SeqData
from seqattn.data.tokenizer import Tokenizer
from seqattn.data.vocabulary import TokenizerConfig
from seqattn.extras.transduction.model import FeatureTransformer
from seqattn.extras.transduction.words import pieces
from seqattn.training.settings import TrainingSettings
from seqattn.training.setup import Setup


class WordData(Seq2SeqData):
    """Words as pairs of texts, each feature of the training rows a piece of the vocabulary."""

    @property
    def tokenizer(self) -> Tokenizer:
        mark = getattr(self.source, "mark", None)
        if self._tokenizer is None and mark and type(self.tokenizer_config) is TokenizerConfig:
            features = (pieces(text, mark) for text in self._rows("train")["source"])
            symbols = dict.fromkeys(chain(self.tokenizer_config.symbols or (), *features))
            self.tokenizer_config = replace(self.tokenizer_config, symbols=[*symbols])
        return super().tokenizer

    def notices(self) -> list[str]:
        """Return lines as `Seq2SeqData`, and one for rows of val whose word is in train."""
        words_of: Any = getattr(self.source, "words_of", lambda sources: [])
        train, val = ([*words_of(self._rows(split)["source"])] for split in ("train", "val"))
        train_words = {*train}
        shared = sum(word in train_words for word in val)
        message = f"{shared:,} of {len(val):,} rows of val have a word that train has, too"
        return super().notices() + [message] * (shared > 0)


class WordSetup(Setup):
    """Setup of a training on words, in which a `FeatureTransformer` knows the features."""

    data_type: ClassVar[Any] = WordData

    def __init__(self, run: TrainingSettings) -> None:
        super().__init__(run)
        mark = getattr(self.data.source, "mark", None)
        if isinstance(self.model, FeatureTransformer) and mark:
            names = enumerate(self.data.tokenizer.source_vocabulary())
            self.model.is_feature[[n for n, name in names if name[0] == mark != name]] = 1
