"""Move what matches a pattern into functions of their own, for a library to take over.

Each match becomes a private function with the attribute ``Composite``. With ``annotate_codegen``
it stands inside a public function with the attribute ``Codegen``, the part of the name in front of
the first dot: what a library is asked to compile. Counterpart:
``tvm.relax.transform.FuseOpsByPattern`` (compiler.md, 6.18).

Examples
--------
>>> from relaxlab.relax.dpl import is_op, wildcard
>>> pattern = FusionPattern("lib.exp", is_op("relax.exp")(wildcard()))
>>> FuseOpsByPattern([pattern]).info.name
'FuseOpsByPattern'
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relaxlab.ir import Call, Expr, GlobalVar, IRModule, ModulePass, PassContext, Var, merge_spans
from relaxlab.relax.analysis.variables import used_vars
from relaxlab.relax.dpl.pattern import DFPattern, Matcher
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
from relaxlab.relax.transform.fused_function import FusedFunction

__all__ = ["FuseOpsByPattern", "FusionPattern", "PatternCheckContext"]


@dataclass(frozen=True)
class PatternCheckContext:
    """What is known of a match when it is asked whether it is to be taken.

    Attributes
    ----------
    matched_expr
        The expression that matched.
    annotated_expr
        What the parts of the pattern that have names stand for.
    matched_bindings
        Values of the variables that would move.
    var_usages
        By which variables each variable is read, as far as the function has been visited.
    value_to_bound_var
        The variable that each value of the block is bound to.
    """

    matched_expr: Expr
    annotated_expr: Mapping[str, Expr]
    matched_bindings: Mapping[Var, Expr]
    var_usages: Mapping[Var, Sequence[Var]]
    value_to_bound_var: Mapping[Expr, Var]


@dataclass(frozen=True)
class FusionPattern:
    """A pattern, and what is to become of its matches.

    Attributes
    ----------
    name
        Name of the composite: ``"<library>.<what>"``.
    pattern
        What to look for.
    annotation_patterns
        Names of parts of the pattern.
    check
        Whether to take a match.
    attrs_getter
        More attributes of the function, from the named parts.
    """

    name: str
    pattern: DFPattern
    annotation_patterns: Mapping[str, DFPattern] = field(default_factory=dict)
    check: Callable[[PatternCheckContext], bool] | None = None
    attrs_getter: Callable[[Mapping[str, Expr]], Mapping[str, Any]] | None = None


@dataclass
class _Match:
    """A match that is taken: its pattern, named parts and bindings in order."""

    pattern: FusionPattern
    annotated: Mapping[str, Expr]
    bindings: list[VarBinding]


@dataclass(frozen=True, init=False)
class FuseOpsByPattern(ModulePass):
    """Move matches of patterns in dataflow blocks into functions.

    Parameters
    ----------
    patterns
        Patterns, or tuples of their fields, in order of preference.
    bind_constants
        Whether constants move into the functions, too.
    annotate_codegen
        Whether to wrap each function for a library.
    entry_functions
        Names of the functions to look at, all if None.

    Notes
    -----
    A match with an inner value that is used elsewhere, or that something outside stands between,
    is not taken.
    """

    patterns: tuple[FusionPattern, ...]
    bind_constants: bool
    annotate_codegen: bool
    entry_functions: tuple[str, ...] | None

    def __init__(
        self,
        patterns: Sequence[FusionPattern | tuple[Any, ...]],
        bind_constants: bool = True,
        annotate_codegen: bool = False,
        entry_functions: Sequence[str] | None = None,
    ) -> None:
        made = tuple(p if isinstance(p, FusionPattern) else FusionPattern(*p) for p in patterns)
        object.__setattr__(self, "patterns", made)
        object.__setattr__(self, "bind_constants", bind_constants)
        object.__setattr__(self, "annotate_codegen", annotate_codegen)
        names = None if entry_functions is None else tuple(entry_functions)
        object.__setattr__(self, "entry_functions", names)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module with matches as functions, ``mod`` itself if nothing matches."""
        # one after the other, as in TVM: what a pattern made has new names for the next one
        for pattern in self.patterns:
            mod = self.fuse(mod, pattern)
        return mod

    def fuse(self, mod: IRModule, pattern: FusionPattern) -> IRModule:
        """Return the module with the matches of one pattern as functions."""
        fuser = _Fuser(mod, self, pattern)
        changed = False
        for gvar, func in mod.functions_items():
            if not isinstance(func, Function) or not self.looks_at(gvar, func):
                continue
            new = fuser.fuse(func)
            if new is not func:
                fuser.builder.update_func(gvar, new)
                changed = True
        return fuser.builder.get() if changed else mod

    def looks_at(self, gvar: GlobalVar, func: Function) -> bool:
        """Whether the pass changes a function."""
        if "Codegen" in func.attrs or "Composite" in func.attrs:
            return False
        return self.entry_functions is None or gvar.name_hint in self.entry_functions


