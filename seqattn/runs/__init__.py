"""A use case each: train, evaluate, generate, convert, analyze, report, compare."""
