"""Checks of the course's exercises, which explain a wrong answer without giving the right one.

Every exercise has a name, ``CHAPTER.qNUMBER``, and takes one answer: a module, a machine, a number,
whatever its text asks for. A chapter is a file here. There is no TVM counterpart.

Examples
--------
>>> exercises()[0]
'00.q1'
>>> try:
...     check("00.q1", 7)
... except WrongAnswer as wrong:
...     print(wrong)
00.q1 is not solved yet.
  expected: an IRModule with a function main
  got: 7 (int)
  where to look: the class under `@I.ir_module` is the answer, not what it computes
"""

from relaxlab.exercises import (  # noqa: F401 - a chapter registers its exercises
    attention,
    bytecode,
    file,
    graphs,
    kernels,
    language,
    machine,
    memory,
    modes,
    pages,
    passes,
    serving,
    tour,
)
from relaxlab.exercises.exercise import WrongAnswer, check, exercises

__all__ = ["WrongAnswer", "check", "exercises"]
