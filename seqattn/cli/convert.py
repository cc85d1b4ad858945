"""`convert`: a bundle with fewer key and value heads, made from another."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from seqattn.attention.pooling import pool_key_heads
from seqattn.cli.build import build_model, make
from seqattn.cli.bundle import TextBundle, load_text_bundle
from seqattn.cli.bundle_files import write_bundle
from seqattn.cli.carried import compose_with_bundle
from seqattn.cli.config import plain
from seqattn.cli.evaluate import generated, read_split
from seqattn.cli.fitting import learns
from seqattn.cli.grouping import grouped, kv_heads_of
from seqattn.cli.kinds import check_kinds
from seqattn.cli.summary import print_comparison
from seqattn.data.texts import Texts
from seqattn.errors import UserError
from seqattn.metrics.text import Scorer, TextScore, named
from seqattn.models.base import BOS, EOS
from seqattn.models.transformer import Transformer
from seqattn.models.transformer_state import TransformerState
from seqattn.training.memory import keep_freed_memory

Config = dict[str, Any]


class Report(NamedTuple):
    """What is told of a model before and after."""

    parameters: int
    target_bytes: int
    source_bytes: int
    scores: list[TextScore]


def convert(overrides: Sequence[str]) -> None:
    """Runs the verb on the user's overrides."""
    nodes = {"data": "data", "generation": "generation", "scorer": "task.scorer"}
    config, _ = compose_with_bundle("convert", overrides, nodes)
    settled = plain(config)
    check_kinds(settled)
    num_kv_heads = kv_heads_of(settled["heads"], settled["num_kv_heads"])
    if settled["uptrain_steps"] < 0:
        raise UserError(f"uptrain_steps must be at least 0, got {settled['uptrain_steps']}")
    output = Path(settled["output"]).expanduser()
    if output.exists():
        raise UserError(f"output={output} is there already; name another directory")
    keep_freed_memory()
    bundle = load_text_bundle(settled["bundle"], settled["device"], "convert")
    converted = pooled(bundle, settled["heads"], num_kv_heads, settled["slots"])
    texts = _texts(settled, learns(bundle.config))
    reports = {"before": _report(bundle, settled, texts)}
    reports["after"] = _report(converted, settled, texts)
    if settled["uptrain_steps"]:
        from seqattn.cli.uptraining import uptrain  # Lightning takes seconds to import

        uptrain(converted, settled)
        reports["uptrained"] = _report(converted, settled, texts)
    last = list(reports.values())[-1]
    scores = {"converted from": str(settled["bundle"]), **named(last.scores, settled["split"])}
    write_bundle(output, converted.config, converted.model.cpu(), converted.tokenizer, scores)
    _show(settled, reports)


def pooled(bundle: TextBundle, heads: str, num_kv_heads: int, slots: Sequence[str]) -> TextBundle:
    """The bundle with so many key and value heads, each the mean of those it stands for.

    Args:
        bundle: of a Transformer; left as it is.
        heads: the name in conf/attention that the result goes by.
        num_kv_heads: key and value heads G.
        slots: of encoder, decoder and cross.

    Raises:
        UserError: where its attentions cannot be pooled.
    """
    if not isinstance(bundle.model, Transformer):
        raise UserError(
            f"{bundle.path} holds a {type(bundle.model).__name__}, which has no key heads to "
            "pool; convert takes a Transformer"
        )
    config = {k: v for k, v in bundle.config.items() if k != "format"}
    config = grouped(config, heads, num_kv_heads, slots)
    model = build_model(config, bundle.tokenizer)
    assert isinstance(model, Transformer)
    pool_key_heads(bundle.model, model)
    device = next(bundle.model.parameters()).device
    return replace(bundle, model=model.to(device).eval(), config=config, scores={})


def _texts(settled: Config, kind: str) -> Texts | None:
    """What to score on; None where nothing is asked for, or it cannot be read."""
    if not settled["scores"]:
        return None
    try:
        return read_split(settled, kind)
    except (UserError, OSError) as error:
        print(f"not scored: {error}", file=sys.stderr)
        return None


def _report(bundle: TextBundle, settled: Config, texts: Texts | None) -> Report:
    model = bundle.model
    assert isinstance(model, Transformer)
    scores: list[TextScore] = []
    if texts is not None:
        said = generated(bundle, texts.sources, settled["generation"])
        scorer: Scorer = make(settled["scorer"])
        scores = scorer.score(said.hypotheses, texts.references, texts.sources)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Report(parameters, *_cache_bytes(model), scores)


@torch.inference_mode()
def _cache_bytes(model: Transformer) -> tuple[int, int]:
    """Bytes that a target token adds to the cache, and a source token's keys and values; measured.

    A cache that is bounded grows by this until it is full.
    """
    device = next(model.parameters()).device
    source, token = (torch.full((1, 1), mark, device=device) for mark in (EOS, BOS))
    state = model.start(model.encode(source))
    assert isinstance(state, TransformerState)
    model.decode(token, state)
    first = state.nbytes
    model.decode(token, state)
    kept = sum(part.numel() * part.element_size() for pair in state.source for part in pair)
    return state.nbytes - first, kept


def _show(settled: Config, reports: Mapping[str, Report]) -> None:
    some = list(reports.values())
    rows = {
        "parameters": [f"{report.parameters:,}" for report in some],
        "cache, bytes a target token": [f"{report.target_bytes:,}" for report in some],
        "source keys and values, bytes a token": [f"{report.source_bytes:,}" for report in some],
    }
    notes = []
    for number, one in enumerate(some[0].scores):
        values = [f"{report.scores[number].value:.2f}" for report in some]
        rows[f"{settled['split']} {one.name}"] = values
        notes.append(f"{one.name}: {one.signature}")
    notes.append(f"written to {settled['output']}; go on training by init_from={settled['output']}")
    print_comparison(f"{settled['bundle']} as {settled['heads']}", list(reports), rows, notes)
