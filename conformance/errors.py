"""Errors that stop a run before any check: the plugin shows each as one line and exits with 4."""

from __future__ import annotations


class ConformanceError(Exception):
    """Base of what a user can mend: the message says what was expected, what was found and what to do."""


class AdapterNotFound(ConformanceError):
    """No adapter of that name, file or attribute."""


class AdapterLoadError(ConformanceError):
    """An adapter's file exists and does not import, or does not hold a spec."""


class MissingPackage(ConformanceError):
    """An adapter's package is not installed."""


class SpecError(ConformanceError):
    """A spec's declaration is incomplete or contradicts itself."""
