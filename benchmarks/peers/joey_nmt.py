"""Joey NMT (Kreutzer et al. 2019, arXiv 1907.12484): its Transformer, its loss, its searches."""

from typing import Any

import torch
from joeynmt.batch import Batch
from joeynmt.model import build_model
from joeynmt.search import search
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


class _Vocabulary:
    """Vocabulary interface that its model requires. Args: size: V."""

    pad_index, unk_index, bos_index, eos_index, sep_index = 0, 1, 2, 3, None
    specials: tuple[str, ...] = ()
    lang_tags: list[int] = []  # noqa: RUF012

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


class Contestant:
    """Transformer with random weights. Args: as `Worker.make`."""

    def __init__(self, shape: dict[str, Any], precision: str, threads: int, workers: int) -> None:
        words, dim = _Vocabulary(shape["vocabulary"]), shape["dim"]
        side = {
            "type": "transformer", "num_layers": shape["layers"], "num_heads": shape["heads"],
            "hidden_size": dim, "ff_size": shape["ffn_dim"], "dropout": shape["dropout"],
            "layer_norm": "pre", "embeddings": {"embedding_dim": dim, "scale": True},
        }  # fmt: skip
        parts = {"encoder": side, "decoder": side, "tied_embeddings": True, "tied_softmax": True}
        self.model = build_model(parts, words, words)
        self.model.loss_function = ("crossentropy", 0.1)
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self.autocast = {
            "device_type": "cpu", "enabled": precision == "bf16", "dtype": torch.bfloat16
        }  # fmt: skip

    def _batch(self, source: Tensor, target: Tensor | None) -> Any:
        lengths = (source != 0).sum(dim=1)
        return Batch(
            source, lengths, None, target, None, torch.arange(len(source)), torch.device("cpu"),
            pad_index=0, eos_index=3, is_train=target is not None,
        )  # fmt: skip

    def loss(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the mean loss of targets (B, 1 + T), begin first, given sources (B, S)."""
        batch = self._batch(source, target)
        total, *_ = self.model(return_type="loss", **vars(batch))
        mean: Tensor = total / batch.ntokens
        return mean

    def decode(self, rows: list[list[int]], beams: int, length: int) -> int:
        """Decode `length` tokens for every source and return the total."""
        source = pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
        ids, _, _ = search(
            self.model.eval(), self._batch(source, None), length, beams, 1.0,
            min_output_length=length, autocast=self.autocast,
        )  # fmt: skip
        return int((ids != 0).sum())
