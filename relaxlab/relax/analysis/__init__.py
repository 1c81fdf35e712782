"""What can be known of a Relax program. Counterpart: ``tvm.relax.analysis``."""

from relaxlab.relax.analysis.bindings import (
    computable_at_compile_time,
    get_var2val,
    name_to_binding,
    remove_all_unused,
    udchain,
)
from relaxlab.relax.analysis.purity import contains_impure_call
from relaxlab.relax.analysis.recursion import detect_recursion
from relaxlab.relax.analysis.reshape_pattern import has_reshape_pattern
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

__all__ = [
    "BaseCheckResult",
    "all_global_vars",
    "all_vars",
    "bound_vars",
    "check_well_formed",
    "computable_at_compile_time",
    "contains_impure_call",
    "definable_tir_vars_in_type",
    "defined_symbolic_vars",
    "derive_call_ret_type",
    "detect_recursion",
    "erase_to_well_defined",
    "free_symbolic_vars",
    "free_vars",
    "get_static_type",
    "get_var2val",
    "has_reshape_pattern",
    "name_to_binding",
    "post_order_visit",
    "remove_all_unused",
    "tir_vars_in_type",
    "type_base_check",
    "type_lca",
    "udchain",
    "used_vars",
    "well_formed",
]
