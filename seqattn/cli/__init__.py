"""Command line; only this package and `config` use Hydra."""
