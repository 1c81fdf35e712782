"""Passes over one Relax function, or one dataflow block, at a time.

A :class:`FunctionPass` sees every Relax function of a module and none of the kernels; a
:class:`DataflowBlockPass` sees every dataflow block and must leave what is visible outside the
block alone. The decorators make either from a plain function or a class.
Counterpart: ``tvm.relax.transform`` (``FunctionPass``, ``function_pass``, ...).

Examples
--------
>>> @function_pass(opt_level=0)
... def same(func, mod, ctx):
...     return func
>>> same.info.name
'same'
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from relaxlab.errors import InternalError
from relaxlab.ir import (
    Expr,
    IRModule,
    Pass,
    PassContext,
    PassInfo,
    Var,
    replace,
)
from relaxlab.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Function,
    If,
    MatchCast,
    SeqExpr,
    VarBinding,
)
from relaxlab.relax.type_variables import definable_tir_vars_in_type

__all__ = [
    "DataflowBlockPass",
    "FunctionPass",
    "dataflowblock_pass",
    "function_pass",
]


@dataclass(frozen=True)
class FunctionPass(Pass):
    """A pass over every Relax function of a module, one at a time."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return the transformed function, or ``func`` itself."""
        raise TypeError(f"{type(self).__name__} needs `transform_function`")

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Transform the functions in the order of the module."""
        return mod.with_functions(
            {
                gvar: self.transform_function(func, mod, ctx)
                for gvar, func in mod.functions.items()
                if isinstance(func, Function)
            }
        )


@dataclass(frozen=True)
class DataflowBlockPass(FunctionPass):
    """A pass over every dataflow block, one at a time."""

    def transform_dataflowblock(
        self, block: DataflowBlock, mod: IRModule, ctx: PassContext
    ) -> DataflowBlock:
        """Return the transformed block, or ``block`` itself."""
        raise TypeError(f"{type(self).__name__} needs `transform_dataflowblock`")

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Transform the blocks of a function, those of branches and local functions too.

        Raises
        ------
        TypeError
            If a block's transformation makes something else of the function.
        """

        def visit_block(block: BindingBlock) -> BindingBlock:
            if isinstance(block, DataflowBlock):
                changed = self.transform_dataflowblock(block, mod, ctx)
                if changed is not block:
                    _check_visible_kept(block, changed)
                return changed
            bindings = tuple(visit_binding(binding) for binding in block.bindings)
            return replace(block, bindings=_kept(block.bindings, bindings))

        def visit_binding(binding: Binding) -> Binding:
            if not isinstance(binding, VarBinding):
                return binding
            return replace(binding, value=visit_value(binding.value))

        def visit_value(value: Expr) -> Expr:
            match value:
                case Function():
                    body = visit_seq(value.body)
                    return value if body is value.body else replace(value, body=body)
                case If():
                    return replace(
                        value,
                        true_branch=visit_seq(value.true_branch),
                        false_branch=visit_seq(value.false_branch),
                    )
                case _:
                    return value

        def visit_seq(seq: Any) -> SeqExpr:
            blocks = tuple(visit_block(block) for block in seq.blocks)
            changed: SeqExpr = replace(seq, blocks=_kept(seq.blocks, blocks))
            return changed

        changed = visit_value(func)
        if not isinstance(changed, Function):
            raise TypeError(f"a function became a {type(changed).__name__}")
        return changed


def _kept(old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return ``old`` when nothing in it was replaced."""
    return old if all(a is b for a, b in zip(old, new, strict=True)) else new


def _visible_vars(block: DataflowBlock) -> Iterator[Var]:
    for binding in block.bindings:
        if isinstance(binding, VarBinding | MatchCast) and not isinstance(binding.var, DataflowVar):
            yield binding.var
        if isinstance(binding, MatchCast):
            yield from definable_tir_vars_in_type(binding.ty)


def _check_visible_kept(before: DataflowBlock, after: DataflowBlock) -> None:
    kept = set(_visible_vars(after))
    for var in _visible_vars(before):
        if var not in kept:
            raise InternalError(
                "Error: DataflowBlock Pass should not rewrite or delete any global-scope Var. "
                f"{var.name!r} is visible outside its block and is gone; keep its binding"
            )


@dataclass(frozen=True)
class _WrappedFunctionPass(FunctionPass):
    function: Callable[..., Function]
    info_: PassInfo = field(default_factory=lambda: PassInfo("function_pass"))

    @property
    def info(self) -> PassInfo:
        return self.info_

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return self.function(func, mod, ctx)


@dataclass(frozen=True)
class _WrappedBlockPass(DataflowBlockPass):
    function: Callable[..., DataflowBlock]
    info_: PassInfo = field(default_factory=lambda: PassInfo("dataflowblock_pass"))

    @property
    def info(self) -> PassInfo:
        return self.info_

    def transform_dataflowblock(
        self, block: DataflowBlock, mod: IRModule, ctx: PassContext
    ) -> DataflowBlock:
        return self.function(block, mod, ctx)


def _decorator(wrapper: Any, method: str, target: Any, info: PassInfo) -> Any:
    if not isinstance(target, type):
        return wrapper(target, info)

    def factory(*args: Any, **kwargs: Any) -> Pass:
        made: Pass = wrapper(getattr(target(*args, **kwargs), method), info)
        return made

    return factory


def function_pass(
    pass_func: Any = None,
    opt_level: int = 0,
    name: str | None = None,
    required: Iterable[str] = (),
) -> Any:
    """Make a pass of ``f(func, mod, ctx)``, or of a class with ``transform_function``.

    Decorating a class gives a factory: calling it with the class's arguments gives the pass.
    """

    def decorate(target: Any) -> Any:
        info = PassInfo(name or target.__name__, opt_level, tuple(required))
        return _decorator(_WrappedFunctionPass, "transform_function", target, info)

    return decorate if pass_func is None else decorate(pass_func)


def dataflowblock_pass(
    pass_func: Any = None,
    opt_level: int = 0,
    name: str | None = None,
    required: Iterable[str] = (),
) -> Any:
    """Make a pass of ``f(block, mod, ctx)``, or of a class with ``transform_dataflowblock``.

    Decorating a class gives a factory: calling it with the class's arguments gives the pass.
    """

    def decorate(target: Any) -> Any:
        info = PassInfo(name or target.__name__, opt_level, tuple(required))
        return _decorator(_WrappedBlockPass, "transform_dataflowblock", target, info)

    return decorate if pass_func is None else decorate(pass_func)
