"""What can be known of a Relax program. Counterpart: ``tvm.relax.analysis``.

Finding the pass that breaks a program needs the whole compiler, which needs these analyses: it is
loaded when first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from relaxlab.relax.analysis.bindings import (
    computable_at_compile_time,
    get_var2val,
    name_to_binding,
    remove_all_unused,
    udchain,
)
from relaxlab.relax.analysis.memory_usage import estimate_memory_usage
from relaxlab.relax.analysis.non_negative import collect_non_negative_expressions
from relaxlab.relax.analysis.purity import contains_impure_call
from relaxlab.relax.analysis.recursion import detect_recursion
from relaxlab.relax.analysis.reshape_pattern import has_reshape_pattern
from relaxlab.relax.analysis.storage_liveness import storage_liveness
from relaxlab.relax.analysis.variables import (
    all_global_vars,
    all_vars,
    bound_vars,
    defined_symbolic_vars,
    free_symbolic_vars,
    free_vars,
    post_order_visit,
    used_vars,
)
from relaxlab.relax.analysis.well_formed import check_well_formed, well_formed
from relaxlab.relax.call_type import derive_call_ret_type
from relaxlab.relax.type_relations import BaseCheckResult, type_base_check, type_lca
from relaxlab.relax.type_variables import (
    definable_tir_vars_in_type,
    erase_to_well_defined,
    get_static_type,
    tir_vars_in_type,
)

if TYPE_CHECKING:
    from relaxlab.relax.analysis.pass_bisection import Bisection as Bisection
    from relaxlab.relax.analysis.pass_bisection import bisect_passes as bisect_passes

__all__ = [
    "BaseCheckResult",
    "Bisection",
    "all_global_vars",
    "all_vars",
    "bisect_passes",
    "bound_vars",
    "check_well_formed",
    "collect_non_negative_expressions",
    "computable_at_compile_time",
    "contains_impure_call",
    "definable_tir_vars_in_type",
    "defined_symbolic_vars",
    "derive_call_ret_type",
    "detect_recursion",
    "erase_to_well_defined",
    "estimate_memory_usage",
    "free_symbolic_vars",
    "free_vars",
    "get_static_type",
    "get_var2val",
    "has_reshape_pattern",
    "name_to_binding",
    "post_order_visit",
    "remove_all_unused",
    "storage_liveness",
    "tir_vars_in_type",
    "type_base_check",
    "type_lca",
    "udchain",
    "used_vars",
    "well_formed",
]

_LATE = ("Bisection", "bisect_passes")


def __getattr__(name: str) -> object:
    """Load what stands above the analyses (PEP 562)."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module("relaxlab.relax.analysis.pass_bisection"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
