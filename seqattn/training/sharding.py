"""Training whose weights, gradients and moments are shared out over the ranks."""

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
from seqattn.errors import UserError
from seqattn.layers.transformer_layer import DecoderLayer, EncoderLayer


def check_shards(precision: int | str, compiled: bool) -> None:
    """Refuses what cannot be in shards.

    Raises:
        UserError: with what can be.
    """
    if precision == "16-mixed":
        raise UserError("trainer=fsdp2 takes trainer.precision=32 or bf16-mixed, got 16-mixed")
    if compiled:
        raise UserError("trainer=fsdp2 takes trainer.compile=false; trainer=ddp compiles")
    if not hasattr(FSDPModule, "reset_iter_state"):
        raise UserError(f"trainer=fsdp2 needs PyTorch 2.13, found {torch.__version__}")


def shard(model: nn.Module, mesh: DeviceMesh) -> None:
    """Leaves each rank its part of every weight, by PyTorch's `fully_shard`.

    A Transformer's layers are gathered one at a time, each when it is called; what is left, and the
    whole of a model without such layers, is gathered for all of a training step, which calls the
    model's `forward` or `loss` and nothing else of it.

    Args:
        model: whole, and the same on every rank.
    """
    for layer in list(model.modules()):
        if isinstance(layer, DecoderLayer):  # its keys and values are made before it is called
            # and both in one gathering
            fully_shard(layer.cross_attention, mesh=mesh, reshard_after_forward=False)
            register_fsdp_forward_method(layer.cross_attention, "project")
        if isinstance(layer, EncoderLayer | DecoderLayer):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if hasattr(model, "loss"):
        register_fsdp_forward_method(model, "loss")


class FullySharded(ModelParallelStrategy):
    """Fully sharded data parallelism (FSDP; Zhao et al. 2023, arXiv 2304.11277) over all ranks.

    Every rank trains on batches of its own, and gradients are averaged, as in DDP. While it
    validates each rank holds the whole model, so that any rank may call any of its methods, as
    often as it likes. Checkpoints are whole, and those of any other strategy: they are read by any
    number of ranks, sharded or not.

    Args:
        ranks: of all machines.
    """

    def __init__(self, ranks: int) -> None:
        super().__init__(ranks, tensor_parallel_size=1, save_distributed_checkpoint=False)

    @property
    def lightning_restore_optimizer(self) -> bool:
        return True  # by `load_optimizer_state_dict`, as other strategies do

    def setup(self, trainer: Trainer) -> None:
        if isinstance(self._task.model, FSDPModule):  # a training that begins once more
            self.on_validation_end()
        else:
            shard(self._task.model, self.device_mesh["data_parallel"])
        Strategy.setup(self, trainer)  # Lightning's own asks for a task that shards itself

    def teardown(self) -> None:
        super().teardown()
        self.checkpoint_io.teardown()  # which Lightning's leaves out

    @property
    def _task(self) -> Any:
        return self.lightning_module

    def _parts(self) -> Iterator[FSDPModule]:
        """Each part of the model that is gathered at once, the outermost first."""
        return (part for part in self._task.modules() if isinstance(part, FSDPModule))

    def on_validation_start(self) -> None:
        for part in self._parts():
            part.set_reshard_after_forward(False, recurse=False)
            part.unshard()

    def on_validation_end(self) -> None:
        model = self._task.model
        for part in self._parts():
            kept = part is model or isinstance(part, Attention)  # as `shard` has it
            part.set_reshard_after_forward(not kept, recurse=False)
        # gives up what was gathered, and forgets the order of calls, by which the next backward
        # pass would gather: ranks have made different ones
        model.reset_iter_state()

    def lightning_module_state_dict(self) -> dict[str, Any]:
        return self._whole(self._task.state_dict(keep_vars=True))

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        own = optimizer.optimizer if isinstance(optimizer, LightningOptimizer) else optimizer
        return self._whole(own.state_dict())

    def _whole(self, state: dict[str, Any]) -> dict[str, Any]:
        """Gathers a state's shards on the CPU of the first rank, and nothing on the others.

        All ranks must call it. A tensor that comes twice, such as a tied table, is gathered once.
        """
        found: dict[int, Tensor] = {}

        def gathered(part: DTensor) -> Tensor:
            if id(part) not in found:
                with torch.no_grad():
                    whole = part.full_tensor()
                found[id(part)] = whole.cpu() if self.is_global_zero else whole.new_empty(0)
            return found[id(part)]

        return apply_to_collection(state, DTensor, gathered)

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> Any:
        # by the `CheckpointIO`, which Lightning's passes over
        return Strategy.load_checkpoint(self, checkpoint_path, weights_only)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        own, given = self._task.state_dict(), checkpoint["state_dict"]
        parts = {name: _part(whole, own.get(name)) for name, whole in given.items()}
        self._task.load_state_dict(parts, strict=strict)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, given in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            numbers = [number for group in given["param_groups"] for number in group["params"]]
            weights = [weight for group in optimizer.param_groups for weight in group["params"]]
            state = {
                number: {name: _part(whole, weight) for name, whole in moments.items()}
                for number, weight in zip(numbers, weights, strict=True)
                if (moments := given["state"].get(number)) is not None
            }
            optimizer.load_state_dict({**given, "state": state})


def _part(whole: Any, like: Any) -> Any:
    """This rank's part of what has the shape of a sharded tensor; anything else as it is."""
    if not isinstance(like, DTensor) or getattr(whole, "shape", None) != like.shape:
        return whole
    mesh = like.device_mesh
    # every rank has read the whole, so nothing is sent; a copy, or the part would keep it all
    return distribute_tensor(whole, mesh, like.placements, src_data_rank=None).clone()
