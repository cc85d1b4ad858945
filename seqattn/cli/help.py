"""Help pages a newcomer can read."""

import textwrap

from seqattn.cli.config import groups

_ABOUT = {
    "train": "Trains a model and writes a bundle to RUN/model.",
    "generate": "Writes an output for each line of text, with a trained bundle.",
    "evaluate": "Scores a bundle on a split, by its task's own scorer.",
    "compare": "Shows evaluations side by side, and draws them by source length.",
    "analyze": "Draws where a bundle's attention looks in one sentence or question.",
    "benchmark": "Measures speed beside what one would use instead; scores what needs no model.",
    "convert": "Makes a bundle with fewer key and value heads (GQA, MQA) from a bundle.",
}
_EXAMPLES = {
    "train": [
        ("attention=gqa", "the bundled corpus, with grouped-query attention"),
        ("attention=mqa position=rope model.encoder_layers=6", "other parts, another depth"),
        ("model=rnn attention=luong_general", "a recurrent model (attention=bahdanau by default)"),
        (
            "data=parallel_text data.root=DIR data.source_suffix=en data.target_suffix=fr",
            "your own DIR/train.en, DIR/train.fr, DIR/val.en, ...",
        ),
        ("experiment=multi30k_tiny data.root=DIR", "a published setting"),
        ("resume=runs/translation/TIME trainer.max_epochs=40", "go on with a run"),
        ("init_from=BUNDLE attention=gqa", "a new run that begins with a bundle's weights"),
        ("task=summarization model.copy=true", "documents and summaries; a copy mechanism"),
        ("task=qa data=squad data.root=DIR", "answers by spans (model=span_rnn|span_transformer)"),
        ("task=qa_generative", "answers in the model's own words"),
        ("-m attention=mha,gqa,mqa trainer.max_steps=500", "compare, one run each"),
    ],
    "generate": [
        ("bundle=RUN/model", "read lines from standard input, answer each at once"),
        ("bundle=RUN/model input=FILE output=FILE generation=beam", "a whole file"),
        ("bundle=RUN/model input=FILE n_best=5 scores=true", "JSON lines with scores"),
        ("bundle=RUN/model generation=sampling generation.top_p=0.9", "random outputs"),
        ("bundle=RUN/model generation.beam_size=8", "a wider beam"),
        ("bundle=RUN/model input=FILE.jsonl", 'documents: lines such as {"document": "..."}'),
        ("bundle=QA/model input=FILE.jsonl", "questions: lines with question and context"),
    ],
    "evaluate": [
        ("bundle=RUN/model", "the test split of the data it was trained on"),
        ("bundle=RUN/model split=val", "another split"),
        ("bundle=RUN/model data.root=DIR", "the same data, elsewhere"),
        ("bundle=RUN/model generation=greedy", "another search"),
        ("bundle=RUN/model scorer.tokenize=none", "for text that is tokenised already"),
        ("bundle=RUN/model lengths=[8,12,16,20]", "also by words of the source"),
    ],
    "compare": [
        ("evaluations=[RUN1/evaluation/test,RUN2/evaluation/test]", "a table of their scores"),
        ("evaluations=[DIR1,DIR2] output=FILE.png", "and curves, if both have the same lengths"),
    ],
    "analyze": [
        ('bundle=RUN/model text="A dog runs." output=DIR', "the model's own translation"),
        ('bundle=RUN/model text="A dog runs." target="Ein Hund rennt." output=DIR', "a given one"),
        ('bundle=RUN/model question="Who runs?" context="A dog runs." output=DIR', "a question"),
    ],
    "convert": [
        ("bundle=RUN/model heads=mqa output=DIR", "one key head everywhere; scored on val"),
        ("bundle=RUN/model heads=gqa num_kv_heads=2 output=DIR", "two, each the mean of a group"),
        ("bundle=RUN/model heads=mqa slots=[decoder] output=DIR", "where the cache grows, alone"),
        ("bundle=RUN/model heads=mqa output=DIR uptrain_steps=200", "and trained on a little"),
    ],
    "benchmark": [
        ("suite=training data.root=DIR", "target tokens/s beside a loop around nn.Transformer"),
        ("suite=decoding data.root=DIR sentences=1000", "beside Hugging Face generate"),
        ("suite=training data.root=DIR profile=true", "where our step's time goes"),
        ("suite=decoding data=demo_translation tokenizer.vocab_size=1000", "the bundled corpus"),
        ("suite=training data.root=DIR threads=1 max_tokens=2048 output=FILE", "and as JSON"),
        ("suite=baselines data=squad data.root=DIR", "answers, or summaries, without a model"),
    ],
}
_KEYS = {
    "train": [
        ("run_dir=PATH", "where the run's files go (runs/NAME/TIME)"),
        ("resume=RUN", "go on from RUN's last checkpoint"),
        ("init_from=BUNDLE", "begin with its weights and tokenizer; the model must be alike"),
        ("seed=1", "the same seed gives the same run"),
        ("trainer.max_steps=N  trainer.max_epochs=N  trainer.fast_dev_run=true", "how long"),
        ("trainer.precision=32|bf16-mixed|16-mixed", "bf16-mixed is quicker where the CPU has it"),
        ("attention.num_heads=8  attention.num_kv_heads=2", "options of the chosen attention"),
        ("attention@decoder_attention=mqa", "one slot apart: encoder_, decoder_, cross_attention"),
        ("loader.max_tokens=4096", "batch size, in padded tokens"),
        ("logger=[csv,tensorboard]", "several at once"),
    ],
    "generate": [
        ("input= output=", "files; standard input and output without them"),
        ("n_best=N scores=true", "several hypotheses, JSON lines"),
        ("device=cuda", "where the model runs (cpu)"),
    ],
    "evaluate": [
        ("split=test", "train, val or test"),
        ("output=DIR", "where scores and hypotheses go (RUN/evaluation/SPLIT)"),
        ("lengths=[8,12]", "scores of sources of 1-8, 9-12 and more words"),
    ],
    "compare": [
        ("evaluations=[DIR,DIR]", "directories that evaluate wrote"),
        ("output=FILE.png", "the first score by source length"),
    ],
    "convert": [
        ("heads=gqa|mqa  num_kv_heads=N", "key and value heads to pool to; mqa has one"),
        ("slots=[encoder,decoder,cross]", "whose heads are pooled"),
        ("output=DIR", "the new bundle; must not be there yet"),
        ("uptrain_steps=N", "further training before it is written (0)"),
        ("split=val  scores=true", "what it is scored on, before and after"),
    ],
    "analyze": [("output=DIR", "where cross.png, encoder.png and decoder.png go")],
    "benchmark": [
        (
            "suite=training|decoding|attention|recurrent|baselines",
            "decoding needs pip install seqattn[bench]",
        ),
        ("steps=4 rounds=8", "training: steps of a turn, turns of each contestant"),
        ("sentences=200", "decoding: the first so many of the test split; 0 for all"),
        ("beam=[1,5]", "decoding: beam sizes; 1 is greedy search"),
        ("threads=1", "of each contestant"),
        ("profile=true", "our own operators in place of the contest"),
        ("output=FILE", "the figures as JSON"),
    ],
}
_GROUPS = {
    "train": (
        "task", "model", "attention", "position", "data", "loader", "tokenizer", "optimizer",
        "schedule", "generation", "trainer", "logger", "experiment",
    ),
    "generate": ("generation",),
    "evaluate": ("data", "generation"),
    "compare": (),
    "analyze": (),
    "convert": ("data", "generation"),
    "benchmark": ("data", "tokenizer"),
}  # fmt: skip


