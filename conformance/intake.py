"""From pytest's options to a run: everything that was asked for is loaded and judged before the first case."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from conformance.errors import ConformanceError
from conformance.gpus import take_own_gpu
from conformance.options import Options, Speed
from conformance.registry import LoadedAdapter, load_adapters
from conformance.report.writers import WRITERS, require_reports
from conformance.session import KitSession
from conformance.shadowing import KIT_FIXTURES, refuse_shadowing_conftests

UPDATES = ("update_snapshots", "update_new_snapshots_only")  # syrupy's, absent where it is not loaded


def kit_for(config: pytest.Config) -> KitSession:
    """The session of what was asked for. Raises `pytest.UsageError` where any of it cannot be had."""
    try:
        _refuse_foreign_runner()
        if hasattr(config, "workerinput") and config.getoption("conformance_device") != "emulated":
            import torch  # no earlier: what is wrong with a run is told in a fraction of the time that torch takes

            take_own_gpu(os.environ.get("PYTEST_XDIST_WORKER"), os.environ, torch.cuda.device_count())
        _refuse_seed(config.getoption("conformance_seed"))
        adapters = load_adapters(config.getoption("conformance_adapters"))
        options = Options(
            graph_device=config.getoption("conformance_device"),
            seed=config.getoption("conformance_seed"),
            checkpoint=_checkpoint(config.getoption("conformance_checkpoint"), adapters),
            allow_known=config.getoption("conformance_allow_known"),
            speed=_speed(config),
            graph_config=tuple(config.getoption("conformance_graph_config")),
            update_snapshots=any(config.getoption(option, False) for option in UPDATES),
        )
        kit = KitSession(options, adapters)
        require_reports(report_files(config))
        assert kit.cases  # listed now: a spec that no check can read is a usage error too
        assert kit.expectations is not None  # read now: a file that cannot be trusted stops the run
    except ConformanceError as error:
        raise pytest.UsageError(" ".join(str(error).split())) from error
    _refuse_shadowed_fixtures(config)
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        refuse_shadowing_conftests(Path(argument.partition("::")[0]) for argument in config.args)
    return kit


def report_files(config: pytest.Config) -> dict[str, Path]:
    """The reports that were asked for, by kind."""
    given = {kind: config.getoption(f"--conformance-{kind}") for kind in WRITERS}
    return {kind: Path(value).expanduser() for kind, value in given.items() if value is not None}


def _checkpoint(given: str | None, adapters: tuple[LoadedAdapter, ...]) -> Path | None:
    if given is None:
        return None
    path = Path(given).expanduser()
    names = ", ".join(adapter.spec.name for adapter in adapters)
    if len(adapters) != 1:
        raise ConformanceError(f"--adapter-checkpoint goes with one adapter; {len(adapters)} were given: {names}")
    if not adapters[0].spec.loads_checkpoints:
        raise ConformanceError(f"adapter {names!r} loads no checkpoints; leave --adapter-checkpoint out")
    if not path.exists():
        raise ConformanceError(f"--adapter-checkpoint={given}: no such file or folder")
    return path.resolve()


def _refuse_seed(seed: int) -> None:
    if not 0 <= seed < 2**32:
        raise ConformanceError(f"--conformance-seed={seed}: expected a number from 0 to {2**32 - 1}")


def _speed(config: pytest.Config) -> Speed:
    """Whether pytest-benchmark was asked to run: its options decide, where it is loaded."""
    alone, too = (bool(config.getoption(name, False)) for name in ("benchmark_only", "benchmark_enable"))
    if not alone and (not too or config.getoption("benchmark_skip", False)):
        return Speed.WITHOUT
    spread_out = config.getoption("dist", "no") != "no" or hasattr(config, "workerinput")
    if spread_out or (config.getoption("benchmark_disable") and not too):
        raise ConformanceError("benchmarks run in one process: leave out -n (pytest-xdist) and --benchmark-disable")
    return Speed.ALONE if alone else Speed.TOO


def _refuse_foreign_runner() -> None:
    """A folder named `runner` beside an author's conftest.py would be imported in place of the kit's own."""
    found = importlib.util.find_spec("runner")
    here = Path(__file__).resolve().parent.parent
    origin = Path(found.origin).resolve() if found and found.origin else None
    if origin is None or not origin.is_relative_to(here / "runner"):
        place = origin or next(iter((found and found.submodule_search_locations) or ("nothing",)))
        raise ConformanceError(f"`import runner` finds {place}, not audiograph's ({here / 'runner'}); rename yours")


def _refuse_shadowed_fixtures(config: pytest.Config) -> None:
    for plugin in config.pluginmanager.get_plugins():
        for value in list(getattr(plugin, "__dict__", {}).values()):
            if type(value).__name__ != "FixtureFunctionDefinition":
                continue
            function = value._get_wrapped_function()
            if value.name in KIT_FIXTURES and function.__module__ != "conformance.plugin":
                place = f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"
                raise pytest.UsageError(f"{place} defines the fixture {value.name!r}, which is audiograph's; rename it")
