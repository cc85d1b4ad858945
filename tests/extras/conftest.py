"""The small bundles that commands of extras are tried on."""

from tests.cli.conftest import answering, corpus, places, scored, trained  # noqa: F401
