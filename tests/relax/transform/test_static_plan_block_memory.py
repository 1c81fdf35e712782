"""StaticPlanBlockMemory: what shares storage, what must not, and branches."""

import numpy as np
import pytest

from relaxlab import relax, runtime
from relaxlab.relax import transform
from relaxlab.relax.transform import StaticPlanBlockMemory
from relaxlab.relax.transform.static_plan_block_memory import plan_memory
from tests.relax.transform.checks import assert_unchanged, module

PREPARE = (
    transform.LegalizeOps(),
    transform.RewriteDataflowReshape(),
    transform.ToNonDataflow(),
    transform.RemovePurityChecking(),
    transform.CallTIRRewrite(),
)


def prepared(functions):
    mod = module(functions)
    for pass_ in PREPARE:
        mod = pass_(mod)
    return mod


def planned(functions):
    """Return the module, and each tensor's storage by the variables' names."""
    mod = prepared(functions)
    plan = plan_memory(mod, mod["main"])
    return mod, {var.name: storage.index for var, storage in plan.assigned.items()}


def test_a_chain_takes_turns():
    mod, storage = planned(
        """
        @R.function
        def main(x: R.Tensor((8,), "float32")):
            a = R.exp(x)
            b = R.exp(a)
            c = R.exp(b)
            d = R.exp(c)
            return d
        """
    )
    assert storage == {"alloc": 0, "alloc1": 1, "alloc2": 0}  # the result is not planned
    result = StaticPlanBlockMemory()(mod)
    assert result.script().count("alloc_storage") == 2
    assert StaticPlanBlockMemory()(result) is result


def test_tuples_views_and_match_casts_carry_the_claim():
    _, storage = planned(
        """
        @R.function(pure=False)
        def main(x: R.Tensor((8,), "float32")):
            a = R.exp(x)
            t = (a, x)
            u = (t, a)
            b = u[0]
            c = R.memory.view(b[0], R.shape([4, 2]))
            d = R.match_cast(c, R.Tensor((4, 2), "float32"))
            e = R.exp(x)
            f = R.exp(e)
            g = R.call_packed("f", d, f)
            return g
        """
    )
    # alloc, seen through everything, lives until the last call
    assert storage == {"alloc": 0, "alloc1": 1, "alloc2": 2}


def test_what_escapes_is_not_planned():
    _, storage = planned(
        """
        @R.function(private=True)
        def other(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            return x

        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((8,), "float32")):
            given_away = R.exp(x)
            kept = R.exp(x)
            condition = R.logical_not(c)
            y = Module.other(given_away)
            if condition:
                z = R.exp(kept)
            else:
                z = x
            return (y, z)
        """
    )
    assert storage == {}


def test_a_tensor_that_is_only_written_gives_its_storage_back_at_once():
    _, storage = planned(
        """
        @R.function(pure=False)
        def main(x: R.Tensor((8,), "float32")):
            a = R.exp(x)
            b = R.exp(a)
            unused = R.exp(x)
            c = R.exp(x)
            d = R.call_packed("f", c)
            return d
        """
    )
    assert storage == {"alloc": 0, "alloc1": 1, "alloc2": 0, "alloc3": 1}


def test_virtual_devices_do_not_share():
    """TVM shares between devices of one scope: the tensor then lies on the wrong one (run)."""
    mod, storage = planned(
        """
        I.module_global_infos({"vdevice": [I.vdevice("llvm"), I.vdevice("llvm", 1)]})

        @R.function(pure=False)
        def main(x: R.Tensor((8,), "float32")):
            a = R.call_dps_packed("f", (x,), out_ty=R.Tensor((8,), "float32", vdevice="llvm:1"))
            b = R.call_dps_packed("f", (a,), out_ty=R.Tensor((8,), "float32", vdevice="llvm:0"))
            c = R.call_dps_packed("f", (b,), out_ty=R.Tensor((8,), "float32", vdevice="llvm:0"))
            d = R.call_packed("g", c)
            return d
        """
    )
    assert storage == {"alloc": 0, "alloc1": 1, "alloc2": 2}
    assert "storage: R.Any = R.memory.alloc_storage(R.shape([32]), 1," in (
        StaticPlanBlockMemory()(mod).script()
    )


def test_dynamic_output_with_an_upper_bound():
    mod = prepared(
        """
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")):
            R.func_attr(
                {"tir_var_upper_bound": {"n": 8}, "relax.memory_plan_dynamic_func_output": True}
            )
            y = R.exp(x)
            return y
        """
    )
    result = StaticPlanBlockMemory()(mod)
    assert "R.memory.alloc_storage(R.shape([128])" in result.script()
    assert "memory_plan_dynamic_func_output" not in result.script()
    assert StaticPlanBlockMemory()(result) is result


BRANCHES = """
@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
    before = R.sin(x)
    lived = R.sin(before)
    if c:
        a = R.add(lived, x)
        b = R.sin(a)
        r = R.sin(b)
    else:
        d = R.multiply(x, lived)
        e = R.negative(d)
        r = R.negative(e)
    after = R.sin(r)
    last = R.add(after, x)
    return last
"""


def test_a_branch_never_uses_the_storages_of_the_other():
    """TVM does, and the VM then reads a register that was never set (run)."""
    mod = prepared(BRANCHES)
    plan = plan_memory(mod, mod["main"])
    names = {var.name: storage for var, storage in plan.assigned.items()}
    inside = {"then": ("alloc2", "alloc3"), "else": ("alloc5", "alloc6")}
    born = {
        branch: {names[n].index for n in allocs if n in names and names[n].depth == 1}
        for branch, allocs in inside.items()
    }
    assert born["then"]
    assert born["else"]
    assert not born["then"] & born["else"]
    outside = {names[n].index for n in names if n not in sum(inside.values(), ())}
    assert not outside & (born["then"] | born["else"])


@pytest.mark.parametrize("condition", [True, False])
def test_both_branches_run(condition):
    vm = relax.VirtualMachine(relax.build(module(BRANCHES), "numpy"), runtime.cpu())
    x = np.array([0.1, 0.2, -0.3], np.float32)
    lived = np.sin(np.sin(x))
    r = np.sin(np.sin(lived + x)) if condition else x * lived
    got = vm["main"](np.array(condition), x).numpy()
    np.testing.assert_allclose(got, np.sin(r) + x, rtol=1e-5)


def test_a_branch_may_use_and_enlarge_what_was_free_before_it():
    mod, storage = planned(
        """
        @R.function
        def main(
            c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32"), y: R.Tensor((8,), "float32")
        ):
            free = R.exp(x)
            kept = R.exp(free)
            if c:
                a = R.exp(y)
                b = R.add(a, y)
                r = R.exp(b)
            else:
                d = R.negative(y)
                r = R.exp(d)
            return (kept, r)
        """
    )
    assert storage["alloc"] == storage["alloc2"] == storage["alloc5"] == 0
    # both branches see the larger size, and so does the allocation before them
    assert "storage: R.Any = R.memory.alloc_storage(R.shape([32])" in (
        StaticPlanBlockMemory()(mod).script()
    )


def test_nothing_to_plan():
    assert_unchanged(
        StaticPlanBlockMemory(),
        """
        @R.function
        def main(x: R.Tensor((8,), "float32")):
            R.func_attr({"relax.force_pure": True})
            return x
        """,
    )
