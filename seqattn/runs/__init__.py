"""A use case each, as the verbs: train, evaluate, generate, convert, analyze, report, heads, ..."""