class _Fuser(ExprMutator):
    def __init__(self, mod: IRModule, options: FuseOpsByPattern, pattern: FusionPattern) -> None:
        super().__init__(mod)
        self.options = options
        self.pattern = pattern
        self.usages: dict[Var, list[Var]] = {}
        self.values: dict[Var, Expr] = {}

    def fuse(self, func: Function) -> Function:
        self.usages, self.values = {}, {}
        new: Any = self.visit_expr(func)
        return new  # type: ignore[no-any-return]  # a function stays one

    def visit_binding_block_(self, block: BindingBlock) -> BindingBlock:
        self.note(block)
        return super().visit_binding_block_(block)

    def note(self, block: BindingBlock) -> None:
        for binding in block.bindings:
            if isinstance(binding, VarBinding):
                self.values[binding.var] = binding.value
                for read in used_vars(binding.value):
                    self.usages.setdefault(read, []).append(binding.var)

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        self.note(block)
        matches = self.matches_in(block)
        if not matches:
            return super().visit_dataflow_block_(block)
        last = {match.bindings[-1].var: match for match in matches}
        inside = {binding.var for match in matches for binding in match.bindings}
        self.builder.begin_block(is_dataflow=True)
        for binding in block.bindings:
            var = _variable(binding)
            if var in last:
                self.emit_match(last[var])
            elif var not in inside:
                self.visit_binding(binding)
        return self.builder.end_block()

    # ---- finding ----------------------------------------------------------------------------

    def matches_in(self, block: DataflowBlock) -> list[_Match]:
        bindings = [b for b in block.bindings if isinstance(b, VarBinding)]
        bound = {binding.value: binding.var for binding in bindings}
        taken: set[Var] = set()
        matches = []
        pattern = self.pattern
        for binding in reversed(bindings):
            if binding.var in taken:
                continue
            matcher = Matcher(self.values)
            if not matcher.match(pattern.pattern, binding.value):
                continue
            group = {bound[e] for e in matcher.matched.values() if e in bound}
            members = [b for b in bindings if b.var in group]
            if group & taken or not self.is_closed(block, members):
                continue
            annotated = {
                name: matcher.matched[part]
                for name, part in pattern.annotation_patterns.items()
                if part in matcher.matched
            }
            context = PatternCheckContext(
                binding.value,
                annotated,
                {member.var: member.value for member in members},
                self.usages,
                bound,
            )
            if pattern.check is None or pattern.check(context):
                taken |= group
                matches.append(_Match(pattern, annotated, members))
        return matches

    def is_closed(self, block: DataflowBlock, members: Sequence[VarBinding]) -> bool:
        """Whether only the last value of a group is used outside, and nothing is in between."""
        inner = {member.var for member in members[:-1]}
        group = {member.var for member in members}
        if any(not isinstance(var, DataflowVar) for var in inner):
            return False
        touched = set(inner)
        for binding in block.bindings:
            if not isinstance(binding, VarBinding | MatchCast) or binding.var in group:
                continue
            if touched & set(used_vars(binding.value)):
                return False
        return True

    # ---- moving -----------------------------------------------------------------------------

    def emit_match(self, match: _Match) -> None:
        last = match.bindings[-1].var
        around, self.builder.span = self.builder.span, merge_spans(b.span for b in match.bindings)
        fused = FusedFunction(match.bindings, self.options.bind_constants)
        more = match.pattern.attrs_getter(match.annotated) if match.pattern.attrs_getter else {}
        composite = {"Composite": match.pattern.name, **more}
        if self.options.annotate_codegen:
            backend = match.pattern.name.partition(".")[0]
            name = f"{fused.name}_{backend}"
            gvar = self.builder.add_func(_for_library(fused, composite, backend, name), name)
        else:
            func = fused.function({**composite, "Primitive": True})
            gvar = self.builder.add_func(func, fused.name)
        call = Call(gvar, tuple(self.visit_expr(arg) for arg in fused.arguments()))
        is_output = not isinstance(last, DataflowVar)
        new = self.builder.emit_output(call) if is_output else self.builder.emit(call)
        self.var_remap[last] = new
        self.builder.span = around


def _variable(binding: Binding) -> Var:
    assert isinstance(binding, VarBinding | MatchCast)
    return binding.var


def _for_library(
    fused: FusedFunction, composite: Mapping[str, Any], backend: str, name: str
) -> Function:
    """Return a public function that defines the composite inside and calls it."""
    # made twice: each function has symbolic variables of its own
    outside, inner = fused.function(), fused.function(composite)
    local = Var("local_func", inner.ty)
    output = Var("output", outside.ret_ty)
    call = Call(local, outside.params, ty=outside.ret_ty)
    block = BindingBlock((VarBinding(local, inner), VarBinding(output, call)))
    body = SeqExpr((block,), output, ty=output.ty)
    attrs = {"Codegen": backend, "global_symbol": name}
    return Function(outside.params, body, outside.ret_ty, True, attrs, span=outside.span)
