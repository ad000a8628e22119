"""Conformance of inner CUDA graphs. `conformance.spec.AdapterSpec` is what an adapter's author subclasses."""
