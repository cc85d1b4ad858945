"""Use cases that work on bundles, such as evaluation, generation and analysis."""
