"""Importing this registers every op (see registry.py)."""

from . import control, dot, elementwise, memory, reduce, shapes, views

__all__ = ["control", "dot", "elementwise", "memory", "reduce", "shapes", "views"]
