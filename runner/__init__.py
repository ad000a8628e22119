"""The reference runner for inner CUDA graphs: describe a submodule with GraphAdapter, serve it with GraphRunner."""

from runner.adapter import EXACT, PADDED, AxisMode, GraphAdapter, InputSpec, OutputSpec
from runner.buckets import Bucket, BucketTable
from runner.config import GraphConfig
from runner.errors import AdapterError, ConfigError
from runner.lengths import CapturedMinusPadding, Custom, LengthContract, Nominal, PerRowLengths
from runner.policy import EnableDecision, Fallback, FallbackReason, decide_enabled
from runner.runner import GraphRunner
from runner.statistics import GraphStatistics

__all__ = ["EXACT", "PADDED", "AxisMode", "Bucket", "BucketTable", "GraphAdapter", "InputSpec", "OutputSpec"]
__all__ += ["AdapterError", "ConfigError", "GraphConfig", "GraphRunner", "GraphStatistics"]
__all__ += ["CapturedMinusPadding", "Custom", "LengthContract", "Nominal", "PerRowLengths"]
__all__ += ["EnableDecision", "Fallback", "FallbackReason", "decide_enabled"]
