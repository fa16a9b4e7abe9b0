"""`lower_module` with every op registered: importing an op's file is what registers it."""

from __future__ import annotations

from . import atomics, control, dot, elementwise, memory, messages, reduce, shapes, views
from .module import lower_module

TOPICS = (atomics, control, dot, elementwise, memory, messages, reduce, shapes, views)

__all__ = ["TOPICS", "lower_module"]
