"""A toy catalogue, device and subject: the plugin's mechanics are tested on them, without torch's cost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

TOY_KIT = '''
"""Replaces the catalogue, the device and the subject by toys. Loaded with `-p toy_kit`, in workers too."""

import contextlib
import pathlib
import sys
import time
import types

import conformance.listing
from conformance.catalogue import Case, Check, CheckFailed, Inconclusive, Level, Machine

log = pathlib.Path(__file__).with_name("log.txt")


def note(text):
    with log.open("a") as file:
        file.write(text + "\\n")


@contextlib.contextmanager
def open_device(choice):
    note(f"open device {choice}")
    name = "real CUDA" if choice == "cuda" else "emulated CUDA"
    yield Machine("cuda" if choice == "cuda" else "emulated", name, "2.13.0", graphs=choice != "cuda")
    note("close device")


class Subject:
    def __init__(self, spec, seed, checkpoint):
        if getattr(spec, "broken", False):
            raise RuntimeError("no weights today")
        self.spec, self.seed, self.checkpoint = spec, seed, checkpoint
        note(f"open {spec.name} seed {seed} checkpoint {checkpoint and checkpoint.name}")

    def settle(self):
        pass

    def close(self):
        note(f"close {self.spec.name}")
        if getattr(self.spec, "close_fails", False):
            raise RuntimeError("the pool is gone")


def toy(name, **members):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(members)


toy("conformance.device", open_device=open_device)
toy("conformance.subject", open_subject=lambda spec, machine, seed, checkpoint: Subject(spec, seed, checkpoint))


def exact(subject, frames):
    note(f"case {subject.spec.name} {frames}")
    behave = getattr(subject.spec, "behave", {}).get(frames)
    if behave == "fail":
        raise CheckFailed(
            "CG201", "wrong from sample 0", likely="the trim is wrong", cure="trim by 555", evidence={"sample": 0}
        )
    if behave == "error":
        raise ZeroDivisionError("oops")
    if behave == "open":
        raise Inconclusive("eager varies by itself")
    if behave == "mute":
        return None
    if behave == "picture":
        return {"max_error": 0.5, "waveform": {"found": [0.1] * 400}}
    if behave == "slow":
        time.sleep(2)
    return {"replays": 1}


def check(code, slug, frames, not_applicable=lambda spec: None):
    cases = [Case(f"b1-f{n}", {"frames": n}) for n in frames]
    return Check(code, slug, f"{slug} holds", Level.CORE, exact, lambda spec: cases, not_applicable)


conformance.listing.load_catalogue = lambda: (
    check("CG201", "exact-bucket", [8, 80]),
    check("CG204", "batch", [3], lambda spec: "no batch axis" if getattr(spec, "single", False) else None),
)
'''

SPEC = """
from conformance.spec import AdapterSpec

class Toy(AdapterSpec):
    name = {name!r}
    requires = ()
    def validate(self):
        pass
{body}
"""


WriteSpec = Callable[..., str]
RunToy = Callable[..., pytest.RunResult]


def last_line(result: pytest.RunResult) -> str:
    return result.outlines[-1]


def log_of(pytester: pytest.Pytester) -> list[str]:
    path = pytester.path / "log.txt"
    return path.read_text().splitlines() if path.exists() else []
