"""Mistakes in what is counted, and in what a caller can tell of a result without listening to it."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import torch

from runner import Bucket, Fallback, FallbackReason, GraphRunner, GraphStatistics
from tests.mutants.base import Mutant, ReferenceAdapter, ReferenceSpec, with_adapter, with_runner


class _CountingRunner(GraphRunner):
    counts: type[GraphStatistics]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.statistics = self.counts()


def _counting(counts: type[GraphStatistics]) -> type[GraphRunner]:
    return type(f"{counts.__name__}Runner", (_CountingRunner,), {"counts": counts})


class _ByTwos(list[int]):
    def __setitem__(self, at: Any, value: Any) -> None:
        super().__setitem__(at, value + 1)


class _Twice(GraphStatistics):
    def served(self, bucket: Bucket, sizes: Mapping[str, int]) -> list[int]:
        elements = prod(sizes.values())
        made = list if elements == bucket.work else _ByTwos
        return self._served.setdefault((bucket, elements), made([0]))


class _WrongBucket(GraphStatistics):
    def served(self, bucket: Bucket, sizes: Mapping[str, int]) -> list[int]:
        if str(bucket) == "b1-f8":
            return super().served(
                Bucket({"batch": 1, "frames": 4}.items()), {**sizes, "frames": min(sizes["frames"], 4)}
            )
        return super().served(bucket, sizes)


class _NoPadding(GraphStatistics):
    def served(self, bucket: Bucket, sizes: Mapping[str, int]) -> list[int]:
        return super().served(bucket, bucket)


class _OneReason(GraphStatistics):
    def record_miss(self, fallback: Fallback | None) -> None:
        hidden = fallback is not None and fallback.reason is FallbackReason.OUTER_CAPTURE
        super().record_miss(Fallback(FallbackReason.NO_BUCKET) if hidden else fallback)


class _SilentWhenOff(GraphStatistics):
    def record_miss(self, fallback: Fallback | None) -> None:
        if fallback is None or fallback.reason is not FallbackReason.DISABLED:
            super().record_miss(fallback)


class ReturnsParameters(ReferenceAdapter):
    """Results of the graph path are parameters, which a module that keeps one would register and save.

    https://github.com/pytorch/pytorch/pull/184699
    """

    def unload(self, outputs: Any, inputs: Any, actual: Mapping[str, int], bucket: Mapping[str, int]) -> Any:
        wav = super().unload(outputs, inputs, actual, bucket)["wav"]
        return {"wav": torch.nn.Parameter(wav, requires_grad=False)}


class AlternatesItsLayout(ReferenceAdapter):
    """Every second result is a view into a buffer of twice its width.

    https://github.com/vllm-project/vllm-omni/issues/4924
    """

    turn = 0

    def unload(self, outputs: Any, inputs: Any, actual: Mapping[str, int], bucket: Mapping[str, int]) -> Any:
        self.turn += 1
        wav: torch.Tensor = super().unload(outputs, inputs, actual, bucket)["wav"]
        return {"wav": wav if self.turn % 2 else torch.stack([wav, wav], dim=-1)[..., 0]}


MUTANTS = (
    Mutant(with_adapter(ReferenceSpec, ReturnsParameters), frozenset({"CG901"})),
    Mutant(with_adapter(ReferenceSpec, AlternatesItsLayout), frozenset({"CG209", "CG901"})),
    *(
        Mutant(with_runner(_counting(counts), name, f"{doc} {url}"), frozenset(codes))
        for counts, name, codes, doc, url in (
            (
                _Twice,
                "CountsPaddedHitsTwice",
                {"CG701"},
                "A padded hit is counted at lookup and again at replay.",
                "https://github.com/FastCrest/tether/issues/283",
            ),
            (
                _WrongBucket,
                "CountsUnderAnotherBucket",
                {"CG701"},
                "Hits of one bucket are counted under another.",
                "https://github.com/vllm-project/vllm/issues/43145",
            ),
            (
                _NoPadding,
                "CountsNoPadding",
                {"CG701"},
                "The padded share is computed from the bucket alone.",
                "https://github.com/vllm-project/vllm/pull/36165",
            ),
            (
                _OneReason,
                "GivesAnotherReason",
                {"CG701"},
                "A call inside an outer capture is counted as one that no bucket holds.",
                "https://github.com/vllm-project/vllm-omni/pull/6639",
            ),
            (
                _SilentWhenOff,
                "CountsNothingWhenOff",
                {"CG403", "CG701"},
                "A disabled runner counts no calls.",
                "https://github.com/vllm-project/vllm-omni/pull/3732",
            ),
        )
    ),
)
