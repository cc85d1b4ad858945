"""Eole (successor of OpenNMT-py): its Transformer, its loss, its searches."""

import logging
from typing import Any

import pyonmttok
import torch
from eole.config.run import PredictConfig, TrainConfig
from eole.models.model import EncoderDecoderModel
from eole.predict import GNMTGlobalScorer, Translator
from eole.utils.loss import LossCompute
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

_MARKS = {"pad_token": "<blank>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}


class Contestant:
    """Transformer with random weights. Args: as `Worker.make`."""

    def __init__(self, shape: dict[str, Any], precision: str, threads: int, workers: int) -> None:
        ordinary = [str(number) for number in range(len(_MARKS), shape["vocabulary"])]
        words = pyonmttok.build_vocab_from_tokens(ordinary, special_tokens=[*_MARKS.values()])
        self.vocabularies = {
            "src": words, "tgt": words, "specials": _MARKS, "decoder_start_token": "<s>"
        }  # fmt: skip
        model = {
            "architecture": "transformer", "layers": shape["layers"], "heads": shape["heads"],
            "hidden_size": shape["dim"], "transformer_ff": shape["ffn_dim"],
            "embeddings": {"word_vec_size": shape["dim"]}, "add_qkvbias": True,
            "add_final_linear_bias": True, "add_ffnbias": True, "share_embeddings": True,
            "share_decoder_embeddings": True, "generator_bias": False,
        }  # fmt: skip
        training = {
            "dropout": [shape["dropout"]], "attention_dropout": [0.0], "label_smoothing": 0.1,
            "world_size": 1, "gpu_ranks": [],
        }  # fmt: skip
        files = {"src_vocab": "-", "tgt_vocab": "-", "data": {}, "share_vocab": True}
        self.config = TrainConfig(**files, model=model, training=training)
        self.model = EncoderDecoderModel.for_training(
            self.config.model, self.vocabularies, self.config.training
        )
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self.criterion = LossCompute.from_config(self.config, self.model, self.vocabularies)
        self.half = precision == "bf16"
        self.searches: dict[tuple[int, int], Any] = {}

    def loss(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the mean loss of targets (B, 1 + T), begin first, given sources (B, S)."""
        lengths, numbers = (source != 0).sum(dim=1), list(range(len(source)))
        output = self.model(source, target, lengths)
        batch = {
            "src": source, "tgt": target, "srclen": lengths, "cid": numbers,
            "cid_line_number": numbers,
        }  # fmt: skip
        total, *_ = self.criterion(batch, output.dec_out, output.attns)
        mean: Tensor = total / (target[:, 1:] != 0).sum()
        return mean

    def decode(self, rows: list[list[int]], beams: int, length: int) -> int:
        """Decode `length` tokens for every source and return the total."""
        if (beams, length) not in self.searches:
            self.searches[beams, length] = self._search(beams, length)
        source = pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
        lengths = torch.tensor([len(row) for row in rows])
        batch = {"src": source, "srclen": lengths, "ind_in_bucket": list(range(len(rows)))}
        results = self.searches[beams, length].predict_batch(batch, False)
        return sum(len(best[0]) for best in results["predictions"])

    def _search(self, beams: int, length: int) -> Any:
        if self.half:
            self.model.to(torch.bfloat16)
        self.model.eval()
        config = PredictConfig(
            model_path="-", src="-", gpu_ranks=[], world_size=1, beam_size=beams,
            min_length=length, max_length=length, max_length_ratio=0,
        )  # fmt: skip
        scorer, model = GNMTGlobalScorer.from_config(config), self.config.model
        return Translator(
            self.model, self.vocabularies, config, model, device_id=-1, global_scorer=scorer,
            logger=logging.getLogger("eole"),
        )  # fmt: skip
