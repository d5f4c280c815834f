"""What is claimed for TVM's own design spaces: functions that reduce and whose first sketches can be replayed."""

from __future__ import annotations

import pytest
from tvm import relax

from schedules.templates.common.sketch_template import SketchTemplate
from schedules.templates.cpu.generic import GenericTemplate
from tests.schedules_tests.programs import from_relax

TEMPLATES = [GenericTemplate()]


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_a_product_is_claimed_with_its_function(template: SketchTemplate) -> None:
    func = from_relax(relax.op.matmul, (8, 16), (16, 32))
    program = template.match(func)
    assert program is not None
    assert (program.func.same_as(func), program.spatial, program.reduction) == (True, (8, 32), (16,))
    assert template.space(program, template.probe).initial


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_what_does_not_reduce_is_not_claimed(template: SketchTemplate) -> None:
    assert template.match(from_relax(relax.op.nn.relu, (4, 4))) is None
