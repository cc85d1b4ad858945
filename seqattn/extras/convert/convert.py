"""Conversion of a bundle: fewer heads, or int8 weights."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from seqattn.bundle.bundle import Bundle
from seqattn.bundle.files import read_config, write_bundle
from seqattn.checking import Count, CountOrNone
from seqattn.data.base import Texts
from seqattn.errors import UserError
from seqattn.extras.convert.pooling import pooled
from seqattn.extras.explain.head_importance import pruned_by_importance
from seqattn.metrics.text import TextScore, named
from seqattn.ops.int8 import multiplies_int8, round_weights
from seqattn.screen import print_table
from seqattn.settings.choices import SLOTS
from seqattn.settings.data_paths import without_paths
from seqattn.settings.documents import WEIGHTS
from seqattn.storage import user_path
from seqattn.subcommands.bundle_run import ScoredRun
from seqattn.subcommands.provenance import Provenance, bundle_contents, data_contents
from seqattn.tokens import BOS, EOS
from seqattn.training.run_directory import room_for_files
from seqattn.training.task_options import task_class


class Report(NamedTuple):
    """Figures and scores of a model, reported before and after."""

    figures: dict[str, str]
    scores: list[TextScore]


@dataclass(frozen=True, kw_only=True)
class Conversion(ScoredRun):
    """Pool key and value heads by their mean (Ainslie et al. 2023, arXiv 2305.13245), or remove
    heads; round the weights to int8; or both.

    Args:
        bundle, device, trust, data, generation, scorer, split, cache_dir: as `ScoredRun`; further
            training uses the same data.
        output: directory for the new bundle.
        heads: new choice of attention: gqa, or mqa for one key head. None keeps the heads,
            or means gqa if `num_kv_heads` is set.
        num_kv_heads: key and value heads G after pooling; divides their current number.
        slots: slots whose heads are pooled, from encoder, decoder and cross.
        prune: number of heads to remove, the least important ones over all attentions, measured
            on the split (Michel et al. 2019, arXiv 1905.10650); each attention retains at least
            one.
        uptrain_steps: optimizer steps of further training after heads are pooled or removed.
        quantize: int8 rounds weight matrices to int8, see `round_weights`; None keeps them.
        scores: score the model before and after, if the data can be read.

    Raises:
        UserError: if no conversion is requested, or heads are both pooled and removed, or a
            setting has no effect.
    """

    output: str
    heads: Literal["gqa", "mqa"] | None = None
    num_kv_heads: Count | None = None
    slots: list[str] = field(default_factory=lambda: list(SLOTS))
    prune: Count | None = None
    uptrain_steps: CountOrNone = 0
    quantize: Literal["int8"] | None = None
    scores: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heads == "mqa" and self.num_kv_heads not in (None, 1):
            raise UserError(f"heads=mqa has one key head; remove num_kv_heads={self.num_kv_heads}")
        if self.heads == "gqa" and self.num_kv_heads is None:
            raise UserError("heads=gqa needs the number of key heads; add num_kv_heads=N")
        if self.ensemble:
            raise UserError("convert takes one bundle; remove ensemble")
        if self._pools and self.prune:
            raise UserError("cannot pool and prune heads in one command; remove prune")
        if not (self._pools or self.prune or self.quantize):
            ways = "heads=mqa, num_kv_heads=N, prune=N or quantize=int8"
            raise UserError(f"nothing to convert; add {ways}")
        if not self.slots or not set(self.slots) <= set(SLOTS):
            raise UserError(f"slots must be one or more of {', '.join(SLOTS)}, got {self.slots}")
        if not self._pools and set(self.slots) < set(SLOTS):
            raise UserError("slots applies only to pooled heads; remove it, or add heads=mqa")
        if self.uptrain_steps and not (self._pools or self.prune):
            raise UserError(
                "uptrain_steps needs pooled or pruned heads; remove it, or add heads=mqa"
            )

    @property
    def _pools(self) -> bool:
        return self.heads is not None or self.num_kv_heads is not None

    def run(self) -> Path:
        """Convert, score, train further if requested, and write; return the directory.

        Raises:
            UserError: if the bundle cannot be used, or its attentions cannot have fewer heads.
        """
        output = user_path(self.output)
        provenance = self._provenance()
        if provenance.is_finished(output, WEIGHTS):
            return output
        with room_for_files(output.parent):
            return self._run(output, provenance)

    def _provenance(self) -> Provenance:
        """Return the inputs that determine the new bundle, including data if it is read."""
        config = read_config(user_path(self.bundle), self.trust)
        own = ("heads", "num_kv_heads", "slots", "prune", "uptrain_steps", "quantize", "scores")
        settings = {"subcommand": "convert", **{name: getattr(self, name) for name in own}}
        contents = {"bundle": bundle_contents(self.bundle)}
        splits = [self.split] if self.scores or self.prune else []
        if self.scores or self.prune or self.uptrain_steps:
            for name in ("generation", "scorer", "split"):
                settings[name] = self.settings.get(name)
            settings["data"] = without_paths(self.settings["data"])
            splits += ["train", "val"] if self.uptrain_steps else []
            contents |= data_contents(task_class(config).source(self.data), splits)
        return Provenance(settings=settings, contents=contents)

    def _run(self, output: Path, provenance: Provenance) -> Path:
        bundle = self.load(self.generation)
        if bundle.config.get("quantize"):
            raise UserError(f"{self.bundle} is already quantized; convert the original bundle")
        if self.uptrain_steps and not {"optimizer", "schedule"} <= bundle.config.keys():
            raise UserError(
                f"uptrain_steps needs the optimizer of {self.bundle}, which is from another "
                "package; add trust=[PACKAGE]"
            )
        fewer = None
        if self._pools:
            fewer = pooled(bundle, self.heads or "gqa", self.num_kv_heads or 1, self.slots)
        if self.prune:
            fewer = pruned_by_importance(self, bundle, self.prune)
        data = self._read(bundle)
        reports = {"before": self._report(bundle, data)}
        if fewer is not None:
            bundle = fewer
            bundle.config.pop("alignment", None)  # it named a layer and head of the other model
            reports["after"] = self._report(bundle, data)
        if self.uptrain_steps:
            from seqattn.extras.convert.uptraining import (
                uptrain,  # Lightning takes seconds to import
            )

            uptrain(
                bundle.texts("uptraining"),
                self.data,
                self.uptrain_steps,
                self.device,
                self.cache_dir,
            )
            reports["uptrained"] = self._report(bundle, data)
        if self.quantize:
            bundle.config["quantize"] = self.quantize
            round_weights(bundle.model)
            reports["int8"] = self._report(bundle, data)
        last = list(reports.values())[-1]
        scores = {"converted from": bundle.config.get("name"), **named(last.scores, self.split)}
        write_bundle(
            output, bundle.config, bundle.model.cpu(), bundle.tokenizer, scores,
            beside=provenance.write,
        )  # fmt: skip
        self._print(reports)
        return output

    def _read(self, bundle: Bundle) -> Texts | None:
        """Return rows to score on; None if no scores are requested or the data cannot be read."""
        if not self.scores:
            return None
        try:
            return self.read_rows(bundle)
        except (UserError, OSError) as error:
            print(f"not scored: {error}", file=sys.stderr)
            return None

    def _report(self, bundle: Bundle, rows: Texts | None) -> Report:
        model, scores = bundle.model, list[TextScore]()
        figures = {"parameters": f"{sum(part.numel() for part in model.parameters()):,}"}
        if self._pools or self.prune:
            target, source = _cache_bytes(model)
            figures["cache per target token (bytes)"] = f"{target:,}"
            figures["keys and values per source token (bytes)"] = f"{source:,}"
        if rows is not None:
            outputs = bundle.outputs(rows, self.generation)
            figures |= {
                f"{what} per second": f"{rate:,.1f}" for what, rate in outputs.rates.items()
            }
            scores = outputs.scores(self.scorer)
        return Report(figures, scores)

    def _print(self, reports: Mapping[str, Report]) -> None:
        some = list(reports.values())
        rows = {name: [one.figures[name] for one in some] for name in some[0].figures}
        notes = []
        for number, one in enumerate(some[0].scores):
            values = [f"{report.scores[number].value:.2f}" for report in some]
            rows[f"{self.split} {one.name}"] = values
            notes.append(f"{one.name}: {one.signature}")
        before, now = (
            (user_path(path) / WEIGHTS).stat().st_size for path in (self.bundle, self.output)
        )
        notes.append(f"written to {self.output}: {WEIGHTS} has {now:,} bytes ({before:,} before)")
        if self.quantize and not multiplies_int8():
            notes.append("this CPU has no int8 instructions (VNNI): it decodes in float32")
        if not self.quantize:
            notes.append(f"continue training with init_from={self.output}")
        kind = self.quantize or self.heads or ("pruned" if self.prune else "gqa")
        print_table(f"{self.bundle} converted ({kind})", rows, list(reports), notes)


@torch.inference_mode()
def _cache_bytes(model: Any) -> tuple[int, int]:
    """Measure the cache bytes per target token, and those of keys and values per source token.

    A bounded cache grows at this rate until it is full.
    """
    device = next(model.parameters()).device
    source, token = (torch.full((1, 1), mark, device=device) for mark in (EOS, BOS))
    state = model.start(model.encode(source))
    model.features(token, state)
    first = state.nbytes
    model.features(token, state)
    per_source_token = sum(
        part.numel() * part.element_size() for pair in state.source for part in pair
    )
    return state.nbytes - first, per_source_token
