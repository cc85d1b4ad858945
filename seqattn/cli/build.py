"""From a composed configuration to objects."""

from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from torch import nn

from seqattn.attention.base import Attention, AttentionFactory
from seqattn.cli.fitting import check_fit, family, learns
from seqattn.data.tokenizer import Tokenizer
from seqattn.errors import UserError
from seqattn.generation import Generator
from seqattn.models.base import Seq2SeqModel
from seqattn.models.span import SpanModel
from seqattn.models.transformer import Slots, TransformerConfig
from seqattn.tasks.base import Optimization
from seqattn.training.forcing import TeacherForcing

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


def build_model(config: Config, tokenizer: Tokenizer) -> Seq2SeqModel | SpanModel:
    """The model of a resolved configuration over a tokenizer's vocabularies."""
    check_fit(config)
    shape, kind = make(config["model"]), family(config)
    model: Seq2SeqModel | SpanModel
    if learns(config) == "spans":
        model = shape.build(tokenizer.source_size, _span_slots(config, shape, kind))
    else:
        parts = make(config["attention"]) if kind == "rnn" else _slots(config, shape)
        model = shape.build(tokenizer.source_size, tokenizer.target_size, tokenizer.joint, parts)
    return model


def _slots(config: Config, shape: TransformerConfig) -> Slots:
    own = config["attention"]
    return Slots(
        encoder=_slot(config, "encoder", own, shape.encoder_layers),
        decoder=_slot(config, "decoder", own, shape.decoder_layers),
        cross=_slot(config, "cross", cross_default(own), shape.decoder_layers),
        position=make(config["position"]),
    )


def _span_slots(config: Config, shape: Any, kind: str) -> Slots:
    """Attentions of a span model: those of its layers, and the one by which the context asks."""
    own = config["attention"]
    recurrent = kind == "span_rnn"
    return Slots(
        encoder=[] if recurrent else _slot(config, "encoder", own, shape.layers),
        decoder=[],
        cross=_slot(config, "cross", own if recurrent else cross_default(own), 1),
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
    from seqattn.data.span_module import SpanData

    kind = learns(config)
    return (SpanData if kind == "spans" else Seq2SeqData)(
        build_source(config["data"], kind),
        make(config["tokenizer"]),
        make(config["loader"]),
        cache_dir=config.get("cache_dir"),
        seed=int(config.get("seed", 0)),
        tokenizer=tokenizer,
    )


def build_source(node: Config, kind: str) -> Any:
    """Where the data comes from; questions as pairs of texts for a task of the kind `answers`."""
    from seqattn.data.answer_pairs import AnswerPairs

    source = make(node)
    return AnswerPairs(source) if kind == "answers" else source


def optimization(config: Config, model: nn.Module) -> Optimization:
    """How the weights of a run's model move."""
    task = config["task"]
    found = Optimization(
        make(config["optimizer"]),
        make(config["schedule"]),
        task["label_smoothing"],
        make(task["teacher_forcing"]) if "teacher_forcing" in task else TeacherForcing(),
    )
    found.optimizer(model, fused=False)  # refuses its values before the run begins
    return found
