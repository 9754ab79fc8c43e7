"""Indexes: the labels of highest inner product with a text, exact or approximate, behind one base class."""

from unidex.index.base import KINDS, Index, build, load

__all__ = ["KINDS", "Index", "build", "load"]
