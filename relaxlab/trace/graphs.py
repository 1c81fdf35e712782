r"""A program as a graph: who calls whom, and which value goes where. As DOT text.

The text is what tests read and what is shown where nothing can draw it. Counterpart:
``tvm.relax.analysis`` has the parts; TVM draws nothing.

Examples
--------
>>> from relaxlab.script import from_source
>>> mod = from_source('''
... @I.ir_module
... class Module:
...     @R.function
...     def main(x: R.Tensor((2,), "float32")):
...         y = R.exp(x)
...         return y
... ''')
>>> print(dataflow_dot(mod, "main"))
digraph "main" {
  node [shape=box fontname="Courier" fontsize=10]
  n0 [label="x" shape=ellipse]
  n1 [label="y\nexp"]
  n2 [label="return" shape=ellipse]
  n0 -> n1
  n1 -> n2
}
"""

from collections.abc import Iterator
from typing import Final

from relaxlab.ir import GlobalVar, IRModule, Op
from relaxlab.relax.analysis import all_global_vars, free_vars
from relaxlab.relax.expr import (
    Call,
    Expr,
    ExternFunc,
    Function,
    If,
    MatchCast,
    SeqExpr,
    StringImm,
    Var,
    VarBinding,
)

__all__ = ["call_dot", "dataflow_dot"]

_MOST_NODES: Final = 300
_HEAD: Final = '  node [shape=box fontname="Courier" fontsize=10]'
_LABEL: Final = 48


def call_dot(mod: IRModule) -> str:
    """Return which functions of a module use which: kernels in boxes, the others in ellipses."""
    names = {gvar: f"n{number}" for number, gvar in enumerate(mod.functions)}
    lines = ['digraph "calls" {', _HEAD]
    edges = []
    for gvar, func in mod.functions.items():
        shape = " shape=ellipse" if isinstance(func, Function) else ""
        lines.append(f"  {names[gvar]} [label={_quoted(gvar.name_hint)}{shape}]")
        if isinstance(func, Function):
            used = [one for one in all_global_vars(func) if one in names]
            edges += [f"  {names[gvar]} -> {names[one]}" for one in used]
    return "\n".join([*lines, *edges, "}"])


def dataflow_dot(mod: IRModule, function: str) -> str:
    """Return which value of a Relax function is computed from which.

    Parameters
    ----------
    mod, function
        The module, and the name of the function.

    Raises
    ------
    KeyError
        If there is no Relax function of that name.
    """
    found = {gvar.name_hint: func for gvar, func in mod.functions.items()}
    func = found.get(function)
    if not isinstance(func, Function):
        known = [name for name, one in found.items() if isinstance(one, Function)]
        raise KeyError(f"no Relax function {function!r}; there are: {', '.join(known) or 'none'}")
    names: dict[Var, str] = {}
    lines = [f"digraph {_quoted(function)} {{", _HEAD]
    edges: list[str] = []
    for param in func.params:
        names[param] = f"n{len(names)}"
        lines.append(f"  {names[param]} [label={_quoted(param.name)} shape=ellipse]")
    left_out = 0
    for var, value in _bindings(func.body):
        if len(names) >= _MOST_NODES:
            left_out += 1
            continue
        names[var] = f"n{len(names)}"
        lines.append(f"  {names[var]} [label={_quoted(var.name, _words(value))}]")
        edges += [f"  {names[used]} -> {names[var]}" for used in free_vars(value) if used in names]
    end = f"n{len(names)}"
    lines.append(f'  {end} [label="return" shape=ellipse]')
    edges += [f"  {names[used]} -> {end}" for used in free_vars(func.body.body) if used in names]
    if left_out:
        lines.append(f'  rest [label="{left_out} more bindings are left out" shape=plaintext]')
    return "\n".join([*lines, *edges, "}"])


def _bindings(body: Expr) -> Iterator[tuple[Var, Expr]]:
    """Yield the bindings of a body, those of its branches before the If itself."""
    assert isinstance(body, SeqExpr)
    for block in body.blocks:
        for binding in block.bindings:
            match binding:
                case VarBinding(var=var, value=If() as value):
                    yield from _bindings(value.true_branch)
                    yield from _bindings(value.false_branch)
                    yield var, value
                case VarBinding(var=var, value=value) | MatchCast(var=var, value=value):
                    yield var, value
                case _:
                    pass


def _words(value: Expr) -> str:
    """Return what is computed, in a word or two."""
    match value:
        case Call(op=Op(name="relax.call_tir" | "relax.call_tir_inplace"), args=args):
            return f"call_tir {_words(args[0])}"
        case Call(op=Op(name=name), args=(ExternFunc() | StringImm() as callee, *_)):
            return f"{name.removeprefix('relax.')} {_words(callee)}"
        case Call(op=Op(name=name)):
            return name.removeprefix("relax.")
        case Call(op=callee):
            return f"call {_words(callee)}"
        case GlobalVar(name_hint=name) | Var(name=name):
            return name
        case ExternFunc(global_symbol=name):
            return name
        case StringImm(value=text):
            return text
        case _:
            return type(value).__name__


def _quoted(*lines: str) -> str:
    cut = [line if len(line) <= _LABEL else f"{line[: _LABEL - 1]}…" for line in lines]
    escaped = [line.replace("\\", "\\\\").replace('"', '\\"') for line in cut]
    return '"' + "\\n".join(escaped) + '"'
