"""The reference runner for inner CUDA graphs: describe a submodule with GraphAdapter, serve it with GraphRunner."""

from runner.adapter import EXACT, PADDED, AxisMode, GraphAdapter, InputSpec, OutputSpec
from runner.buckets import Bucket, BucketTable
from runner.config import GraphConfig, decide_enabled
from runner.errors import AdapterError, ConfigError
from runner.lengths import CapturedMinusPadding, Custom, LengthContract, Nominal, PerRowLengths
from runner.runner import GraphRunner
from runner.statistics import Fallback, FallbackReason, GraphStatistics

__all__ = ["EXACT", "PADDED", "AxisMode", "Bucket", "BucketTable", "GraphAdapter", "InputSpec", "OutputSpec"]
__all__ += ["AdapterError", "ConfigError", "Custom", "GraphConfig", "GraphRunner", "GraphStatistics", "decide_enabled"]
__all__ += ["CapturedMinusPadding", "Fallback", "FallbackReason", "LengthContract", "Nominal", "PerRowLengths"]
