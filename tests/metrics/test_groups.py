"""Labels of rows that belong together."""

import pytest

from seqattn.metrics.groups import group_summary, labels_of

SOURCES = ["Abend;N;DAT", "Abendrot;N", "Haus;N"]


@pytest.mark.parametrize(
    ("group", "labels"),
    [
        ("source", SOURCES),
        ("prefix:5", ["Abend", "Abend", "Haus;"]),
        ("prefix:1000000", SOURCES),
        ("prefix:0", ["", "", ""]),
        ("prefix:x", None),
        ("prefix", None),
        ("document", None),
        (3, None),
    ],
)
def test_labels_follow_from_sources_or_are_a_column(group, labels):
    assert labels_of(group, SOURCES) == labels


@pytest.mark.parametrize(("count", "rough"), [(1, True), (39, True), (40, False)])
def test_few_groups_are_said_to_be_few(count, rough):
    line = group_summary("lemma", [str(row % count) for row in range(200)])
    assert line.startswith(f"intervals and tests are over {count} groups of rows (group=lemma)")
    assert line.endswith("; with fewer than 40, they are rough and often too narrow") == rough
