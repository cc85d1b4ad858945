"""The command line: the one place that knows Hydra."""
