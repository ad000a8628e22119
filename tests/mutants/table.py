"""The whole table: every mutant of every room, and the correct subjects that must fail nothing."""

from __future__ import annotations

from conformance.spec import AdapterSpec
from tests.mutants import rfc
from tests.mutants.base import Mutant, RaggedSpec, ReferenceSpec

MUTANTS: tuple[Mutant, ...] = (*rfc.MUTANTS,)
CORRECT: tuple[type[AdapterSpec], ...] = (ReferenceSpec, RaggedSpec)
