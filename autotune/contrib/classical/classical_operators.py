"""The operators of classical machine learning; importing this module registers them."""

from __future__ import annotations

from autotune.contrib.classical import feature_ops, linear_models, tree_ensembles

FAMILIES = (feature_ops, linear_models, tree_ensembles)
"""The modules that register them."""
