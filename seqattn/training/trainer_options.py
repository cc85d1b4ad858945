"""Settings of Lightning's `Trainer`."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Gt, Le, MinLen

from seqattn.checking import Count, CountOrNone, NotNegative
from seqattn.data.options import BatchLimits
from seqattn.errors import UserError
from seqattn.ops.cpu.onednn import bf16_is_emulated
from seqattn.ops.gpu import multiplies_bf16
from seqattn.roles import Role
from seqattn.training.ranks import world_size

Bound = Annotated[int, Ge(-1), Le(10**9)]
"""Upper bound; -1 for none."""
Interval = Annotated[int, Ge(1), Le(10**9)] | Annotated[float, Gt(0), Le(1)]
Threads = Annotated[int, Ge(1), Le(4096)]
Devices = (
    Annotated[int, Ge(-1), Le(4096)]
    | Literal["auto"]
    | Annotated[list[Annotated[int, Ge(0), Le(4096)]], MinLen(1)]
)
Accelerator = Literal["auto", "cpu", "gpu", "cuda", "mps", "tpu", "hpu"]


@dataclass(frozen=True)
class TrainerOptions:
    """Settings of Lightning's `Trainer`.

    Args:
        accelerator: auto, cpu, gpu or another of Lightning's.
        devices: number or list; auto or -1 for all of an accelerator.
        threads: per process on a CPU; None for all cores, divided among the ranks of a machine, or
            for the number that a resumed run began with.
        num_nodes: number of machines.
        strategy: parallelism over devices: fsdp2, or one of Lightning's names, such as ddp.
        max_steps: optimizer steps.
        max_epochs: passes over the training split; None for 20, or as many as max_steps takes.
        precision: 32, bf16-mixed, bf16-shadow (one device only: bf16-mixed that converts weights
            once a step), or 16-mixed (GPU only); None for bf16-mixed on a GPU with bfloat16
            support, else 32.
        accumulate_grad_batches: batches of an optimizer step, on each device.
        gradient_clip_val: largest norm of the gradient; None or 0 for none.
        val_check_interval: interval between validations, a share of an epoch (float) or a number of
            optimizer steps (integer).
        log_every_n_steps: steps between logs.
        fast_dev_run: run one step and one batch of other splits, as a smoke test.
        deterministic: True to raise an error on nondeterministic operations; "warn" for a warning.
        profiler: one of Lightning's profilers; None for none.
        restarts: how often all ranks started here are restarted after one has died.
        compile: True to compile a Transformer's layers by `torch.compile`, for GPUs.
        cuda_graphs: number of sizes of batches whose forward and backward passes are captured as
            CUDA graphs, the first that come back; see `loader.round_to`. One GPU only; 0 for none.
        tf32: True to multiply float32 in TF32 on a GPU, with 10 bits of fraction.
        cudnn_attention: True to allow cuDNN's attention on a GPU, which is fast for repeated shapes
            and takes some 60 ms to plan each new one.
        lightning: further arguments of `lightning.Trainer`.

    Raises:
        UserError: for a value out of its range, or a run that would never end.
    """

    accelerator: Annotated[Accelerator, Role.NOTE] = "auto"
    devices: Devices = 1
    threads: Annotated[Threads | None, Role.NOTE] = None
    num_nodes: Annotated[int, Ge(1), Le(4096)] = 1
    strategy: str = "auto"
    max_steps: Annotated[Bound, Role.END] = -1
    max_epochs: Annotated[Bound | None, Role.END] = None
    precision: Annotated[Literal[32, "bf16-mixed", "bf16-shadow", "16-mixed"] | None, Role.STEP] = (
        None
    )
    accumulate_grad_batches: Annotated[Count, Role.STEP] = 1
    gradient_clip_val: Annotated[NotNegative | None, Role.STEP] = 1.0
    val_check_interval: Interval = 1.0
    log_every_n_steps: Annotated[Count, Role.NOTE] = 20
    fast_dev_run: Annotated[bool | CountOrNone, Role.STEP] = False
    deterministic: bool | Literal["warn"] = False
    profiler: Annotated[Literal["simple", "advanced", "pytorch"] | None, Role.NOTE] = None
    restarts: Annotated[CountOrNone, Role.NOTE] = 3
    compile: bool = False
    cuda_graphs: CountOrNone = 0
    tf32: bool = True
    cudnn_attention: bool = False
    lightning: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.precision is None:  # resolved here, so that the run's settings record it
            quick = not self.on_cpu and multiplies_bf16()
            object.__setattr__(self, "precision", "bf16-mixed" if quick else 32)
        if self.devices == 0:
            raise UserError("trainer.devices must be at least 1, or auto for all, got 0")
        for name in ("max_steps", "max_epochs"):
            if getattr(self, name) == 0:
                raise UserError(f"trainer.{name} must be at least 1, or -1 for no limit, got 0")
        if self.max_steps == -1 and self.max_epochs == -1:
            raise UserError("trainer.max_steps and trainer.max_epochs are both -1; set one of them")
        for name in ("accumulate_grad_batches", "gradient_clip_val", "precision"):
            if name in self.lightning:
                raise UserError(f"trainer.lightning.{name} has no effect; set trainer.{name}")
        if "plugins" in self.lightning:
            raise UserError("trainer.lightning.plugins is not supported, as a run has its own")
        if self.lightning.get("gradient_clip_algorithm", "norm") not in ("norm", None):
            raise UserError(
                "trainer.lightning.gradient_clip_algorithm must be norm, got "
                f"{self.lightning['gradient_clip_algorithm']}"
            )
        if self.sharded:
            self._check_shards()
        elif self.strategy.startswith(("fsdp", "deepspeed", "model_parallel")):
            raise UserError(f"trainer.strategy={self.strategy} is not supported; use trainer=fsdp2")

    def _check_shards(self) -> None:
        from torch.distributed.fsdp import FSDPModule

        if self.precision not in (32, "bf16-mixed"):
            raise UserError(
                f"trainer=fsdp2 supports trainer.precision=32 or bf16-mixed, got {self.precision}"
            )
        if self.compile:
            raise UserError("trainer=fsdp2 does not support trainer.compile=true; use trainer=ddp")
        if not hasattr(FSDPModule, "reset_iter_state"):
            raise UserError(f"trainer=fsdp2 needs PyTorch 2.13 or later, found {torch.__version__}")

    @property
    def sharded(self) -> bool:
        """True if weights are sharded over the ranks."""
        return self.strategy == "fsdp2"

    @property
    def on_cpu(self) -> bool:
        """True if training runs on the CPU."""
        auto = self.accelerator == "auto" and not torch.cuda.is_available()
        return self.accelerator == "cpu" or auto

    @property
    def ranks(self) -> int:
        """Number of processes on this machine."""
        if isinstance(self.devices, list):
            return len(self.devices)
        if self.devices in ("auto", -1):
            return 1 if self.on_cpu else max(1, torch.cuda.device_count())
        return int(self.devices)

    def as_started(self) -> dict[str, Any]:
        """Return `devices` and `num_nodes` as started by torchrun or SLURM.

        Empty if this is the only process.

        Raises:
            UserError: if the options conflict with them.
        """
        if world_size() == 1:
            return {}
        names = ("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE")
        local = next((int(os.environ[name]) for name in names if os.environ.get(name)), None)
        nodes = int(os.environ.get("SLURM_NNODES") or self.num_nodes)
        here = local or world_size() // nodes
        nodes = world_size() // here
        matches = self.devices == "auto" or self.ranks in (1, here)
        if not matches or self.num_nodes not in (1, nodes) or here * nodes != world_size():
            raise UserError(
                f"{world_size()} ranks were started, {here} per machine, so trainer.devices must "
                f"be {here} and trainer.num_nodes {nodes}; remove both"
            )
        devices = self.devices if self.ranks == here else here
        return {"devices": devices, "num_nodes": nodes}

    def rank_batches(self, step_batches: int | None) -> int:
        """Return the number of batches of an optimizer step on each rank.

        Args:
            step_batches: that on all ranks; None for `accumulate_grad_batches` on each.

        Raises:
            UserError: if ranks cannot share them evenly.
        """
        ranks = max(world_size(), self.ranks * self.num_nodes)
        if step_batches is None:
            return self.accumulate_grad_batches
        if step_batches % ranks:
            raise UserError(
                f"trainer.devices must divide the {step_batches} batches per step "
                f"(loader.step_batches), got {ranks}"
            )
        return step_batches // ranks

    def check_device(self) -> None:
        """Check that this machine supports the settings.

        Raises:
            UserError: if it does not; the message says what it supports.
        """
        if self.precision == "16-mixed" and self.on_cpu:
            raise UserError(
                "trainer.precision=16-mixed needs a GPU; use 32 (fastest) or bf16-mixed on a CPU"
            )
        if self.precision == "bf16-shadow" and max(world_size(), self.ranks * self.num_nodes) > 1:
            raise UserError(
                "trainer.precision=bf16-shadow trains on one device; use bf16-mixed on several"
            )
        if self.cuda_graphs and max(world_size(), self.ranks * self.num_nodes) > 1:
            raise UserError(
                "trainer.cuda_graphs is for one device; set trainer.cuda_graphs=0 on several"
            )
        if self.accelerator == "gpu" and not torch.cuda.is_available():
            raise UserError("trainer=gpu found no GPU; use trainer=cpu")
        if self.accelerator not in ("auto", "gpu", "cpu"):
            from lightning.pytorch.accelerators import AcceleratorRegistry

            kind = dict(AcceleratorRegistry).get(self.accelerator)
            if kind is None or not kind["accelerator"].is_available():
                setting = f"trainer.accelerator={self.accelerator}"
                raise UserError(f"{setting} is not available on this machine; use trainer=cpu")
        if self.cuda_graphs and self.on_cpu:
            raise UserError("trainer.cuda_graphs needs a GPU; set trainer.cuda_graphs=0 on a CPU")
        if self.compile and self.on_cpu:
            raise UserError("trainer.compile=true needs a GPU; it slows down training on a CPU")

    def _advice(self) -> list[str]:
        """Return lines on settings that would be faster."""
        if self.sharded and self.ranks * self.num_nodes == 1:
            return [
                "trainer=fsdp2 shards weights over devices but has only one; set trainer.devices"
            ]
        is_bf16 = str(self.precision).startswith("bf16")
        if not is_bf16 or not self.on_cpu or not bf16_is_emulated():
            return []
        return [
            "this CPU has no bfloat16 instructions and emulates them; trainer.precision=32 is much "
            "faster here"
        ]

    def notices(self, loader: BatchLimits, parameters: int) -> list[str]:
        """Return lines on the size, devices, precision and batches of a run, and advice."""
        device, own = self.accelerator.upper(), ""
        if self.on_cpu:
            device, own = "CPU", f" trainer.threads={torch.get_num_threads()}"
        elif torch.cuda.is_available():
            device, own = torch.cuda.get_device_name(), f" trainer.tf32={str(self.tf32).lower()}"
        line = (
            f"training {parameters:,} parameters on {self.ranks * self.num_nodes} x {device}: "
            f"trainer.precision={self.precision}{own} "
            f"loader.max_tokens={loader.max_tokens} loader.num_workers={loader.num_workers}"
        )
        lines = [line, *self._advice()]
        if self.cuda_graphs and getattr(loader, "round_to", 0) == 1:
            lines.append(
                "few sizes of batches come back for trainer.cuda_graphs; set loader.round_to=4"
            )
        return lines

    def alone(self, **lightning: Any) -> "TrainerOptions":
        """Return a copy for one device, without checkpoints. Args: lightning: more arguments."""
        first = self.devices[:1] if isinstance(self.devices, list) else 1
        return replace(
            self, devices=first, num_nodes=1, strategy="auto", fast_dev_run=False, profiler=None,
            lightning={"enable_checkpointing": False, **lightning},
        )  # fmt: skip
