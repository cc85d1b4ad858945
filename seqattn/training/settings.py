"""Settings of a training run."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Self

from seqattn.checking import Count, Seed
from seqattn.data.options import BatchLimits, LoaderOptions
from seqattn.data.vocabulary import TokenizerConfig
from seqattn.errors import UserError
from seqattn.generation.base import AnySearch
from seqattn.generation.beam import BeamSearch
from seqattn.positions import SinusoidalPosition
from seqattn.roles import Role
from seqattn.settings.assembly import Architecture
from seqattn.settings.choices import check_fit
from seqattn.settings.nodes import Node, build
from seqattn.training.checkpoint_options import CheckpointOptions
from seqattn.training.optim import adamw
from seqattn.training.parameter_groups import ParameterGroups
from seqattn.training.schedules import inverse_sqrt
from seqattn.training.task_options import LOSSES, TextGeneration
from seqattn.training.trainer_options import TrainerOptions

ADAMW = partial(adamw, lr=0.001)
WARMUP = partial(inverse_sqrt, warmup_steps=400)


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of a training run.

    Args:
        run_dir: directory for its files; the bundle is `run_dir`/model.
        data: source of the rows.
        task: the task, with its loss and scores.
        model: shape of the model.
        attention: builds the attentions of encoder and decoder; a list is cycled over the layers.
        position: builds a stack's position scheme; recurrent models need `Position`, which is none.
        tokenizer: settings of the vocabulary to train.
        loader: settings of batches.
        optimizer: builds the optimizer from (model, fused).
        schedule: builds the function from a step to a factor on the learning rate.
        generation: the search that scores the trained model, and that its bundle uses.
        trainer: length of the training, devices and precision.
        checkpoint: settings of checkpoints.
        encoder_attention: for the encoder only; None for `attention`. Likewise the next two.
        decoder_attention: for the decoder.
        cross_attention: from the decoder to the source.
        logger: functions that build Lightning loggers, by any names, or their nodes.
        callbacks: functions that build Lightning callbacks, by any names, or their nodes.
        watch: function from the `Setup` to callbacks that draw and log what the model does, if any.
        name: name of the run.
        resume: "auto" resumes the run in `run_dir`, if there is one; False raises an error
            instead; the path of a run resumes it, possibly with other settings.
        init_from: a bundle with initial weights and tokenizer; `model` must match it.
        trust: packages, besides seqattn, that parts of that bundle may come from.
        embeddings: a text file of vectors (word2vec, fastText) to initialize its embeddings.
        freeze: patterns of the names of parameters that stay fixed; see `ParameterGroups`.
        freeze_steps: optimizer steps after which they train, too; None for never.
        lr_factors: factors on the learning rate, by such patterns.
        find_lr: True if the command line runs `Training.find_rate` in place of `run`.
        cache_dir: for vocabularies and tokenized text; None for ~/.cache/seqattn.
        noise: on training pairs; its method `rows` returns what adds it. None for none.
        seed: seed of weights, batches and dropout.
        choices: names of the chosen values, for messages.
        overrides: command-line overrides, stored for resuming.
        sweep: folder of the sweep that the run belongs to, by which wandb groups runs.
        settings: the plain settings that it was built from.

    Raises:
        UserError: for invalid values or combinations.
    """

    built_later: ClassVar[Sequence[str]] = ("logger", "callbacks", "watch")
    """Settings whose classes take seconds to import: nodes until all others are checked."""

    run_dir: Annotated[str, Role.NOTE]
    data: Any
    task: TextGeneration
    model: Annotated[Any, Role.SHAPE]
    attention: Annotated[Any, Role.SHAPE]
    position: Annotated[Callable[..., Any], Role.SHAPE] = SinusoidalPosition
    tokenizer: Annotated[TokenizerConfig, Role.SHAPE] = field(default_factory=TokenizerConfig)
    loader: BatchLimits = field(default_factory=LoaderOptions)
    optimizer: Callable[..., Any] = ADAMW
    schedule: Callable[..., Any] = WARMUP
    generation: Annotated[AnySearch, Role.END] = field(default_factory=BeamSearch)
    trainer: Annotated[TrainerOptions, Role.MACHINE] = field(default_factory=TrainerOptions)
    checkpoint: Annotated[CheckpointOptions, Role.END] = field(default_factory=CheckpointOptions)
    encoder_attention: Annotated[Any, Role.SHAPE] = None
    decoder_attention: Annotated[Any, Role.SHAPE] = None
    cross_attention: Annotated[Any, Role.SHAPE] = None
    logger: Annotated[Mapping[str, Any], Role.NOTE] = field(default_factory=dict)
    callbacks: Mapping[str, Any] = field(default_factory=dict)
    watch: Annotated[Any, Role.NOTE] = None
    name: Annotated[str, Role.NOTE] = "run"
    resume: Annotated[str | bool | None, Role.NOTE] = "auto"
    init_from: str | None = None
    trust: Annotated[Sequence[str], Role.NOTE] = ()
    embeddings: str | None = None
    freeze: Sequence[str] | None = None
    freeze_steps: Count | None = None
    lr_factors: Annotated[Any, Role.STEP] = None
    find_lr: Annotated[bool, Role.NOTE] = False
    cache_dir: Annotated[str | None, Role.NOTE] = None
    noise: Any = None
    seed: Seed = 1
    choices: Annotated[Mapping[str, str], Role.NOTE] = field(default_factory=dict)
    overrides: Annotated[Sequence[str], Role.NOTE] = ()
    sweep: Annotated[str | None, Role.NOTE] = None
    settings: Mapping[str, Node] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.model, Mapping):  # keys of an experiment without a choice
            raise UserError("missing required key model; remove ~model")
        self._check_fit()
        if self.embeddings and self.init_from:
            raise UserError("init_from and embeddings are mutually exclusive")
        _ = self.parameter_groups  # checks its values
        monitor, every = self.checkpoint.monitor, self.task.validation.every
        if monitor not in self.task.monitors:
            names = ", ".join(self.task.monitors)
            raise UserError(f"checkpoint.monitor must be one of {names}, got {monitor}")
        if monitor not in LOSSES and every != 1:
            raise UserError(
                f"checkpoint.monitor={monitor} needs that score at every validation; set "
                f"task.validation.every=1 (now {every})"
            )

    def _check_fit(self) -> None:
        """Raise UserError for a choice that does not fit the task, with those that do."""
        check_fit(self.task, vars(self), self.choices)

    def changed(self, **settings: Node) -> Self:
        """Return a copy with some plain settings changed; only these are built and checked."""
        built = {name: build(node, name) for name, node in settings.items()}
        return self.with_fields(**built, settings={**self.settings, **settings})

    def with_fields(self, **fields: Any) -> Self:
        """Return a copy with other values of some fields; nothing is checked again."""
        run = copy(self)
        vars(run).update(fields)
        return run

    def complete(self) -> Self:
        """Return a copy with all settings built."""
        return self.with_fields(
            **{name: build(getattr(self, name), name) for name in self.built_later}
        )

    @property
    def architecture(self) -> Architecture:
        """Choices that define the model."""
        return Architecture(
            self.model, self.attention, self.position, self.encoder_attention,
            self.decoder_attention, self.cross_attention, self.choices,
        )  # fmt: skip

    @property
    def parameter_groups(self) -> ParameterGroups:
        """Parts of the model that are frozen, or have rates of their own."""
        return ParameterGroups(self.freeze or (), self.freeze_steps, self.lr_factors or {})

    @property
    def resumes_another(self) -> bool:
        """True if `resume` names a run."""
        return isinstance(self.resume, str) and self.resume != "auto"

    def typed(self, group: str) -> list[str]:
        """Return the overrides that choose or change a group, such as tokenizer."""
        return [word for word in self.overrides if word.startswith((f"{group}=", f"{group}."))]
