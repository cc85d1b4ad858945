"""Checks of text lengths against a model's positions, and of its output lengths."""

from torch import nn

from seqattn.attention.base import length_key
from seqattn.errors import UserError
from seqattn.training.setup import Setup


def check_lengths(setup: Setup) -> None:
    """Check before training that the model has positions for all texts.

    Raises:
        UserError: if it does not; the message names the keys to change.
    """
    model, longest, loader = setup.model, setup.data.longest, setup.run.loader
    limits = (model.max_source_length, getattr(model, "max_target_length", model.max_source_length))

    def bound(limit: int) -> str:
        key = length_key(model, limit)
        own = key.startswith("attention") and setup.run.encoder_attention is not None
        return f"encoder_{key}" if own else key  # only encoder attentions have a limit

    for (what, key), tokens, limit in zip(setup.sides, longest, limits, strict=True):
        if limit is not None and (padded := loader.rounded(tokens)) > limit:
            fits = max(number for number in range(limit + 1) if loader.rounded(number) <= limit)
            lower = f"set {key}={fits} to drop or shorten longer ones"
            raise UserError(
                f"{bound(limit)} is {limit} tokens, but the longest {what} has {padded}; "
                f"{lower if fits > 1 else 'lower loader.round_to'}, or raise {bound(limit)}"
            )
    limit = limits[0]
    if limit is None:
        return
    for split, tokens in setup.scored_lengths().items():
        if tokens > limit:
            raise UserError(
                f"{bound(limit)} is {limit} tokens, but the {split} split, on which the bundle is "
                f"scored, has a source of {tokens}; set loader.long_sources=truncate or "
                f"task.final=null, or raise {bound(limit)}"
            )


def length_notices(setup: Setup) -> list[str]:
    """Return lines on attention patterns that hide nothing, and on outputs of a limited length."""
    return ineffective_patterns(setup.model, max(setup.data.longest)) + _short_outputs(setup)


def ineffective_patterns(model: nn.Module, longest: int) -> list[str]:
    """Return a line for each attention that hides nothing in texts of up to `longest` tokens."""
    reaches = [
        (name.split(".")[0], type(part).__name__, getattr(part, "sees_all_up_to", 0))
        for name, part in model.named_modules()
    ]
    return [
        f"{name} of the {stack} hides no token of a text of up to {reach:,} tokens, and the "
        f"longest has {longest:,}: its pattern has no effect on this data; lower its window, "
        "stride or block size"
        for stack, name, reach in dict.fromkeys(reaches)
        if longest <= reach
    ]


def _short_outputs(setup: Setup) -> list[str]:
    """Return a line if outputs are limited to less than the length of targets."""
    limit, longest = getattr(setup.run.generation, "limit", None), setup.data.longest[1]
    if limit is None or limit.ratio or limit.extra >= longest:
        return []
    return [
        f"outputs are limited to {limit.extra} tokens, but the longest target has {longest}; set "
        f"generation.limit.extra={longest} to allow this length"
    ]
