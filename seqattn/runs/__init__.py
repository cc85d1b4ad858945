"""A use case each: train, evaluate, generate, convert, analyze, heads, probe, compare, serve."""
