"""Synchronizations, compilation and speed in the GPU check."""

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.gpu_machine import Machine
from benchmarks.gpu_models import DECODERS, MODELS, Make, batch, heads, loss_of, transformer
from benchmarks.gpu_training import fitted
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.data.batch import Batch
from seqattn.data.options import LoaderOptions
from seqattn.generation import GreedySearch, LengthLimit, Sampling
from seqattn.generation.base import Search
from seqattn.generation.beam import BeamSearch
from seqattn.generation.generator import Generator
from seqattn.generation.processors import NoRepeatNgram
from seqattn.models.stack import compile_layers
from seqattn.positions import RotaryPosition
from seqattn.training import captured_passes as passes

_RATE = 989e12
"""Peak of dense bfloat16 multiplications and additions per second of an H100 or H200."""


def waits(machine: Machine) -> None:
    """Check for at most one synchronization in four steps (Lightning's, at the last batch)."""
    rows, longest, size, dim = (4, 8, 64, 64) if machine.tiny else (64, 40, 32_000, 512)
    pairs = batch(rows, longest, size)

    def one(name: str, options: dict[str, Any]) -> None:
        model = transformer(size, dim, dropout=0.1)
        events = fitted(machine, model, [pairs], 8, watches=True, **options).waits
        text = f"{len(events)} synchronizations in 4 steps {sorted(set(events))[:6]}"
        machine.say(len(events) <= 1, f"waits {name}", text)

    cases: dict[str, dict[str, Any]] = {
        "graphs": {"precision": "bf16-shadow", "cuda_graphs": 1},
        "float32": {"precision": 32},
        "bfloat16": {"precision": "bf16-mixed"},
        "shadow": {"precision": "bf16-shadow"},
        "muon": {"optimizer": "muon"},
        "ema": {"averages": True},
    }
    for name, options in cases.items():
        machine.guarded(f"waits {name}", partial(one, name, options))


def captured_passes(machine: Machine) -> None:
    """Check that captured passes train as plain ones, to the bit if deterministic."""
    rounded = LoaderOptions(round_to=16)  # so that sizes come back
    sizes = [15, 31, 15] * 6
    batches = [batch(4, n, seed=seed).rounded(rounded) for seed, n in enumerate(sizes)]

    def trained(make: Make, precision: Any, sizes: int, compiles: bool) -> tuple[Tensor, int]:
        torch.compiler.reset()
        model = make()
        if compiles:
            compile_layers(model, **({"backend": "eager"} if machine.tiny else {}))
        options: dict[str, Any] = {"cuda_graphs": sizes, "deterministic": "warn"}
        count = fitted(machine, model, batches, len(batches), precision, **options).sizes
        return torch.cat([weight.detach().flatten().cpu() for weight in model.parameters()]), count

    def one(name: str, make: Make, precision: Any, compiles: bool) -> None:
        with patch.object(passes, "_PLAIN_BATCHES", 10**6):
            plain, _ = trained(make, precision, 1, compiles)
        weights, count = trained(make, precision, 4, compiles)
        gap = float((plain - weights).abs().max())
        text = f"{count} sizes, equal: {torch.equal(plain, weights)}; gap {gap:.1e}"
        machine.say(gap < 1e-2, name, text)

    for model, make in MODELS.items():
        name = f"captured {model}"
        machine.guarded(name, partial(one, name, make, 32, False))
    for precision, compiles in itertools.product(("bf16-mixed", "bf16-shadow"), (False, True)):
        name = f"captured, {precision}{', compiled' * compiles}"
        make = partial(transformer, dropout=0.1)
        machine.guarded(name, partial(one, name, make, precision, compiles))


