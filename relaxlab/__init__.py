"""relaxlab: a glass-box Relax.

A compiler, a four-opcode register VM and a paged KV cache, in Python, that you can stop at every
instruction, run backwards, and look into from a notebook. The names are those of Apache TVM 0.27,
so that a program moves between the two by changing its imports. Counterpart: the package ``tvm``.

Importing this package is cheap: a sub-package is loaded when its name is first used, so that a
process which only runs executables never loads the compiler.

How a value travels
-------------------
A class under ``@I.ir_module`` is read by ``relaxlab.script`` and becomes an ``IRModule``
(``relaxlab.ir``; the language is in ``relaxlab.relax``, kernels in ``relaxlab.tirx``).
``relax.build`` runs a pipeline, which is a list of passes (``relaxlab.relax.transform``, one file
each). Operators become kernels with ``relaxlab.topi`` and ``relaxlab.te``; what is left as
PrimFuncs goes to ``relaxlab.codegen``, which makes NumPy or machine code of it. What is left as
Relax functions becomes bytecode: ``relax.codegen_vm`` and ``ExecBuilder`` write a
``VMExecutable``.

A ``VirtualMachine`` (``relaxlab.runtime.vm``) verifies it, links it once, and walks through it in
the ``RunLoop``; builtins and kernels are ordinary calls. It tells an observer what happens. A
``Recorder`` (``relaxlab.trace``) keeps these events, a ``Timeline`` folds them to the state at any
step, a ``DebugSession`` moves both ways; ``relaxlab.widgets`` draws the same state that
``print(session)`` says.

A language model (``relaxlab.models``) is such a program. Its keys and values lie in the pages of
``relaxlab.runtime.kv``, which tells events of its own; ``relaxlab.serve`` decides which request
runs, which prefix is kept, and who has to go.

Dependencies point one way, and a check holds them there: the runtime knows nothing of the
compiler, and nothing below ``trace`` knows a widget.

Working on it
-------------
``bash .ci/run`` is what must hold before a change lands: format, lint, strict types, import
contracts, every test in a fresh environment. A pass, an operator, a builtin, a command, a
chapter's exercises: each is one file, found by its name. To add one, add the file and its test in
the mirrored folder. Behaviour that differs from TVM's is a row in the README's table, with a test;
a docstring says shapes, units, errors and source. Texts that TVM prints are compared to the byte
with recorded ones (``tests/golden``), and with the real TVM in ``tests/oracle``.

Examples
--------
>>> import relaxlab as tvm
>>> str(tvm.cpu())
'cpu:0'
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relaxlab import errors as error
    from relaxlab import instrument as instrument
    from relaxlab import ir as ir
    from relaxlab import models as models
    from relaxlab import relax as relax
    from relaxlab import runtime as runtime
    from relaxlab import script as script
    from relaxlab import target as target
    from relaxlab import te as te
    from relaxlab import testing as testing
    from relaxlab import tirx as tirx
    from relaxlab import topi as topi
    from relaxlab import trace as trace
    from relaxlab import transform as transform
    from relaxlab import widgets as widgets
    from relaxlab.ir import IRModule as IRModule
    from relaxlab.relax import build as compile
    from relaxlab.runtime import DataType as DataType
    from relaxlab.runtime import cpu as cpu
    from relaxlab.runtime import cuda as cuda
    from relaxlab.runtime import device as device
    from relaxlab.runtime import get_global_func as get_global_func
    from relaxlab.runtime import register_global_func as register_global_func

__version__ = "0.1.0"

__all__ = [
    "DataType",
    "IRModule",
    "__version__",
    "compile",
    "cpu",
    "cuda",
    "device",
    "error",
    "get_global_func",
    "instrument",
    "ir",
    "models",
    "register_global_func",
    "relax",
    "runtime",
    "script",
    "target",
    "te",
    "testing",
    "tirx",
    "topi",
    "trace",
    "transform",
    "widgets",
]

# Where each lazy name lives: (module, attribute), with None for the module itself.
_LAZY: dict[str, tuple[str, str | None]] = {
    "DataType": ("relaxlab.runtime", "DataType"),
    "IRModule": ("relaxlab.ir", "IRModule"),
    "compile": ("relaxlab.relax", "build"),
    "cpu": ("relaxlab.runtime", "cpu"),
    "cuda": ("relaxlab.runtime", "cuda"),
    "device": ("relaxlab.runtime", "device"),
    "error": ("relaxlab.errors", None),
    "get_global_func": ("relaxlab.runtime", "get_global_func"),
    "instrument": ("relaxlab.instrument", None),
    "ir": ("relaxlab.ir", None),
    "models": ("relaxlab.models", None),
    "register_global_func": ("relaxlab.runtime", "register_global_func"),
    "relax": ("relaxlab.relax", None),
    "runtime": ("relaxlab.runtime", None),
    "script": ("relaxlab.script", None),
    "target": ("relaxlab.target", None),
    "te": ("relaxlab.te", None),
    "testing": ("relaxlab.testing", None),
    "tirx": ("relaxlab.tirx", None),
    "topi": ("relaxlab.topi", None),
    "trace": ("relaxlab.trace", None),
    "transform": ("relaxlab.transform", None),
    "widgets": ("relaxlab.widgets", None),
}


def __getattr__(name: str) -> object:
    """Load the sub-package or the object behind a lazy name (PEP 562)."""
    try:
        module_name, attribute = _LAZY[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    module = import_module(module_name)
    value: object = module if attribute is None else getattr(module, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
