"""What CUDA does, as one table of small programs, judged on the emulation and on a GPU alike.

`python -m conformance.fidelity` judges it here; see docs/emulation.md.
"""

from conformance.fidelity.judge import Verdict, judge
from conformance.fidelity.row import Device, Only, Refuses, Returns, Row
from conformance.fidelity.table import ROWS

__all__ = ["ROWS", "Device", "Only", "Refuses", "Returns", "Row", "Verdict", "judge"]
