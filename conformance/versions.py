"""Versions of what a run is about, as the installed packages say."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conformance.spec import AdapterSpec


def kit_version() -> str:
    """The installed version, or what a checkout that is not installed can say."""
    try:
        return importlib.metadata.version("audiograph")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def package_versions(spec: AdapterSpec) -> dict[str, str]:
    """The installed version of each package that an adapter needs, by its distribution's name; without what lacks."""
    found: dict[str, str] = {}
    for requirement in spec.requires:
        module = requirement.module.partition(".")[0]
        try:
            metadata = importlib.metadata.metadata(module)
        except importlib.metadata.PackageNotFoundError:  # of another name than its module, or not installed
            names = importlib.metadata.packages_distributions().get(module, ())
            if not names:
                continue
            metadata = importlib.metadata.metadata(names[0])
        found[metadata["Name"]] = metadata["Version"]
    return found
