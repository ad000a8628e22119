"""One subject in a process that has done nothing yet: `python -m conformance.instruments.fresh DOOR DEVICE SEED`.

The child prints one line of JSON: `{"captures": 3, "replays": 3}`, with `problem` where the promise is broken, or
`{"error": ...}` where the subject could not be built at all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.registry import load_adapters
from conformance.spec import AdapterSpec
from runner import GraphConfig

if TYPE_CHECKING:
    from conformance.subject import Subject

CONFIG = "AUDIOGRAPH_GRAPH_CONFIG"  # how the run's configuration reaches the process
PATIENCE = 600.0  # seconds; packages around a model take many to import, more on a busy machine


class FreshProcessError(RuntimeError):
    """The other process did not say what it found."""


def door_of(spec: AdapterSpec) -> str | None:
    """What `--adapter=` would say to mean `spec` in another process: its file, or `module:ATTRIBUTE`."""
    cls = type(spec)
    module = sys.modules.get(cls.__module__)
    file = getattr(module, "__file__", None)
    if cls.__module__.startswith("_audiograph_adapters") and file:
        return str(Path(file).resolve())
    if getattr(module, cls.__name__, None) is cls:
        return f"{cls.__module__}:{cls.__name__}"
    for name, other in list(sys.modules.items()):  # a class that a function made stands where its maker put it
        for attribute, value in list(getattr(other, "__dict__", {}).items()):
            if (value is cls or value is spec) and name != "__main__":
                return f"{name}:{attribute}"
    return None


def _as_json(config: GraphConfig | None) -> str:
    """The fields that differ from the defaults."""
    found = {} if config is None else {field.name: getattr(config, field.name) for field in fields(config)}
    changed = {name: value for name, value in found.items() if value != getattr(GraphConfig, name)}
    mode = changed.get("cudagraph_mode")
    return json.dumps({**changed, "cudagraph_mode": getattr(mode, "name", mode)} if mode is not None else changed)


def in_fresh_process(subject: Subject) -> dict[str, Any]:
    """What a fresh process finds for the subject's spec, on the same kind of device and with the same seed."""
    door = door_of(subject.spec)
    checkpoint = [str(subject.checkpoint)] if subject.checkpoint else []
    command = [sys.executable, "-m", __name__, str(door), subject.machine.device, str(subject.seed), *checkpoint]
    path = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": path, CONFIG: _as_json(subject.spec.config)}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment, check=False)
    except subprocess.TimeoutExpired as error:
        raise FreshProcessError(f"no answer in {PATIENCE:.0f} s: {' '.join(command)}") from error
    lines = done.stdout.strip().splitlines()
    try:
        told: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, ValueError) as error:
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise FreshProcessError(f"exit {done.returncode} without an answer; the last line it wrote: {last}") from error
    if "error" in told:
        raise FreshProcessError(told["error"])
    return told


def _judge(door: str, device: str, seed: int, checkpoint: Path | None) -> dict[str, Any]:
    import importlib

    (loaded,) = load_adapters([door])
    for requirement in loaded.spec.requires:
        importlib.import_module(requirement.module)
    from conformance.configuration import configure
    from conformance.device import open_device
    from conformance.subject import Subject

    configure(loaded.spec, json.loads(os.environ.get(CONFIG, "{}")))
    with open_device(device) as machine:
        subject = Subject(loaded.spec, machine, seed, checkpoint)
        try:
            return first_calls(subject)
        finally:
            subject.close()


def first_calls(subject: Subject) -> dict[str, Any]:
    """Warm up and call each bucket once. Says how many captures and replays were seen, and the first `problem`."""
    from conformance.catalogue import CheckFailed
    from conformance.compare import Advice, require_equal

    buckets = subject.spec.buckets
    captured = subject.warmup()
    told: dict[str, Any] = {"captures": captured.captures, "replays": 0}
    if captured.captures != len(buckets):
        failures = (subject.stats() or {}).get("capture_failures") or {}
        why = "; ".join(f"{bucket}: {text.splitlines()[0]}" for bucket, text in failures.items())
        return {
            **told,
            "problem": f"{captured.captures} of {len(buckets)} buckets were captured ({why or 'no reason'})",
        }
    advice = Advice("", "")
    for bucket in buckets:
        inputs = subject.draw(bucket, "fresh process")
        try:
            subject.fresh_start()
            with subject.observe() as seen:
                raw = subject.raw(inputs)
            expected = subject.eager(inputs)
            require_equal("CG003", subject, subject.named(raw), expected, advice)
        except CheckFailed as failed:
            return {**told, "problem": f"the first call at {dict(bucket)}: {failed.found}"}
        except Exception as error:
            return {**told, "problem": f"the first call at {dict(bucket)} raised {type(error).__name__}: {error}"}
        told["replays"] += seen.replays
        if not seen.replays:
            return {**told, "problem": f"the first call at {dict(bucket)} did not replay"}
    return told


def main(arguments: list[str]) -> int:
    door, device, seed, *checkpoint = arguments
    try:
        told = _judge(door, device, int(seed), Path(checkpoint[0]) if checkpoint else None)
    except Exception as error:
        told = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
