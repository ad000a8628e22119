"""The table itself: every group of rows, in the order of the promises in docs/emulation.md."""

from __future__ import annotations

from conformance.fidelity.row import Row
from conformance.fidelity.rows import (
    addresses,
    captures,
    device_facts,
    devices,
    failures,
    host_syncs,
    memory,
    operators,
    pools,
    randomness,
    replays,
    streams,
)

ROWS: tuple[Row, ...] = tuple(
    row
    for module in (
        captures,
        replays,
        addresses,
        host_syncs,
        failures,
        pools,
        randomness,
        streams,
        devices,
        device_facts,
        memory,
        operators,
    )
    for group in module.GROUPS
    for row in group.rows
)
