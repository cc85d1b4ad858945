"""Value zeroing: change in outputs with one token's value zeroed, propagated through the layers."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqattn.analysis.capture import makers
from seqattn.attention.base import Attention
from seqattn.attention.kernels.base import Kernel
from seqattn.extras.explain.explanations.base import Explanation, Method
from seqattn.extras.explain.explanations.decomposition import shares_of
from seqattn.extras.explain.explanations.passes import shared_out, why_no_cross
from seqattn.extras.explain.explanations.predictions import ROWS, decoder_input
from seqattn.models.base import Memory, Seq2SeqModel
from seqattn.models.recurrent import Recurrent
from seqattn.models.stack import LayerStack
from seqattn.models.transformer import Transformer

Run = Callable[[int], Tensor]
"""Function from a number N of copies of a batch to the model's outputs (N*B, Q, D) for them."""


class ValueZeroing(Method):
    """Cosine distance of a layer's outputs with one token's value zeroed for all queries.

    Mohebbi et al. 2023, eq. 5 and 6: rows of distances are normalized to sum to 1, and layers
    are multiplied as in rollout, with nothing added for the residual, as in the authors' code. So
    an encoder's product says little about the token at a position: see docs/explanations.md.
    In a decoder's layer (Mohebbi et al. 2023b, arXiv 2310.09925) the values of its own attention
    and of cross-attention are zeroed in turn, and share one row that sums to 1, as in ALTI+
    (Ferrando et al. 2022, arXiv 2205.11631); the shares of the encoder's outputs are propagated to
    source tokens by the encoder's rows.

    It needs values but no weights. A recurrent decoder counts as one layer whose outputs are the
    features, and an annotation counts as its token, so `prefix` is 0. `rest` is 0, or 1 in a row of
    a recurrent decoder that no value changes. Takes a pass for each token and attention, for `ROWS`
    sentences at a time.
    """

    name: ClassVar[str] = "value_zeroing"
    cites: ClassVar[str] = "Mohebbi et al. 2023, arXiv 2301.12971"

    def why_not(self, model: Seq2SeqModel) -> str | None:
        if not isinstance(model, Transformer):
            return why_no_cross(model)
        for name, part in model.named_modules():
            if name.endswith("self_attention") and not isinstance(part, Attention):
                return f"{name} is not an attention and has no values"
            if isinstance(part, Kernel) and not part.mixes_values:
                return f"{name.removesuffix('.kernel')} does not mix values of different tokens"
        return None

    @torch.no_grad()
    def explain(self, model: Seq2SeqModel, source: Tensor, target: Tensor) -> Explanation:
        if isinstance(model, Recurrent):
            return _of_recurrent(model, source, target)
        assert isinstance(model, Transformer)
        return _of_transformer(model, source, target)


def _of_recurrent(model: Recurrent, source: Tensor, target: Tensor) -> Explanation:
    features = _decoding(model, source, target)
    distances = _distances(model.decoder.cross_attention, source.shape[1], len(source), features)
    return shared_out(target, shares_of(distances))


def _of_transformer(model: Transformer, source: Tensor, target: Tensor) -> Explanation:
    (batch, length), steps = source.shape, target.shape[1]
    outputs = model.encode(source).outputs
    tokens = torch.eye(length, device=source.device, dtype=outputs.dtype).repeat(batch, 1, 1)
    for layer, outlet in _outlets(model.encoder):
        run = _outputs_of(outlet, lambda n: model.encode(source.repeat(n, 1)))
        distances = _distances(layer.get_submodule("self_attention"), length, batch, run)
        (rows,) = _shares(distances)
        tokens = rows @ tokens
    by_source = outputs.new_zeros(batch, steps, length)
    by_prefix = torch.eye(steps, device=source.device, dtype=outputs.dtype).repeat(batch, 1, 1)
    decode = _decoding(model, source, target)
    for layer, outlet in _outlets(model.decoder):
        run = _outputs_of(outlet, decode)
        shares_of_self = _distances(layer.get_submodule("self_attention"), steps, batch, run)
        cross = _distances(layer.get_submodule("cross_attention"), length, batch, run)
        shares_of_self, cross = _shares(shares_of_self, cross)
        by_source, by_prefix = shares_of_self @ by_source + cross, shares_of_self @ by_prefix
    return shared_out(target, by_source @ tokens, by_prefix)


def _decoding(model: Seq2SeqModel, source: Tensor, target: Tensor) -> Run:
    """Decode targets (B, T) to features, encoding the sources (B, S) once."""
    memory, prefix = model.encode(source), decoder_input(target)

    def run(copies: int) -> Tensor:
        rows = torch.arange(len(source), device=source.device).repeat(copies)
        last = None if memory.last is None else memory.last[rows]
        read = Memory(memory.outputs[rows], memory.real[rows], memory.ids[rows], last)
        state = model.start(read, cached=False)
        return model.features(prefix.repeat(copies, 1), state).features

    return run


def _outlets(stack: LayerStack) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Yield each layer and the module with its outputs: itself, or the final norm for the last."""
    layers = list(stack.layers)
    return zip(layers, [*layers[:-1], stack.norm], strict=False)


def _outputs_of(outlet: nn.Module, call: Callable[[int], object]) -> Run:
    """Return the outputs of a module within a call."""

    def run(copies: int) -> Tensor:
        outputs: list[Any] = []
        with outlet.register_forward_hook(lambda part, args, output: outputs.append(output)):
            call(copies)
        output: Tensor = outputs[0][0] if isinstance(outputs[0], tuple) else outputs[0]
        return output

    return run


def _distances(attention: nn.Module, keys: int, batch: int, run: Run) -> Tensor:
    """Return how far outputs (B, Q, D) turn per zeroed value of `attention`: (B, Q, keys)."""
    plain, distances_by_key = F.normalize(run(1), dim=-1), []
    for indices in torch.arange(keys, device=plain.device).split(max(1, ROWS // batch)):
        retained = F.one_hot(indices, keys).logical_not().repeat_interleave(batch, dim=0)
        with _zeroed(attention, retained):
            outputs = F.normalize(run(len(indices)), dim=-1).unflatten(0, (-1, batch))
        # 1 - cos, exact where it is small
        distances_by_key.append((outputs - plain).square().sum(dim=-1) / 2)
    distances = torch.cat(distances_by_key).permute(1, 2, 0)  # (keys, B, Q) -> (B, Q, keys)
    rounding = (8 * torch.finfo(distances.dtype).eps) ** 2
    return distances.masked_fill(distances < rounding, 0.0)


@contextmanager
def _zeroed(attention: nn.Module, retained: Tensor) -> Iterator[None]:
    """Zero the values of `attention` within the block where `retained` (rows, keys) is False."""

    def zero(part: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        query, keys_values, *rest = args
        heads = (1,) * (keys_values.values.dim() - 3)  # (rows, G, keys, Dh), or (rows, keys, M)
        factor = retained.view(len(retained), *heads, -1, 1).to(keys_values.values)
        return query, keys_values._replace(values=keys_values.values * factor), *rest

    with ExitStack() as stack:
        for _, part in makers(attention):
            stack.enter_context(part.register_forward_pre_hook(zero))
        yield


def _shares(own: Tensor, *cross: Tensor) -> list[Tensor]:
    """Normalize rows over all inputs of a layer; a row that no value changes keeps its token."""
    total = torch.cat((own, *cross), dim=2).sum(dim=2, keepdim=True)
    unmoved = total == 0
    own = own.where(~unmoved, torch.eye(own.shape[1]).to(own))
    return [part / total.masked_fill(unmoved, 1.0) for part in (own, *cross)]
