"""The record of the last run on a GPU: which machine, and what each row came to. Committed beside the table."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from conformance.fidelity.judge import Verdict
from conformance.fidelity.row import Device, Row

COMMITTED = Path(__file__).with_name("gpu_record.json")


@dataclass(frozen=True)
class Record:
    """Verdicts of a run on a GPU, by row, each with the digest of the row as it was then."""

    gpu: str
    torch: str
    cuda: str
    date: str
    digests: dict[str, str]
    verdicts: dict[str, Verdict]

    def __str__(self) -> str:
        agreeing = sum(verdict.agrees for verdict in self.verdicts.values())
        return f"{self.gpu}, torch {self.torch}, CUDA {self.cuda}, {self.date}: {agreeing}/{len(self.verdicts)}"

    def outdated(self, rows: Iterable[Row]) -> list[str]:
        """Names of rows that a GPU should judge and that are new or changed since."""
        return [row.name for row in rows if row.judged_on(Device.CUDA) and self.digests.get(row.name) != row.digest]


def new_record(rows: Sequence[Row], verdicts: Sequence[Verdict], gpu: str) -> Record:
    """A record of `verdicts`, reached now on `gpu`."""
    digests = {row.name: row.digest for row in rows}
    return Record(
        gpu=gpu,
        torch=torch.__version__,
        cuda=str(torch.version.cuda),
        date=datetime.date.today().isoformat(),
        digests={verdict.name: digests[verdict.name] for verdict in verdicts},
        verdicts={verdict.name: verdict for verdict in verdicts},
    )


def write(record: Record, path: Path) -> None:
    machine = {"gpu": record.gpu, "torch": record.torch, "cuda": record.cuda, "date": record.date}
    rows = {
        name: {"agrees": verdict.agrees, "digest": record.digests[name], "seen": verdict.seen}
        for name, verdict in record.verdicts.items()
    }
    path.write_text(json.dumps({**machine, "rows": rows}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path = COMMITTED) -> Record | None:
    """The record at `path`, or None where there is none."""
    if not path.exists():
        return None
    data = json.loads(path.read_text(encoding="utf-8"))
    rows = data["rows"]
    return Record(
        gpu=data["gpu"],
        torch=data["torch"],
        cuda=data["cuda"],
        date=data["date"],
        digests={name: row["digest"] for name, row in rows.items()},
        verdicts={name: Verdict(name, row["agrees"], row["seen"]) for name, row in rows.items()},
    )
