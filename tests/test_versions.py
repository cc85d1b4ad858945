"""The versions that are asked for are those that the pinned packages and the code need."""

import tomllib
from importlib.metadata import PackageNotFoundError, metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = [Requirement(line) for line in (ROOT / "constraints.txt").read_text().split()]


def floor(specifiers):
    return min(one.version for one in SpecifierSet(str(specifiers)) if one.operator == ">=")


def test_every_pinned_package_runs_on_the_oldest_python():
    oldest, refusing = floor(PROJECT["requires-python"]), []
    for pin in PINS:
        try:
            needed = metadata(pin.name).get("Requires-Python")
        except PackageNotFoundError:  # of an extra that is not installed
            continue
        if needed and not SpecifierSet(needed).contains(f"{oldest}.99"):
            refusing.append(pin.name)
    assert not refusing


def test_pinned_versions_meet_what_is_asked_for():
    pinned = {pin.name: str(pin.specifier).removeprefix("==") for pin in PINS}
    asked = [Requirement(text) for text in PROJECT["dependencies"]]
    assert all(one.specifier.contains(pinned[one.name]) for one in asked if one.name in pinned)


def test_lightning_has_the_average_of_weights():
    asked = {one.name: one for one in map(Requirement, PROJECT["dependencies"])}
    assert not asked["lightning"].specifier.contains("2.5.5")  # neither it nor fit(weights_only=)
    assert asked["lightning"].specifier.contains("2.6.0")
