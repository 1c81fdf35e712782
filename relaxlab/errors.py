"""Error classes shared by every layer.

TVM raises two families of exceptions: Python's own classes (``ValueError``, ``TypeError``, ...)
and ``InternalError`` for broken invariants. We keep the same split, so that a program which
catches an error of TVM catches ours too. Counterpart: ``tvm.error``.

Examples
--------
>>> issubclass(InternalError, RuntimeError)
True
"""

__all__ = ["DiagnosticError", "InternalError"]


class InternalError(RuntimeError):
    """A check or an invariant failed; TVM's class of the same name is a ``RuntimeError`` too."""


class DiagnosticError(RuntimeError):
    """A program text was refused; the message shows the file, the line and a caret."""
