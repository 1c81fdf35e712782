"""Kernels as NumPy text: no Python loop over elements, and nothing to install.

Read in this order: ``generate`` (a function around a body), ``statements``, ``nest``, then
``stores`` and ``reduce``, which use ``vector`` for expressions. ``library.source(name)`` shows
what came out. Counterpart: TVM's LLVM back end, where nothing but NumPy is at hand.
"""

from relaxlab.codegen.numpy.generate import generate

__all__ = ["generate"]
