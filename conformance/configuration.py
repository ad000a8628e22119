"""The configuration that the runner under test is given: the spec's own, the run's, and a check's switches over it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from conformance.errors import ConformanceError
from conformance.spec import AdapterSpec

if TYPE_CHECKING:
    from conformance.subject import Subject
    from runner import GraphConfig

OPTION = "--graph-config"


def parse(words: Sequence[str]) -> dict[str, Any]:
    """`["lazy=true", "max_lazy_graphs=8"]` as fields of GraphConfig. Values are JSON, or else text."""
    if not words:  # then torch, which the runner imports, can wait
        return {}
    from runner import GraphConfig

    known = [field.name for field in fields(GraphConfig)]
    given: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if key not in known or not equals:
            near = "".join(f"; did you mean {name!r}?" for name in get_close_matches(key, known, n=1))
            raise ConformanceError(f"{OPTION} {word}: expected KEY=VALUE with a key of {', '.join(known)}{near}")
        try:
            given[key] = json.loads(text)
        except ValueError:
            given[key] = text
    return given


def configure(spec: AdapterSpec, given: Mapping[str, Any]) -> None:
    """Give `spec` the run's configuration. Raises :class:`ConformanceError` where it could not be tested so."""
    if not given and spec.config is None:
        return
    from conformance.wrapped import WrapperSpec
    from runner import ConfigError, GraphConfig

    if given and isinstance(spec, WrapperSpec):
        raise ConformanceError(f"{OPTION} goes with adapters on the reference runner, and {spec.name!r} is a wrapper")
    try:
        config = replace(spec.config or GraphConfig(), **given) if given else spec.config
    except ConfigError as error:
        raise ConformanceError(f"{OPTION}: {error}") from error
    spec.config = config
    if config is None or not config.lazy:
        return
    most = max(len(spec.buckets), len(spec.serving_buckets))
    if (config.max_lazy_graphs or 0) < most:
        raise ConformanceError(
            f"max_lazy_graphs={config.max_lazy_graphs} is less than the {most} buckets of {spec.name!r}, which the "
            f"checks call again and again; give at least {most}"
        )


def layered(base: GraphConfig | None, switches: GraphConfig | None, pool: Any) -> GraphConfig | None:
    """`base` with what `switches` say otherwise than the defaults. A given pool is nobody's to limit."""
    if base is None:
        return switches
    if switches is not None:
        set_ = {field.name: getattr(switches, field.name) for field in fields(switches)}
        base = replace(base, **{name: value for name, value in set_.items() if value != getattr(type(base), name)})
    return base if pool is None else replace(base, memory_limit_bytes=None)


def refuse_other_limit(subject: Subject) -> None:
    """Cases are made for `buckets`, so what the memory limit holds must be these, and `left_out` what it does not."""
    from conformance.loudness import SubjectRefused

    captured = getattr(subject.runner, "captured", ())
    missing = [bucket.label for bucket in subject.table.buckets if bucket not in captured]
    surplus = [bucket.label for bucket in captured if bucket not in subject.table.buckets]
    if subject.spec.limited and not getattr(subject.runner, "failed", {}) and (missing or surplus):
        raise SubjectRefused(
            f"{subject.spec.name}: the memory limit captures {', '.join(map(str, captured))}; expected all of "
            f"`buckets` and none of `left_out`: move {', '.join(missing + surplus)}, or change the limit"
        )
