"""From a composed configuration to objects."""

from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from seqattn.attention.base import Attention, AttentionFactory
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.generation import Generator
from seqattn.models.base import Seq2SeqModel
from seqattn.models.transformer import Slots

Config = dict[str, Any]


def make(config: Any, **extra: Any) -> Any:
    """Instantiates a configuration node; what the user can mend comes out as `UserError`."""
    try:
        return instantiate(config, _convert_="all", **extra)
    except InstantiationException as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, UserError):
                raise cause from None
            cause = cause.__cause__
        raise


def build_model(config: Config, tokenizer: Tokenizer) -> Seq2SeqModel:
    """The model of a resolved configuration over a tokenizer's vocabularies."""
    shape = make(config["model"])
    encoder, decoder = shape.encoder_layers, shape.decoder_layers
    own = config["attention"]
    slots = Slots(
        encoder=_slot(config.get("encoder_attention") or own, "encoder", encoder),
        decoder=_slot(config.get("decoder_attention") or own, "decoder", decoder),
        cross=_slot(config.get("cross_attention") or _cross(own), "cross", decoder),
        position=make(config["position"]),
    )
    model: Seq2SeqModel = shape.build(
        tokenizer.source_size, tokenizer.target_size, tokenizer.joint, slots
    )
    return model


def _cross(attention: Any) -> Any:
    """Cross-attention beside a self-attention: the same heads with the softmax kernel."""
    if isinstance(attention, list):
        return [_cross(layer) for layer in attention]
    kernel = {"_target_": "seqattn.attention.kernels.softmax.SoftmaxKernel", "_partial_": True}
    return {**attention, "kernel": kernel}


def _slot(attention: Any, slot: str, layers: int) -> list[AttentionFactory]:
    """A factory for each layer; a list of attentions is gone through layer by layer, and again."""
    nodes = attention if isinstance(attention, list) else [attention]
    return [_fitting(make(nodes[number % len(nodes)]), slot) for number in range(layers)]


def _fitting(factory: AttentionFactory, slot: str) -> AttentionFactory:
    """Refuses an attention that cannot serve `slot`, in words that name the slots it fits."""

    def checked(query_dim: int, memory_dim: int) -> Attention:
        attention = factory(query_dim=query_dim, memory_dim=memory_dim)
        abilities = attention.abilities
        if not abilities.fits(slot):
            fitting = [name for name in ("encoder", "decoder", "cross") if abilities.fits(name)]
            words = ", ".join(f"attention@{name}_attention=NAME" for name in fitting)
            raise UserError(
                f"this attention cannot serve as {slot} attention; it fits {words or 'no slot'}"
            )
        return attention

    return checked


def build_generator(generation: Config, model: Seq2SeqModel) -> Generator:
    """The search of a `generation` node, over `model`."""
    node = dict(generation)
    sizes = {name: int(node.pop(name)) for name in ("batch_size", "batch_tokens")}
    return Generator(model, make(node), **sizes)


def build_data(config: Config, tokenizer: Tokenizer | None = None) -> Any:
    """The data module of a resolved configuration, with a vocabulary of its own or `tokenizer`."""
    from seqattn.data.module import Seq2SeqData  # `datasets` takes seconds to import

    return Seq2SeqData(
        make(config["data"]),
        make(config["tokenizer"]),
        make(config["loader"]),
        cache_dir=config.get("cache_dir"),
        seed=int(config.get("seed", 0)),
        tokenizer=tokenizer,
    )
