"""Choices that define a model: its shape, an attention for each slot, and a position scheme."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

from torch import nn

from seqattn.attention.alignment import Alignment
from seqattn.attention.base import Attention, AttentionFactory
from seqattn.attention.heads import MultiHeadAttention
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.checking import keys_under
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.models.stack import PositionFactory, PositionRefused, Slots
from seqattn.positions.base import Position
from seqattn.settings import nodes
from seqattn.settings.choices import SLOT_NODES, SLOTS
from seqattn.settings.fit import (
    choice_of,
    fitting_attentions,
    fitting_models,
    fitting_positions,
    fitting_slots,
    is_of_kind,
    target_of,
)
from seqattn.settings.meta_device import on_meta_device

Attentions = AttentionFactory | Sequence[AttentionFactory]
"""One attention for all layers of a slot, or several used in turn, layer by layer."""
PARTS = ("model", "attention", "position", *SLOT_NODES)
"""Configuration nodes that define a model."""
HEADS = ("num_heads", "num_kv_heads", "head_dim", "dropout", "bias", "qk_norm")
"""Arguments that cross-attention copies from the self-attention."""


class Vocabularies(NamedTuple):
    """Vocabulary sizes of both sides, and whether they share one vocabulary."""

    source_size: int
    target_size: int
    joint: bool

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Vocabularies":
        """Return the sizes of a tokenizer's vocabularies."""
        return cls(tokenizer.source_size, tokenizer.target_size, tokenizer.joint)


class ModelConfig(Protocol):
    """Shape of a model, and the slots that it has."""

    dim: int
    build: Callable[..., nn.Module]
    output: ClassVar[str]
    """Kind of output, which a task requires."""
    attention_type: ClassVar[type]
    """Base class of its attentions: `Mixer`, `Attention` or `Alignment`."""
    uses_positions: ClassVar[bool]
    one_vocabulary: ClassVar[bool]
    """True if all its inputs use the source vocabulary."""

    @property
    def attentions(self) -> Mapping[str, int]:
        """Number of attentions in each of its slots."""