def compiled(machine: Machine) -> None:
    """Check that compiled layers give the same loss, from few graphs and without breaks."""
    shapes = [(3, 9), (4, 14)]
    if not machine.tiny:
        shapes = [*((16, n) for n in (20, 33, 47, 64, 90, 128)), (40, 37), (9, 111)]
    graphs: list[Any] = []

    def counting(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def gap(options: dict[str, Any], **how: Any) -> float:
        torch.compiler.reset()
        plain, quick = (transformer(**options).train().to(machine.device) for _ in range(2))
        compile_layers(quick, fullgraph=True, **how)
        off = 0.0
        for shape in shapes:
            losses = [loss_of(model, batch(*shape).to(machine.device)) for model in (plain, quick)]
            losses[1].backward()
            off = max(off, abs(float((losses[0] - losses[1]).detach())))
        return off

    def one(name: str, options: dict[str, Any]) -> None:
        graphs.clear()
        gaps = [gap(options, backend=counting), *([] if machine.tiny else [gap(options)])]
        text = f"{len(graphs)} graphs, losses {max(gaps):.0e} apart"
        machine.say(max(gaps) < 1e-3 and len(graphs) <= 8, f"compile {name}", text)

    gqa = heads(SoftmaxKernel, num_kv_heads=2)
    rotary = {"encoder": gqa, "decoder": gqa, "position": RotaryPosition}
    for name, options in {"mha": {}, "gqa, rope": rotary}.items():
        machine.guarded(f"compile {name}", partial(one, name, options))


def new_shapes(machine: Machine) -> None:
    """Check that batches of new shapes take no longer than known ones; also time cuDNN."""
    size, dim, count = (64, 64, 3) if machine.tiny else (32_000, 512, 30)
    model = transformer(size, dim, dropout=0.1).train().to(machine.device)
    seconds: dict[str, float] = {}
    cases = {"similar": (False, 8), "new": (False, 9), "known": (False, 9), "cuDNN": (True, 9)}
    for name, (cudnn, longest) in cases.items():  # similar ones make the GPU load its kernels
        torch.backends.cuda.enable_cudnn_sdp(cudnn)
        batches = (batch(5 + n, longest + 2 * n, size, seed=n) for n in range(count))
        parts = iter([pairs.to(machine.device) for pairs in batches])

        def step(parts: Any = parts) -> None:
            with torch.autocast(machine.device.type, dtype=torch.bfloat16):
                loss = loss_of(model, next(parts))
            loss.backward()

        seconds[name] = machine.seconds(step, count - 1, 1)
    torch.backends.cuda.enable_cudnn_sdp(False)
    text = ", ".join(f"{name} {1e3 * took:.1f} ms/step" for name, took in seconds.items())
    machine.say(machine.tiny or seconds["new"] < 1.5 * seconds["known"], "shapes", text)


class _Plain(nn.Module):
    """`torch.nn.Transformer` with one embedding table, for comparison."""

    def __init__(self, size: int, dim: int, layers: int) -> None:
        super().__init__()
        self.table = nn.Embedding(size, dim)
        self.body = nn.Transformer(
            dim, 8, layers, layers, 4 * dim, 0.1, batch_first=True, norm_first=True
        )

    def forward(self, pairs: Batch) -> Tensor:
        length, device = pairs.target_input.shape[1], pairs.target_input.device
        causal = nn.Transformer.generate_square_subsequent_mask(length, device)
        sides = self.table(pairs.source), self.table(pairs.target_input)
        logits = self.body(*sides, tgt_mask=causal, tgt_is_causal=True) @ self.table.weight.T
        gold = pairs.target_output.flatten()
        return F.cross_entropy(logits.flatten(0, 1), gold, ignore_index=0, label_smoothing=0.1)


def training_speed(machine: Machine) -> None:
    """Time a base model's step under Lightning and in a plain loop, and PyTorch's Transformer."""
    layers, dim, size = (2, 64, 64) if machine.tiny else (6, 512, 32_000)
    rows, longest, steps = (4, 9, 4) if machine.tiny else (500, 50, 40)
    pairs = batch(rows, longest, size, even=True)
    on_device = pairs.to(machine.device)

    def said(name: str, seconds: float, pairs: Batch = pairs) -> None:
        work = 6 * pairs.source_tokens * 12 * layers * dim**2
        work += 6 * pairs.target_tokens * (16 * layers * dim**2 + size * dim)
        work += 12 * layers * dim * longest * pairs.target_tokens * 5 // 2
        rate, share = pairs.target_tokens / seconds, work / seconds / _RATE
        text = f"{1e3 * seconds:.1f} ms/step, {rate:,.0f} target tokens/s, {share:.1%} of bf16"
        machine.say(True, f"train {name}", f"{text}, {machine.peak_memory()}")

    def by_lightning(
        name: str, pairs: Batch, precision: Any, compiles: bool = False, **options: Any
    ) -> None:
        model = transformer(size, dim, layers, dropout=0.1)
        if compiles:
            compile_layers(model, **({"backend": "eager"} if machine.tiny else {}))
        said(name, fitted(machine, model, [pairs], steps, precision, **options).seconds, pairs)

    def by_loop(name: str, model: nn.Module, loss: Callable[..., Tensor]) -> None:
        model = model.train().to(machine.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

        def step() -> None:
            with torch.autocast(machine.device.type, dtype=torch.bfloat16):
                total = loss(model, on_device)
            total.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

        said(f"bf16 {name}", machine.seconds(step, steps // 2, steps // 4))

    for tf32 in (False, True):
        name = f"Lightning 32{', TF32' * tf32}"
        machine.guarded(name, partial(by_lightning, name, pairs, 32, tf32=tf32))
    few = batch(max(1, rows // 6), longest, size, even=True)
    ways = itertools.product((pairs, few), ("bf16-mixed", "bf16-shadow"), (False, True), (0, 1))
    for some, precision, compiles, sizes in ways:
        name = f"Lightning {precision}, {some.target_tokens:,} tokens"
        name += f"{', compiled' * compiles}{', graphs' * sizes}"
        call = partial(by_lightning, name, some, precision, compiles, cuda_graphs=sizes)
        machine.guarded(name, call)
    ours = transformer(size, dim, layers, dropout=0.1)
    machine.guarded("train plain loop", partial(by_loop, "plain loop", ours, loss_of))
    quick = transformer(size, dim, layers, dropout=0.1)
    compile_layers(quick, **({"backend": "eager"} if machine.tiny else {}))
    machine.guarded("train compiled", partial(by_loop, "compiled layers", quick, loss_of))
    plain = _Plain(size, dim, layers)
    call = partial(by_loop, "torch.nn.Transformer", plain, lambda model, tensors: model(tensors))
    machine.guarded("train torch.nn.Transformer", call)


def decoding_speed(machine: Machine) -> None:
    """Time greedy search and a beam of five, for a base model, on equal and on real lengths."""
    layers, dim, size = (2, 64, 64) if machine.tiny else (6, 512, 32_000)
    count, length = (8, 6) if machine.tiny else (512, 30)
    model = transformer(size, dim, layers).eval().to(machine.device)
    searches: list[Search] = [
        GreedySearch(batch_size=256, workers=1),
        BeamSearch(beam_size=5, batch_size=128, workers=1),
    ]

    def one(search: Search, even: bool, kind: torch.dtype | None, graph: Any) -> None:
        sources = batch(count, length, size, seed=1, even=even).source.tolist()
        sources = [[token for token in row if token] for row in sources]
        limit = LengthLimit(1.0, 0, minimum=length if even else 0)
        autocast = torch.autocast(
            machine.device.type, dtype=torch.bfloat16, enabled=kind is not None
        )
        with autocast:
            generator = Generator(model, replace(search, limit=limit, graph=graph))
            seconds = machine.seconds(lambda: generator.generate(sources), 1, 1)
        step = 1e3 * seconds / length / -(-count // (search.batch_size or count))
        text = f"{count / seconds:,.0f} sentences/s, {step:.2f} ms/step of {search.batch_size}"
        name = f"{type(search).__name__} {kind or 'float32'}, {'even' if even else 'real'} lengths"
        machine.say(True, f"search {name}, graph={graph}", text)

    for kind in (None, torch.bfloat16):
        for search in searches:
            for even, graph in ((True, False), (True, True), (True, "compiled"), (False, True)):
                machine.guarded("search", partial(one, search, even, kind, graph))


def graphs(machine: Machine) -> None:
    """Check that replayed steps give the outputs of plain ones, also to two threads at once."""
    ids = batch(*(8, 8) if machine.tiny else (40, 24), seed=3).source.tolist()
    sources = [[token for token in row if token] for row in ids]
    limit = LengthLimit(3.0, 4)  # beyond the first caches

    def outputs(model: Any, search: Search, kind: torch.dtype | None, graph: Any) -> list[Any]:
        autocast = torch.autocast(
            machine.device.type, dtype=torch.bfloat16, enabled=kind is not None
        )
        with autocast:
            found = Generator(model, replace(search, graph=graph)).generate(sources)
        return [one[0].ids for one in found]

    def one(name: str, kind: torch.dtype | None, graph: Any) -> None:
        model = transformer(decoder=DECODERS[name], position=RotaryPosition).eval()
        model, good, text = model.to(machine.device), True, []
        searches = [
            GreedySearch(limit, workers=1), Sampling(limit, workers=1),
            GreedySearch(limit, workers=1, processors=[NoRepeatNgram(2)]),
            BeamSearch(limit, beam_size=3, workers=1),
        ]  # fmt: skip
        for search in searches:
            plain = outputs(model, search, kind, False)
            with ThreadPoolExecutor(2) as pool:
                calls = [pool.submit(outputs, model, search, kind, graph) for _ in range(3)]
            for call in calls:
                same = sum(x == y for x, y in zip(plain, call.result(), strict=True))
                good &= same >= (0.9 if kind is None else 0.5) * len(plain)
                text.append(str(same))
        machine.say(good, f"graphs {name} {kind or 'float32'}, graph={graph}", ", ".join(text))

    for name in ("mha", "linear") if machine.tiny else DECODERS:
        machine.guarded(f"graphs {name}", partial(one, name, None, True))
    for graph in (True, "compiled"):
        machine.guarded("graphs", partial(one, "mha", torch.bfloat16, graph))
