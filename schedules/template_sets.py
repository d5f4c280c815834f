"""Which set of templates serves a target: the one place of ``schedules`` that looks at ``Target.kind``."""

from __future__ import annotations

from schedules.target import Target
from schedules.templates.cpu.cpu_templates import CPU_TEMPLATES
from schedules.templates.cuda.cuda_templates import CUDA_TEMPLATES
from schedules.templates.template import TemplateSet

TEMPLATE_SETS: dict[str, TemplateSet] = {templates.kind: templates for templates in (CPU_TEMPLATES, CUDA_TEMPLATES)}


def template_set(target: Target) -> TemplateSet:
    """The templates of ``target``'s kind."""
    return TEMPLATE_SETS[target.kind]
