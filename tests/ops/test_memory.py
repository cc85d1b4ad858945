"""How the process holds on to memory."""

import os

from seqattn.ops.memory import keep_freed_memory, keep_prepared_products


def test_keeping_freed_memory_says_whether_it_was_done(monkeypatch):
    assert isinstance(keep_freed_memory(), bool)
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    assert keep_freed_memory() is False


def test_how_many_products_are_kept_is_the_environments_to_say(monkeypatch):
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "7")
    keep_prepared_products()
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "7"
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY")
    keep_prepared_products()
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "4096"
