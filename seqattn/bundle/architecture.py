"""What a model is made from: its shape, an attention for each slot, and a position scheme."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

from seqattn.attention.alignment import Alignment
from seqattn.attention.base import AttentionFactory
from seqattn.attention.heads import MultiHeadAttention
from seqattn.attention.kernels.softmax import SoftmaxKernel
from seqattn.bundle import nodes
from seqattn.bundle.choices import SLOT_NODES, SLOTS, choices
from seqattn.bundle.unallocated import unallocated
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.models.base import Seq2SeqModel
from seqattn.models.span_base import SpanModel
from seqattn.models.stack import PositionFactory, PositionRefused, Slots
from seqattn.positions.base import Position, Stack

Attentions = AttentionFactory | Sequence[AttentionFactory]
"""One attention for all layers of a slot, or several that take turns, layer by layer."""
Model = Seq2SeqModel | SpanModel
PARTS = ("model", "attention", "position", *SLOT_NODES)
"""The nodes of a configuration that a model is made from."""
HEADS = ("num_heads", "num_kv_heads", "dropout", "bias")
"""What cross-attention takes from the self-attention beside it."""
_PROBED = 48  # a width that most numbers of heads divide


class Vocabularies(NamedTuple):
    """Sizes of both sides' vocabularies, and whether they are one."""

    source_size: int
    target_size: int
    joint: bool

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Vocabularies":
        """Those of a tokenizer."""
        return cls(tokenizer.source_size, tokenizer.target_size, tokenizer.joint)


class ModelConfig(Protocol):
    """The shape of a model, which says what the model has a place for."""

    dim: int
    build: Callable[..., Model]
    output: ClassVar[str]
    """What comes out of it: text or spans."""
    attention_type: ClassVar[type]
    """What its attentions are: `Mixer`, `Attention` or `Alignment`."""
    uses_positions: ClassVar[bool]
    one_vocabulary: ClassVar[bool]
    """Whether all that it reads is of the source's."""

    @property
    def attentions(self) -> Mapping[str, int]:
        """How many attentions each slot that it has holds."""


