"""The whole table: every mutant of every room, and the correct subjects that must fail nothing."""

from __future__ import annotations

from conformance.spec import AdapterSpec
from tests.mutants import (
    addresses,
    capture,
    evasions,
    inputs,
    lazy,
    lengths,
    manifest,
    memory,
    ownership,
    policy,
    rfc,
    sequences,
    slots,
    snapshots,
    speed,
    statistics,
    threads,
)
from tests.mutants.addresses import MemoSpec, StatefulSpec
from tests.mutants.base import Mutant, RaggedSpec, ReferenceSpec
from tests.mutants.lazy import LazySpec, LimitedSpec
from tests.mutants.lengths import NoisySpec
from tests.mutants.slots import SlottedSpec
from tests.mutants.snapshots import KeptSpec

MUTANTS: tuple[Mutant, ...] = (
    *rfc.MUTANTS,
    *evasions.MUTANTS,
    *manifest.MUTANTS,
    *capture.MUTANTS,
    *memory.MUTANTS,
    *threads.MUTANTS,
    *statistics.MUTANTS,
    *lengths.MUTANTS,
    *inputs.MUTANTS,
    *ownership.MUTANTS,
    *addresses.MUTANTS,
    *sequences.MUTANTS,
    *slots.MUTANTS,
    *policy.MUTANTS,
    *snapshots.MUTANTS,
    *speed.MUTANTS,
    *lazy.MUTANTS,
)
CORRECT: tuple[type[AdapterSpec], ...] = (
    ReferenceSpec,
    RaggedSpec,
    NoisySpec,
    StatefulSpec,
    SlottedSpec,
    MemoSpec,
    KeptSpec,
    LazySpec,
    LimitedSpec,
)
