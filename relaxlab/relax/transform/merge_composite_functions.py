"""Hand neighbouring composites of one library over as one function.

FuseOpsByPattern makes a function of each match. Calls of such functions of one library that feed
each other become one public function with the attribute ``Codegen``, in which the composites are
local functions. Counterpart: ``tvm.relax.transform.MergeCompositeFunctions`` (compiler.md, 6.18).

Examples
--------
>>> MergeCompositeFunctions().info.name
'MergeCompositeFunctions'
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from relaxlab.ir import (
    Call,
    DictAttrs,
    Expr,
    GlobalVar,
    IRModule,
    ModulePass,
    PassContext,
    Tuple,
    TupleGetItem,
    Var,
    replace,
)
from relaxlab.relax.analysis.variables import used_vars
from relaxlab.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Function,
    MatchCast,
    SeqExpr,
    VarBinding,
)
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.substitution import copy_with_new_vars
from relaxlab.relax.transform.dead_code_elimination import DeadCodeElimination
from relaxlab.relax.transform.fuse_ops import in_order, reads_between

__all__ = ["MergeCompositeFunctions"]


@dataclass(frozen=True)
class MergeCompositeFunctions(ModulePass):
    """Merge calls of composites of one library in dataflow blocks.

    A call joins the calls that it reads unless something else stands between them.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module with merged functions, ``mod`` itself if it calls no composite."""
        merger = _Merger(mod)
        changed = False
        for gvar, func in mod.functions_items():
            if isinstance(func, Function) and "Composite" not in func.attrs:
                new: Any = merger.visit_expr(func)
                if new is not func:
                    merger.builder.update_func(gvar, new)
                    changed = True
        return DeadCodeElimination()(merger.builder.get()) if changed else mod


class _Merger(ExprMutator):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.mod = mod

    def composite(self, binding: Binding) -> Function | None:
        """Return the composite that a binding calls."""
        value = binding.value if isinstance(binding, VarBinding) else None
        if not isinstance(value, Call) or not isinstance(value.op, GlobalVar):
            return None
        func = self.mod.functions.get(value.op)
        return func if isinstance(func, Function) and "Composite" in func.attrs else None

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        groups = self.groups_of(block)
        if all(self.composite(group[0]) is None for group in groups):
            return super().visit_dataflow_block_(block)
        readers: dict[Var, set[int]] = {}
        for index, group in enumerate(groups):
            for binding in group:
                for var in used_vars(_value(binding)):
                    readers.setdefault(var, set()).add(index)
        self.builder.begin_block(is_dataflow=True)
        for index in in_order(reads_between(groups)):
            group = groups[index]
            if self.composite(group[0]) is None:
                self.visit_binding(group[0])
                continue
            outputs = [
                binding
                for binding in group
                if not isinstance(_variable(binding), DataflowVar)
                or readers.get(_variable(binding), set()) - {index}
            ]
            self.emit_group(group, outputs or group[-1:])
        return self.builder.end_block()

    def groups_of(self, block: DataflowBlock) -> list[list[Binding]]:
        """Return the bindings by group, in the order of the groups' first ones."""
        home: dict[Var, list[Binding]] = {}
        #: The groups that a variable depends on, by identity, other than its own.
        behind: dict[Var, set[int]] = {}
        groups: list[list[Binding]] = []
        for binding in block.bindings:
            reads = [var for var in used_vars(_value(binding)) if var in home]
            func = self.composite(binding)
            joined: list[Binding] | None = None
            for var in reads if func is not None else ():
                candidate = home[var]
                other = self.composite(candidate[0])
                if other is None or _library(other) != _library(func):
                    continue
                outside = [read for read in reads if home[read] is not candidate]
                if not any(id(candidate) in behind[read] for read in outside):
                    joined = candidate
                    break
            if joined is None:
                joined = []
                groups.append(joined)
            joined.append(binding)
            var = _variable(binding)
            home[var] = joined
            found = {id(home[read]) for read in reads if home[read] is not joined}
            behind[var] = found.union(*(behind[read] for read in reads)) - {id(joined)}
            # what one member depends on, the call of the whole group does
            for member in joined:
                behind[_variable(member)] |= behind[var]
        return groups

    def emit_group(self, group: Sequence[Binding], outputs: Sequence[Binding]) -> None:
        func, arguments, name = self.function_of(group, outputs)
        library = _library(func)
        full = f"{name}_{library}"
        attrs = DictAttrs({"Codegen": library, "global_symbol": full})
        gvar = self.builder.add_func(replace(func, attrs=attrs), full)
        call = Call(gvar, tuple(self.visit_expr(arg) for arg in arguments))
        if len(outputs) == 1:
            self.var_remap[_variable(outputs[0])] = self.emit_as(_variable(outputs[0]), call)
            return
        whole = self.builder.emit(call)
        for index, output in enumerate(outputs):
            field = TupleGetItem(whole, index)
            self.var_remap[_variable(output)] = self.emit_as(_variable(output), field)

    def emit_as(self, var: Var, value: Expr) -> Var:
        if isinstance(var, DataflowVar):
            return self.builder.emit(value)
        return self.builder.emit_output(value)

    def function_of(
        self, group: Sequence[Binding], outputs: Sequence[Binding]
    ) -> tuple[Function, list[Expr], str]:
        """Return the merged function, what to call it with, and the first part of its name."""
        params: dict[Expr, Var] = {}
        inside: dict[Expr, Expr] = {}
        bindings: list[Binding] = []
        name, library = "fused", ""
        for count, binding in enumerate(group):
            composite, value = self.composite(binding), _value(binding)
            assert composite is not None
            assert isinstance(value, Call)
            assert isinstance(value.op, GlobalVar)
            name += f"_{value.op.name_hint.removeprefix('fused_')}"
            library = _library(composite)
            args = []
            for arg in value.args:
                if arg not in inside and arg not in params:
                    hint = arg.name if isinstance(arg, Var) else f"param_{len(params)}"
                    params[arg] = Var(hint, arg.ty)
                args.append(inside.get(arg, params.get(arg, arg)))
            kept = {k: v for k, v in composite.attrs.items() if k != "Primitive"}
            inner = replace(copy_with_new_vars(composite), attrs=DictAttrs(kept))
            local = Var(f"gv{count}" if count else "gv", inner.ty)
            last = binding is group[-1]
            result = Var("gv" if last else f"lv{count}" if count else "lv", value.ty)
            inside[_variable(binding)] = result
            bindings += [
                VarBinding(local, inner),
                VarBinding(result, Call(local, tuple(args), ty=value.ty)),
            ]
        results = [inside[_variable(output)] for output in outputs]
        body = results[0] if len(results) == 1 else Tuple(tuple(results))
        seq = SeqExpr((BindingBlock(tuple(bindings)),), body, ty=body.ty)
        func = Function(tuple(params.values()), seq, body.ty, True, {"Codegen": library})
        return copy_with_new_vars(func), list(params), name


def _library(func: Function | None) -> str:
    assert func is not None
    named = func.attrs.get("Codegen", func.attrs.get("Composite"))
    return str(named).partition(".")[0]


def _value(binding: Binding) -> Expr:
    assert isinstance(binding, VarBinding | MatchCast)
    return binding.value


def _variable(binding: Binding) -> Var:
    assert isinstance(binding, VarBinding | MatchCast)
    return binding.var