def page(verb: str) -> str:
    """The help of one verb."""
    command = "python train.py" if verb == "train" else f"python scripts/{verb}.py"
    lines = [_ABOUT[verb], "", f"usage: {command} [name=value ...]     (also: seqattn {verb} ...)"]
    choices = groups()
    if _GROUPS[verb]:
        lines += ["", "Parts to choose, as group=choice:"]
        lines += [_choices(group, choices[group]) for group in _GROUPS[verb]]
    lines += ["", "Keys to set (--cfg job prints them all, with their values):"]
    lines += [f"  {key}\n      {meaning}" for key, meaning in _KEYS[verb]]
    lines += ["", "Examples:"]
    lines += [f"  {command} {example}\n      {meaning}" for example, meaning in _EXAMPLES[verb]]
    if verb == "train":
        lines += ["", "-m runs every combination of comma-separated values, each in its own run."]
    return "\n".join(lines)


def _choices(group: str, names: list[str]) -> str:
    """A group and its choices, wrapped under themselves."""
    joined = "  ".join(names)
    return textwrap.fill(joined, 100, initial_indent=f"  {group:<12} ", subsequent_indent=" " * 15)


def overview() -> str:
    """The help of `seqattn` itself."""
    verbs = "\n".join(f"  {verb:<10} {about}" for verb, about in _ABOUT.items())
    return f"usage: seqattn VERB [name=value ...]\n\n{verbs}\n\nseqattn VERB --help says more."
