"""The CPU's templates, in the order in which they are tried: special patterns first, the generic one last."""

from __future__ import annotations

from schedules.templates.by_hand.recurrent import RecurrentTemplate
from schedules.templates.common.vector_math import vector_math
from schedules.templates.cpu.baseline import baseline
from schedules.templates.cpu.batch_matmul import BatchMatmulTemplate
from schedules.templates.cpu.channel_sums import ChannelSumsTemplate
from schedules.templates.cpu.conv2d import Conv2dTemplate
from schedules.templates.cpu.depthwise import DepthwiseTemplate
from schedules.templates.cpu.elementwise import ElementwiseTemplate
from schedules.templates.cpu.generic import GenericTemplate
from schedules.templates.cpu.matmul import MatmulTemplate
from schedules.templates.cpu.pooling import PoolTemplate
from schedules.templates.cpu.rows import RowsTemplate
from schedules.templates.instructions.dots import byte_form
from schedules.templates.instructions.llvm_target import llvm_target
from schedules.templates.low_bit.low_bit_matmul import LowBitMatmulTemplate
from schedules.templates.low_bit.low_bit_panels import LowBitPanelsTemplate
from schedules.templates.low_bit.low_bit_tiles import LowBitTilesTemplate
from schedules.templates.template import TemplateSet, unchanged

CPU_TEMPLATES = TemplateSet(
    kind="llvm",
    templates=(
        RecurrentTemplate(),
        Conv2dTemplate(),
        DepthwiseTemplate(),
        ChannelSumsTemplate(),
        MatmulTemplate(),
        LowBitMatmulTemplate(),
        LowBitTilesTemplate(),
        LowBitPanelsTemplate(),
        BatchMatmulTemplate(),
        PoolTemplate(),
        ElementwiseTemplate(),
        RowsTemplate(),
        GenericTemplate(),
    ),
    baseline=baseline,
    rename=unchanged,
    expand=vector_math,
    tvm_target=llvm_target,
    half_native=False,
    activations=lambda target: byte_form(target).data,
    by_hand=True,
    channels_last=False,
)
