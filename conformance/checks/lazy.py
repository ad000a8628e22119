"""CG1: a runner that captures a bucket when it is first called for is right in that very call."""

from __future__ import annotations

import threading

import torch

from conformance import cases
from conformance.cases import Sizes
from conformance.catalogue import CheckFailed, Evidence, check
from conformance.compare import Advice, require_equal
from conformance.evidence import call
from conformance.instruments.outer import outer_capture
from conformance.spec import AdapterSpec
from conformance.subject import Inputs, Outputs, Subject, snapshot

CALLERS = 3


def _at_warm_up(spec: AdapterSpec) -> str | None:
    return None if spec.lazy else f"{spec.name} captures at warm-up"


@check(
    "CG106",
    "first-call",
    "the call that captures is right, captures once, and never inside another capture",
    cases=cases.exact_and_padded,
    not_applicable=_at_warm_up,
)
def first_call(subject: Subject, sizes: Sizes) -> Evidence:
    """Contract: with lazy capture, warm-up captures nothing; a first call inside an outer capture runs eagerly; the
    first call outside captures once, and equals eager in samples that stay the caller's; callers that come at the same
    time share one capture.

    Why it matters: the call that captures is the one that returns memory which nothing wrote, stalls others that
    capture the same again, or breaks the capture around it. https://github.com/vllm-project/vllm/pull/52115

    How it is checked: a second runner is warmed up and not called. A real capture is put around its first call; then
    it is called twice outside. A third runner is called for the first time by three threads at once.

    If it fails: replay after capturing and return what the replay wrote; hold one lock from the look at the table to
    the entry in it; ask `torch.cuda.is_current_stream_capturing()` before.
    """
    advice = Advice(
        "the result of the capturing call was never computed: a capture executes nothing  (class D)",
        "replay the new graph, and return a clone of what it wrote",
    )
    with subject.sibling(warm=False) as other:
        _warm_up_without_calls(other)
        with outer_capture(other, "CG106", subject.draw(sizes, "CG106 outer")):
            pass
        inputs = subject.draw(sizes, "CG106 first")
        found, seen = call(other, "CG106", inputs)
        if seen.captures != 1:
            raise _captured(f"{seen.captures} captures were observed in the first call at {sizes}", "1")
        require_equal("CG106", subject, found, subject.eager(inputs), advice)
        kept = snapshot(found)
        _, seen = call(other, "CG106", subject.draw(sizes, "CG106 second"))
        if seen.captures or not seen.replays:
            raise _captured(f"{seen.captures} captures were observed in the second call at {sizes}", "a replay")
        require_equal("CG106", subject, found, kept, Advice("the first result is static memory", "clone it"))
    if subject.spec.capabilities.threads.supported and not subject.spec.capabilities.state.supported:
        _require_single_flight(subject, sizes, advice)
    return {"captures": 1, "callers": CALLERS}


def _warm_up_without_calls(other: Subject) -> None:
    with other.observe() as seen:
        other.runner.warmup()
    if seen.captures:
        raise _captured(f"{seen.captures} captures were observed at warm-up", "none")


def _require_single_flight(subject: Subject, sizes: Sizes, advice: Advice) -> None:
    with subject.sibling(warm=False) as other:
        _warm_up_without_calls(other)
        inputs = [subject.draw(sizes, f"CG106 caller {number}") for number in range(CALLERS)]
        results: dict[int, Outputs] = {}
        errors: list[str] = []
        together = threading.Barrier(CALLERS)

        def serve(number: int, given: Inputs) -> None:
            try:
                with torch.no_grad():
                    together.wait()
                    results[number] = other.proceed(given)
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}")

        threads = [threading.Thread(target=serve, args=pair) for pair in enumerate(inputs)]
        with other.observe() as seen:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if errors:
            raise _captured(f"a first call in a thread raised {errors[0]}", "a result")
        if seen.captures != 1:
            raise _captured(f"{seen.captures} captures were observed when {CALLERS} threads called {sizes} first", "1")
        if not subject.spec.capabilities.randomness.supported:
            for number, found in results.items():
                require_equal("CG106", subject, found, subject.eager(inputs[number]), advice)


def _captured(found: str, expected: str) -> CheckFailed:
    return CheckFailed(
        "CG106",
        f"{found}; expected {expected}",
        likely="nothing holds the table from the look into it to the new entry  (class L, M)",
        cure="hold one lock from the look at the table to the entry in it",
    )