@dataclass(frozen=True)
class Architecture:
    """Choices that define a model, and their compatibility checks.

    Args:
        attention: default for every slot; cross-attention takes its number of heads, with the
            softmax kernel. A list is cycled over the layers.
        encoder_attention, decoder_attention, cross_attention: override it for one slot.
        names: the user's choice in each group, for messages.
    """

    model: ModelConfig
    attention: Attentions
    position: PositionFactory = Position
    encoder_attention: Attentions | None = None
    decoder_attention: Attentions | None = None
    cross_attention: Attentions | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Mapping[str, nodes.Node]) -> "Architecture":
        """Build the parts from a configuration's nodes.

        Raises:
            UserError: for a node that cannot be built; see `nodes.build`.
        """
        chosen = {name: config[name] for name in PARTS if config.get(name) is not None}
        return cls(**nodes.map_values(nodes.build, chosen, ""), names=config.get("choices") or {})

    def check(self, joint: bool = True) -> nn.Module:
        """Check that the choices fit each other, without allocating memory.

        Args:
            joint: True if both sides share one vocabulary.

        Returns:
            The model on the meta device, with tiny vocabularies.

        Raises:
            UserError: if they do not; the message names choices that fit.
        """
        with on_meta_device():
            return self.build(Vocabularies(8, 8, joint))

    def build(self, vocabulary: Vocabularies) -> nn.Module:
        """Build the model for vocabularies of these sizes.

        Raises:
            UserError: for choices that do not fit each other.
        """
        if self.model.uses_positions or target_of(self.position) is Position:
            return self._build(vocabulary)
        recurrent = f"model={self._name('model')} encodes positions by recurrence"
        try:
            self._build(vocabulary)
        except UserError as error:
            raise UserError(f"{error}; also set position=none, as {recurrent}") from error
        raise UserError(
            f"{recurrent} and does not support position={self._name('position')}; remove it, or "
            "set position=none"
        )

    def _build(self, vocabulary: Vocabularies) -> nn.Module:
        factories = {slot: self._layers(slot) for slot in SLOTS}
        slots = Slots(**factories, position=self.position)
        if self.model.attention_type is Alignment:
            return self.model.build(*vocabulary, slots.cross[0])
        sides = vocabulary[:1] if self.model.one_vocabulary else vocabulary
        try:
            return self.model.build(*sides, slots)
        except PositionRefused as error:
            raise UserError(self._without_position(error)) from error

    def _without_position(self, error: PositionRefused) -> str:
        """Return a message with the positions that this attention accepts."""
        per_layer = isinstance(self.attention, Sequence)
        attention, position = choice_of(error.mixer), type(error.position).__name__
        if "attention" in self.names and not (
            per_layer or self.encoder_attention or self.decoder_attention
        ):
            attention = f"attention={self.names['attention']}"
        if "position" in self.names:
            position = f"position={self.names['position']}"
        fitting = ", ".join(fitting_positions(error.mixer))
        return f"{attention} does not support {position}; choose from {fitting}"

    def _layers(self, slot: str) -> list[AttentionFactory]:
        """Return a factory for each layer of a slot; unused ones are checked, too."""
        name, slots = self._name("model"), self.model.attentions
        override: Attentions | None = getattr(self, f"{slot}_attention")
        key = "attention" if override is None else f"attention@{slot}_attention"
        attentions = self.attention if override is None else override
        attentions = attentions if isinstance(attentions, Sequence) else [attentions]
        if len(slots) == 1 and (override is not None or len(attentions) > 1):
            names = ", ".join(self.accepted_attentions())
            raise UserError(
                f"model={name} has one attention; set attention=NAME, choosing from {names}"
            )
        if override is not None and slot not in slots:
            keys = " and ".join(f"attention@{other}_attention=NAME" for other in slots)
            raise UserError(f"model={name} has no {slot} attention; set attention=NAME, or {keys}")
        if not attentions:
            raise UserError(f"{key} must be one or more choices, got none")
        foreign = [
            attention
            for attention in attentions
            if not is_of_kind(attention, self.model.attention_type)
        ]
        if foreign:
            raise self._cannot_use(key, target_of(foreign[0]) if override is None else None)
        if slot == "cross" and override is None and len(slots) > 1:
            attentions = [cross_default(attention) for attention in attentions]
        chosen = self._name(key) if len(attentions) == 1 else "NAME"
        factories = [partial(self._serving, attention, slot, chosen) for attention in attentions]
        count = slots.get(slot, 0)
        with on_meta_device():
            for spare in factories[count:] if count else ():
                spare(query_dim=self.model.dim, memory_dim=self.model.dim)
        return [factories[n % len(factories)] for n in range(count)]

    def _cannot_use(self, key: str, kind: Any = None) -> UserError:
        """Return an error; of a kind of attention it also names the models that take it."""
        models = [f"model={name}" for name in fitting_models(kind, self.model.output)]
        chosen = f"model={self._name('model')} does not support {key}={self._name(key)}"
        other = f"use {' or '.join(models)}, or " if models else ""
        return UserError(f"{chosen}; {other}choose from {', '.join(self.accepted_attentions())}")

    def accepted_attentions(self) -> dict[str, list[str]]:
        """Return the shipped attentions that the model accepts, with the slots that each fits."""
        return fitting_attentions(self.model.attention_type, self.model.attentions)

    def _serving(
        self, factory: AttentionFactory, slot: str, name: str, query_dim: int, memory_dim: int
    ) -> Any:
        """Build an attention for `slot`, or raise UserError with the slots that it fits."""
        try:
            with keys_under("attention"):  # of a factory without a place
                attention = factory(query_dim=query_dim, memory_dim=memory_dim)
        except UserError as error:  # the encoder may have its own width
            key = "model.dim" if query_dim == self.model.dim else f"model.{slot}_dim"
            raise UserError(str(error).replace("model.dim", key)) from error
        which = f"attention={name}" if name != "NAME" else "this attention"
        kind = self.model.attention_type
        if not isinstance(attention, kind):
            name = type(attention).__name__
            raise UserError(f"{which} must be of type {kind.__name__}, got {name}")
        if fitting_slots(attention, [slot]):
            return attention
        if len(self.model.attentions) == 1:
            raise self._cannot_use("attention")
        keys = " or ".join(
            f"attention@{s}_attention={name}" for s in fitting_slots(attention, SLOTS)
        )
        raise UserError(
            f"{which} cannot be used as {slot} attention; it fits these slots: {keys or 'none'}"
        )

    def _name(self, group: str) -> str:
        return str(self.names.get(group, "NAME"))


def cross_default(attention: AttentionFactory) -> AttentionFactory:
    """Return cross-attention with the heads of a self-attention and the softmax kernel.

    A softmax kernel's backend is that of the self-attention.

    Raises:
        UserError: if the self-attention does not set its number of heads.
    """
    keywords = getattr(attention, "keywords", {})
    if "num_heads" not in keywords:
        raise UserError(
            "this attention has no num_heads for cross-attention to copy; set "
            "attention@cross_attention=NAME"
        )
    heads_given = {
        name: keywords[name] for name in heads_of(target_of(attention)) if name in keywords
    }
    heads = {"num_kv_heads": keywords["num_heads"], **heads_given}  # default: as many key heads
    kernel = keywords.get("kernel")
    arguments = getattr(kernel, "keywords", {}) if target_of(kernel) is SoftmaxKernel else {}
    backend = {"backend": arguments["backend"]} if "backend" in arguments else {}
    return partial(MultiHeadAttention, **heads, kernel=partial(SoftmaxKernel, **backend))


def heads_of(target: object) -> tuple[str, ...]:
    """Return the arguments of a class or function that cross-attention copies.

    Of a mixer that does not attend, only the number of heads: others have other meanings.
    """
    attends = not isinstance(target, type) or issubclass(target, Attention)
    return HEADS if attends else HEADS[:1]
