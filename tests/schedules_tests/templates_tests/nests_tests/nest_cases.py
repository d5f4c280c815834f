"""The nest of a test case's config, for any template that has nests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import tirx

from schedules.config import Config
from schedules.templates.common.structure import find_anchor
from schedules.templates.cpu.conv2d import Conv2dTemplate, in_few_copies
from schedules.templates.cpu.depthwise import DepthwiseTemplate
from schedules.templates.cpu.matmul import MatmulTemplate, in_whole_tiles
from schedules.templates.cpu.pooling import PoolTemplate
from schedules.templates.nests.loop_nest import Nest
from tests.schedules_tests.cases import CASES

TEMPLATES: Mapping[str, Any] = {
    template.name: template for template in (Conv2dTemplate(), DepthwiseTemplate(), PoolTemplate(), MatmulTemplate())
}
NESTED = [case for case in CASES if case.template in TEMPLATES]


def is_direct(config: Config) -> bool:
    """Whether a config has a nest: Winograd's and AMX's algorithms have none."""
    return dict(config.items).get("algorithm", 0) == 0


def nest_of(func: tirx.PrimFunc, config: Config, whole: bool = True) -> Nest:
    """The nest of a config; with ``whole`` that which the compiler gets, whose tiles divide the rows of a matrix."""
    template = TEMPLATES[config.space.partition("/")[0]]
    anchor = find_anchor(func, template.name)
    assert anchor is not None
    if whole and template.name == "matmul":
        config = in_whole_tiles(config)
    elif whole and template.name == "conv2d":
        config = in_few_copies(config, anchor.spatial[3])
    nest: Nest = template.nest(anchor, config)
    return nest
