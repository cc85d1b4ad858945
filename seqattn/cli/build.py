"""From a composed configuration to objects."""

from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from seqattn.attention.base import Attention, AttentionFactory
from seqattn.cli.fitting import check_fit, is_recurrent
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.generation import Generator
from seqattn.models.base import Seq2SeqModel
from seqattn.models.transformer import Slots, TransformerConfig

Config = dict[str, Any]
_HEADS_KEYS = ("num_heads", "num_kv_heads", "dropout", "bias")


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
    check_fit(config)
    shape = make(config["model"])
    parts = make(config["attention"]) if is_recurrent(config) else _slots(config, shape)
    model: Seq2SeqModel = shape.build(
        tokenizer.source_size, tokenizer.target_size, tokenizer.joint, parts
    )
    return model


def _slots(config: Config, shape: TransformerConfig) -> Slots:
    own = config["attention"]
    return Slots(
        encoder=_slot(config, "encoder", own, shape.encoder_layers),
        decoder=_slot(config, "decoder", own, shape.decoder_layers),
        cross=_slot(config, "cross", cross_default(own), shape.decoder_layers),
        position=make(config["position"]),
    )


def cross_default(attention: Any) -> Any:
    """Cross-attention beside a self-attention: the same heads with the softmax kernel."""
    if isinstance(attention, list):
        return [cross_default(layer) for layer in attention]
    kernel = {"_target_": "seqattn.attention.kernels.softmax.SoftmaxKernel", "_partial_": True}
    kept = {name: value for name, value in attention.items() if name in _HEADS_KEYS}
    return {
        "_target_": "seqattn.attention.heads.MultiHeadAttention",
        "_partial_": True,
        "num_kv_heads": attention["num_heads"],  # where it counts no key heads of its own
        **kept,
        "kernel": kernel,
    }


def _slot(config: Config, slot: str, default: Any, layers: int) -> list[AttentionFactory]:
    """A factory for each layer; a list of attentions is gone through layer by layer, and again."""
    chosen = config.get(f"{slot}_attention") or default
    nodes = chosen if isinstance(chosen, list) else [chosen]
    choices = config.get("choices", {})
    key = f"attention@{slot}_attention" if config.get(f"{slot}_attention") else "attention"
    name = choices.get(key) if len(nodes) == 1 else None
    return [_fitting(make(nodes[n % len(nodes)]), slot, name or "NAME") for n in range(layers)]


def _fitting(factory: AttentionFactory, slot: str, name: str) -> AttentionFactory:
    """Refuses an attention that cannot serve `slot`, in words that name the slots it fits."""

    def checked(query_dim: int, memory_dim: int) -> Attention:
        attention = factory(query_dim=query_dim, memory_dim=memory_dim)
        abilities = attention.abilities
        if not abilities.fits(slot):
            fitting = [name for name in ("encoder", "decoder", "cross") if abilities.fits(name)]
            words = " or ".join(f"attention@{place}_attention={name}" for place in fitting)
            which = f"attention={name}" if name != "NAME" else "this attention"
            raise UserError(
                f"{which} cannot serve as {slot} attention; "
                f"give it a slot that it fits: {words or 'it has none'}"
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
