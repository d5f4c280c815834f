"""Which set of templates serves a target: the one place of ``schedules`` that looks at ``Target.kind``."""

from __future__ import annotations

from schedules.target import Target
from schedules.templates.cpu.cpu_templates import CPU_TEMPLATES
from schedules.templates.cuda.cuda_templates import CUDA_TEMPLATES
from schedules.templates.instructions.llvm_target import features_of
from schedules.templates.template import TemplateSet

TEMPLATE_SETS: dict[str, TemplateSet] = {templates.kind: templates for templates in (CPU_TEMPLATES, CUDA_TEMPLATES)}


def template_set(target: Target) -> TemplateSet:
    """The templates of ``target``'s kind."""
    return TEMPLATE_SETS[target.kind]


BF16_FEATURES = frozenset({"avx512bf16", "bf16"})
"""LLVM's names of the instructions that multiply bf16, on x86 and on AArch64."""


def has_bf16(target: Target) -> bool:
    """Return whether ``target`` has instructions that multiply bf16, as all GPUs have that kernels are built for."""
    return template_set(target).half_native or bool(BF16_FEATURES & features_of(target))


def has_tf32(target: Target) -> bool:
    """Return whether ``target`` has instructions that round float32 operands to TF32, as tensor cores do."""
    return template_set(target).half_native
