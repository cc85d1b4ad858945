"""Small random models as transformers saves them, for each family, with their tokenizers."""

import torch

from tests.extras.exchange import foreign_tokenizers as tokenizers

_SIZES = {
    "encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "d_model": 32,
    "max_position_embeddings": 90,
}  # fmt: skip
_T5_SIZES = {
    "d_model": 32, "d_ff": 24, "d_kv": 10, "num_heads": 3, "num_layers": 2, "num_decoder_layers": 1,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20,
}  # fmt: skip
FAMILIES = {
    "marian": (tokenizers.marian, {"activation_function": "swish", "scale_embedding": True}),
    "m2m_100": (tokenizers.m2m_100, {}),
    "nllb": (tokenizers.nllb, {"encoder_attention_heads": 2}),
    "mbart50": (tokenizers.mbart50, {"scale_embedding": True, "activation_function": "gelu"}),
    "bart": (tokenizers.bart, {"activation_function": "gelu"}),
    "pegasus": (tokenizers.pegasus, {"scale_embedding": True, "activation_function": "relu"}),
    "t5": (tokenizers.t5, {"feed_forward_proj": "relu"}),
    "t5 1.1": (tokenizers.t5, {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "mt5": (tokenizers.t5, {"model_type": "mt5", "tie_word_embeddings": False}),
    "marian apart": (
        lambda path: tokenizers.marian(path, separate=True),
        {"share_encoder_decoder_embeddings": False},
    ),
}
"""How each family's tokenizer is made, and settings of its model."""


def save(name, path):
    """Saves a random model and its tokenizer into a directory; returns both."""
    make, settings = FAMILIES[name]
    tokenizer, config = make(path)
    sizes = _T5_SIZES if config["model_type"] in ("t5", "mt5") else _SIZES
    config = {**sizes, **config, **settings}
    model = random_model(config)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return model, tokenizer


def random_model(config):
    """A model whose parameters and buffers are all random, so that none can be left out."""
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    torch.manual_seed(0)
    model = AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model(**config)).eval()
    untied = config.get("tie_word_embeddings", True) is False
    if untied:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    with torch.no_grad():
        fixed = "embed_positions" if config.get("model_type") in ("marian", "pegasus") else "none"
        for part, weights in model.named_parameters():
            if fixed not in part:
                weights.add_(torch.randn_like(weights), alpha=0.1)
        if getattr(model, "final_logits_bias", None) is not None:
            model.final_logits_bias.normal_()
    return model