@dataclass(frozen=True)
class Architecture:
    """A model's choices, which must fit each other.

    Args:
        attention: of every slot that has none of its own; cross-attention keeps its heads with
            the softmax kernel. A list goes through the layers, and again from its start.
        encoder_attention, decoder_attention, cross_attention: a slot's own.
        names: what the user chose in each group, for messages.
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
        """From a configuration with nodes of these names.

        Raises:
            UserError: for a node that cannot be built; see `nodes.build`.
        """
        chosen = {name: config[name] for name in PARTS if config.get(name) is not None}
        return cls(**nodes.each(nodes.build, chosen, ""), names=config.get("choices") or {})

    def check(self, joint: bool = True) -> Model:
        """Refuses choices that do not fit each other, before any work and without memory.

        Args:
            joint: whether one vocabulary serves both sides.

        Returns:
            The model without numbers, over tiny vocabularies.

        Raises:
            UserError: naming what would fit.
        """
        with unallocated():
            return self.build(Vocabularies(8, 8, joint))

    def build(self, vocabulary: Vocabularies) -> Model:
        """The model over vocabularies of these sizes.

        Raises:
            UserError: for choices that do not fit each other.
        """
        if not self.model.uses_positions and _target(self.position) is not Position:
            raise UserError(
                f"model={self._name('model')} knows positions by its recurrence and cannot use "
                f"position={self._name('position')}; leave it out, or set position=none"
            )
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
        """In the names of choices, what cannot have the position, and what it can have."""
        several = isinstance(self.attention, Sequence)
        attention, position = error.mixer.name, type(error.position).__name__
        if "attention" in self.names and not (
            several or self.encoder_attention or self.decoder_attention
        ):
            attention = f"attention={self.names['attention']}"
        if "position" in self.names:
            position = f"position={self.names['position']}"
        taken = error.mixer.abilities.hooks | {"embed"}
        with unallocated():
            schemes = {
                name: nodes.build(node)(Stack(_PROBED, 1))
                for name, node in choices("position").items()
            }
        fitting = ", ".join(name for name, one in schemes.items() if one.hooks <= taken)
        return f"{attention} cannot use {position}; it takes {fitting}"

    def _layers(self, slot: str) -> list[AttentionFactory]:
        """A factory for each layer of a slot; those that no layer needs must serve it too."""
        name, slots = self._name("model"), self.model.attentions
        own: Attentions | None = getattr(self, f"{slot}_attention")
        key = "attention" if own is None else f"attention@{slot}_attention"
        given = self.attention if own is None else own
        given = given if isinstance(given, Sequence) else [given]
        if len(slots) == 1 and (own is not None or len(given) > 1):
            taken = ", ".join(self.taken())
            raise UserError(
                f"model={name} has one attention; choose it as attention=NAME, of {taken}"
            )
        if own is not None and slot not in slots:
            keys = " and ".join(f"attention@{kept}_attention=NAME" for kept in slots)
            raise UserError(f"model={name} has no {slot}; choose attention=NAME, or {keys}")
        if not given:
            raise UserError(f"{key} must be one choice or several, got none")
        if not all(map(self._is_of_kind, given)):
            raise self._cannot_use(key)
        if slot == "cross" and own is None and len(slots) > 1:
            given = [cross_default(attention) for attention in given]
        chosen = self._name(key) if len(given) == 1 else "NAME"
        made = [partial(self._serving, attention, slot, chosen) for attention in given]
        count = slots.get(slot, 0)
        with unallocated():
            for spare in made[count:] if count else ():
                spare(query_dim=self.model.dim, memory_dim=self.model.dim)
        return [made[n % len(made)] for n in range(count)]

    def _is_of_kind(self, attention: AttentionFactory) -> bool:
        """Whether an attention is of the model's kind, as far as is known before it is made."""
        made = _target(attention)
        return not isinstance(made, type) or issubclass(made, self.model.attention_type)

    def _cannot_use(self, key: str) -> UserError:
        chosen = f"model={self._name('model')} cannot use {key}={self._name(key)}"
        return UserError(f"{chosen}; it takes {', '.join(self.taken())}")

    def taken(self) -> dict[str, list[str]]:
        """The shipped attentions that the model takes, each with the slots that it can serve."""
        built = {name: nodes.build(node) for name, node in choices("attention").items()}
        with unallocated():
            made = {
                name: attention(query_dim=_PROBED, memory_dim=_PROBED)
                for name, attention in built.items()
                if self._is_of_kind(attention)
            }
        slots = {name: _fitting(one, self.model.attentions) for name, one in made.items()}
        return {name: fitting for name, fitting in slots.items() if fitting}

    def _serving(
        self, factory: AttentionFactory, slot: str, name: str, query_dim: int, memory_dim: int
    ) -> Any:
        """An attention that can serve `slot`, or a refusal that names the slots that it fits."""
        attention = factory(query_dim=query_dim, memory_dim=memory_dim)
        which = f"attention={name}" if name != "NAME" else "this attention"
        kind = self.model.attention_type
        if not isinstance(attention, kind):
            made = type(attention).__name__
            raise UserError(f"{which} makes a {made}, which is no {kind.__name__}")
        if _fitting(attention, [slot]):
            return attention
        if len(self.model.attentions) == 1:
            raise self._cannot_use("attention")
        places = " or ".join(f"attention@{s}_attention={name}" for s in _fitting(attention, SLOTS))
        raise UserError(
            f"{which} cannot serve as {slot} attention; give it a slot that it fits: "
            f"{places or 'it has none'}"
        )

    def _name(self, group: str) -> str:
        return str(self.names.get(group, "NAME"))


def cross_default(attention: AttentionFactory) -> AttentionFactory:
    """Cross-attention beside a self-attention: the same heads with the softmax kernel.

    Raises:
        UserError: where the self-attention does not say how many heads it has.
    """
    given = getattr(attention, "keywords", {})
    if "num_heads" not in given:
        raise UserError(
            "this attention does not say its num_heads, by which cross-attention would have as "
            "many; choose one by attention@cross_attention=NAME"
        )
    kept = {name: given[name] for name in HEADS if name in given}
    heads = {"num_kv_heads": given["num_heads"], **kept}  # where it counts no key heads
    return partial(MultiHeadAttention, **heads, kernel=partial(SoftmaxKernel))


def _target(factory: object) -> object:
    """The class that a factory makes objects of, or the function that it calls."""
    return getattr(factory, "func", factory)


def _fitting(attention: Any, slots: Iterable[str]) -> list[str]:
    """Those of the slots that an attention can serve; an alignment serves all that it is given."""
    abilities = getattr(attention, "abilities", None)
    return [slot for slot in slots if abilities is None or abilities.fits(slot)]
