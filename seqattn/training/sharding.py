"""Fully sharded training: weights, gradients and moments are divided among the ranks."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from lightning import Trainer
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import ModelParallelStrategy, Strategy
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from seqattn.attention.base import Attention
from seqattn.layers.transformer_layer import DecoderLayer, EncoderLayer


def shard(model: nn.Module, mesh: DeviceMesh) -> None:
    """Shard every weight over the ranks, by PyTorch's `fully_shard`.

    A Transformer's layers are gathered one at a time, each when it is called; the rest, and all of
    a model without such layers, is gathered for a whole training step, which must call only the
    model's `forward` or `loss`.

    Args:
        model: the complete model, equal on every rank.
    """
    for layer in list(model.modules()):
        if isinstance(layer, DecoderLayer):
            # its keys and values are computed before it is called, in one gathering
            fully_shard(layer.cross_attention, mesh=mesh, reshard_after_forward=False)
            register_fsdp_forward_method(layer.cross_attention, "project")
        if isinstance(layer, EncoderLayer | DecoderLayer):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if hasattr(model, "loss"):
        register_fsdp_forward_method(model, "loss")


class FullySharded(ModelParallelStrategy):
    """Fully sharded data parallelism (FSDP; Zhao et al. 2023, arXiv 2304.11277) over all ranks.

    Every rank trains on its own batches, and gradients are averaged, as in DDP. In validation each
    rank holds the full model, so that any rank may call any of its methods any number of times.
    Checkpoints are complete and equal to those of any other strategy: any number of ranks, sharded
    or not, can read them.

    Args:
        ranks: number of ranks on all machines.
    """

    def __init__(self, ranks: int) -> None:
        super().__init__(ranks, tensor_parallel_size=1, save_distributed_checkpoint=False)

    @property
    def lightning_restore_optimizer(self) -> bool:
        return True  # by `load_optimizer_state_dict`, as in other strategies

    def setup(self, trainer: Trainer) -> None:
        if isinstance(self._task.model, FSDPModule):  # a restarted training
            self.on_validation_end()
        else:
            shard(self._task.model, self.device_mesh["data_parallel"])
        Strategy.setup(self, trainer)  # Lightning's own needs a task that shards itself

    def teardown(self) -> None:
        super().teardown()
        self.checkpoint_io.teardown()  # omitted by Lightning

    @property
    def _task(self) -> Any:
        return self.lightning_module

    def _parts(self) -> Iterator[FSDPModule]:
        """Yield the separately gathered parts of the model, outermost first."""
        return (part for part in self._task.modules() if isinstance(part, FSDPModule))

    def on_validation_start(self) -> None:
        for part in self._parts():
            part.set_reshard_after_forward(False, recurse=False)
            part.unshard()

    def on_validation_end(self) -> None:
        model = self._task.model
        for part in self._parts():
            stays_gathered = part is model or isinstance(part, Attention)  # as in `shard`
            part.set_reshard_after_forward(not stays_gathered, recurse=False)
        # frees gathered weights, and resets the recorded order of calls, which differs between
        # ranks: the next backward pass would gather in that order
        model.reset_iter_state()

    def lightning_module_state_dict(self) -> dict[str, Any]:
        return self._gathered(self._task.state_dict(keep_vars=True))

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        own = optimizer.optimizer if isinstance(optimizer, LightningOptimizer) else optimizer
        return self._gathered(own.state_dict())

    def _gathered(self, state: dict[str, Any]) -> dict[str, Any]:
        """Gather a state's shards on the CPU of the first rank, and nothing on the others.

        All ranks must call it. A tensor that occurs twice, such as a tied table, is gathered once.
        """
        cache: dict[int, Tensor] = {}

        def gathered(part: DTensor) -> Tensor:
            if id(part) not in cache:
                with torch.no_grad():
                    full = part.full_tensor()
                cache[id(part)] = full.cpu() if self.is_global_zero else full.new_empty(0)
            return cache[id(part)]

        return apply_to_collection(state, DTensor, gathered)

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> Any:
        # by the `CheckpointIO`, which Lightning's method ignores
        return Strategy.load_checkpoint(self, checkpoint_path, weights_only)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        own, state = self._task.state_dict(), checkpoint["state_dict"]
        parts = {name: _part(tensor, own.get(name)) for name, tensor in state.items()}
        self._task.load_state_dict(parts, strict=strict)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, saved in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            numbers = [number for group in saved["param_groups"] for number in group["params"]]
            weights = [weight for group in optimizer.param_groups for weight in group["params"]]
            state = {
                number: {name: _part(tensor, weight) for name, tensor in moments.items()}
                for number, weight in zip(numbers, weights, strict=True)
                if (moments := saved["state"].get(number)) is not None
            }
            optimizer.load_state_dict({**saved, "state": state})


def _part(value: Any, like: Any) -> Any:
    """Return this rank's part of a tensor if its shape is that of a sharded one; else the value."""
    if not isinstance(like, DTensor) or getattr(value, "shape", None) != like.shape:
        return value
    mesh = like.device_mesh
    # every rank has read the full tensor, so nothing is sent; the copy lets it be freed
    return distribute_tensor(value, mesh, like.placements, src_data_rank=None).clone()
