"""Models for tests and benchmarks: real topologies and generated ones, all with seeded random weights."""

from tests.models.catalog import MODELS, TINY, build, cached, save
from tests.models.reference import random_inputs, run_reference

__all__ = ["MODELS", "TINY", "build", "cached", "random_inputs", "run_reference", "save"]
