"""The `attention` suite of `benchmark`: every mechanism of conf/attention over several lengths."""

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from seqattn.cli.build import make
from seqattn.cli.config import CONF, groups
from seqattn.cli.tables import console, shown
from seqattn.errors import UserError

if TYPE_CHECKING:
    from seqattn.benchmarks.attention import Cost
    from seqattn.benchmarks.contestants import Contestant

Config = dict[str, Any]


def attention_suite(config: Config) -> list[Config]:
    """Measures, prints the table, draws the plots; gives the rows."""
    import torch

    from seqattn.benchmarks.attention import AttentionPlan, measure_attention
    from seqattn.training.memory import keep_freed_memory

    keep_freed_memory()  # as in training; without it page faults grow with n, and so do times
    types = {"32": torch.float32, "bf16": torch.bfloat16}
    asked = config["attention"]
    if asked["decode"] is not None:
        return _steps(asked)
    results: list[Config] = []
    for precision in map(str, asked["precisions"]):
        if precision not in types:
            raise UserError(f"attention.precisions must be of 32, bf16, got {precision}")
        for causal in asked["causal"]:
            plan = AttentionPlan(
                contestants(asked),
                tuple(asked["lengths"]),
                causal=causal,
                dim=asked["dim"],
                num_heads=asked["num_heads"],
                batch_size=asked["batch_size"],
                projections=asked["projections"],
                backward=asked["backward"],
                dtype=types[precision],
                device=asked["device"],
                rounds=asked["rounds"],
                memory_limit=asked["memory_limit"] * 1e9,
            )
            costs = measure_attention(plan)
            kind = str(plan.dtype).removeprefix("torch.")
            title = f"{'causal' if causal else 'bidirectional'}, {kind}"
            _print(title, asked, costs)
            results += [{"causal": causal, "precision": precision, **_row(cost)} for cost in costs]
            if asked["plots"] is not None:
                _draw(costs, title, Path(asked["plots"]).expanduser())
    return results


def _steps(asked: Config) -> list[Config]:
    from seqattn.benchmarks.steps import measure_steps

    costs = measure_steps(contestants(asked), asked["decode"], asked["dim"], asked["device"])
    table = Table(title=f"Cached decoding of {asked['decode']:,} tokens, projections included")
    table.add_column("attention")
    for name in ("early, us a token", "late, us a token", "late / early", "cache, bytes"):
        table.add_column(name, justify="right")
    for cost in costs:
        table.add_row(
            cost.name,
            f"{cost.early * 1e6:,.0f}",
            f"{cost.late * 1e6:,.0f}",
            f"{cost.late / cost.early:.2f}",
            f"{cost.cache_bytes:,}",
        )
    console().print(table)
    return [cost._asdict() for cost in costs]


def contestants(asked: Config) -> "tuple[Contestant, ...]":
    """The attentions asked for with the positions asked for, all of conf/attention for null."""
    from seqattn.attention.base import Attention
    from seqattn.benchmarks.contestants import Contestant
    from seqattn.positions.base import Stack

    everything = groups()["attention"]
    for name in asked["attentions"] or ():
        if name not in everything:
            raise UserError(
                f"there is no attention={name}; the choices are: {', '.join(everything)}"
            )
    found = []
    for name in asked["attentions"] or everything:
        node = _choice("attention", name)
        if not node["_target_"].endswith(("MultiHeadAttention", "MixtureOfAttention")):
            continue  # of recurrent models
        for scheme in asked["positions"]:
            position = _choice("position", scheme)

            def build(length: int, node: Config = node, position: Config = position) -> Any:
                dim = asked["dim"]
                attention: Attention = make(_sized(node, asked, length))(
                    query_dim=dim, memory_dim=dim
                )
                scheme = make(position)(stack=Stack(dim, attention.num_heads))
                return attention, scheme.at_layer(0)

            label = name if scheme == "none" else f"{name} + {scheme}"
            found.append(Contestant(label, build))
    return tuple(found)


def _choice(group: str, name: str) -> Config:
    from omegaconf import OmegaConf

    file = CONF / group / f"{name}.yaml"
    if not file.is_file():
        choices = ", ".join(groups()[group])
        raise UserError(f"there is no {group}={name}; the choices are: {choices}")
    node = OmegaConf.to_container(OmegaConf.load(file))
    assert isinstance(node, dict)
    return {str(key): value for key, value in node.items()}


def _sized(node: Config, asked: Config, length: int) -> Config:
    """A choice with as many heads as asked for, and the sizes of its kernel for a length."""
    heads = asked["num_heads"]
    groups_of = {"num_heads": heads}
    if isinstance(node.get("num_kv_heads"), str):  # ${.num_heads}
        groups_of["num_kv_heads"] = heads
    kernel = dict(node.get("kernel") or {})
    if "stride" in kernel:
        kernel["stride"] = max(1, math.isqrt(length))
    if "max_length" in kernel:
        kernel["max_length"] = max(kernel["max_length"], length)
    own = {key: value for key, value in (asked["kernel"] or {}).items() if key in kernel}
    return {**node, **groups_of, "kernel": {**kernel, **own}} if kernel else {**node, **groups_of}


def _print(title: str, asked: Config, costs: "list[Cost]") -> None:
    from seqattn.benchmarks.attention import exponent

    passes = "forward and backward" if asked["backward"] else "forward"
    scope = "with projections" if asked["projections"] else "kernels alone"
    table = Table(
        title=f"Attention, {title}: {passes}, {scope}, "
        f"{asked['num_heads']} heads of {asked['dim'] // asked['num_heads']}, "
        f"batch {asked['batch_size']}"
    )
    table.add_column("attention")
    names = ("n", "ms", "x sdpa", "time grows as n^", "peak MB", "cache B/token", "parameters")
    for name in (*names, "GFLOP"):
        table.add_column(name, justify="right")
    for name in dict.fromkeys(cost.name for cost in costs):
        power = exponent(costs, name)
        for cost in (cost for cost in costs if cost.name == name):
            cache = cost.cache_bytes
            table.add_row(
                name,
                f"{cost.length:,}",
                f"{cost.seconds.median * 1e3:,.1f}",
                shown(cost.speed),
                "" if power is None or cost.length != asked["lengths"][-1] else f"{power:.2f}",
                f"{cost.bytes / 1e6:,.1f}",
                "" if cache is None else f"{cache / cost.length:,.1f}",
                f"{cost.parameters:,}",
                f"{cost.flops / 1e9:,.1f}",
            )
    console().print(table)


def _draw(costs: "list[Cost]", title: str, directory: Path) -> None:
    from seqattn.analysis.curves import curves
    from seqattn.analysis.plots import save

    for view, label in (("time", "time, ms"), ("memory", "peak memory beside the inputs, MB")):
        series: dict[str, list[tuple[int, float]]] = {}
        for cost in costs:
            value = cost.seconds.median * 1e3 if view == "time" else cost.bytes / 1e6
            series.setdefault(cost.name, []).append((cost.length, value))
        stem = title.replace(", ", "_")
        path = save(curves(series, title, label), directory / f"{stem}_{view}.png")
        print(f"drawn to {path}", file=sys.stderr)


def _row(cost: "Cost") -> Config:
    return {
        **cost._asdict(),
        "seconds": cost.seconds._asdict(),
        "speed": cost.speed._asdict(),
    }
