"""CanonicalizeBindings: names that say nothing go, outputs keep theirs."""

import numpy as np
import pytest

from relaxlab import relax, runtime
from relaxlab.ir import PassContext, PassInstrument
from relaxlab.relax.expr import DataflowVar
from relaxlab.relax.transform import CanonicalizeBindings, CanonicalizeTIRVariables
from tests.relax.transform.checks import assert_becomes, assert_unchanged, module

CANONICALIZE = CanonicalizeBindings()


def test_an_output_takes_over_the_variable_behind_it():
    result = assert_becomes(
        CANONICALIZE,
        """
        @R.function
        def f(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = a
                c = a
                e = x
                y = R.add(a, b)
                R.output(b, c, e, y)
            return (b, c, e, y)
        """,
        """
        @R.function
        def f(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                b = R.exp(x)
                y = R.add(b, b)
                R.output(b, y)
            return (b, b, x, y)
        """,
    )
    assert not isinstance(result["f"].body.blocks[0].bindings[0].var, DataflowVar)


def test_an_output_that_nobody_uses_is_none():
    assert_becomes(
        CANONICALIZE,
        """
        @R.function
        def f(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.exp(a)
                c = R.exp(b)
                R.output(a, b, c)
            return c
        """,
        """
        @R.function
        def f(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.exp(a)
                c = R.exp(b)
                R.output(c)
            return c
        """,
    )


def test_fields_of_known_tuples_and_tuples_of_all_fields():
    assert_becomes(
        CANONICALIZE,
        """
        @R.function
        def f(x: R.Tensor((4,), "float32"), t: R.Tuple(R.Tensor((4,), "float32"), R.Object)):
            a = R.exp(x)
            u = (a, (x, a))
            b = u[0]
            v = u[1]
            c = v[0]
            p = t[0]
            q = t[1]
            whole = (p, q)
            other = (q, p)
            d = R.add(b, c)
            return (d, whole, other)
        """,
        """
        @R.function
        def f(x: R.Tensor((4,), "float32"), t: R.Tuple(R.Tensor((4,), "float32"), R.Object)):
            a = R.exp(x)
            u = (a, (x, a))
            v = u[1]
            p = t[0]
            q = t[1]
            other = (q, p)
            d = R.add(a, x)
            return (d, t, other)
        """,
    )


def test_some_fields_or_those_of_a_local_tuple_make_a_new_tuple():
    """As in TVM (run): only a parameter is reused, and only whole."""
    assert_unchanged(
        CANONICALIZE,
        """
        @R.function(pure=False)
        def f(p: R.Tuple(R.Tensor, R.Tensor, R.Tensor)):
            a = p[0]
            b = p[1]
            part = (a, b)
            q = R.call_packed("g", part, ty_args=R.Tuple(R.Tensor, R.Tensor))
            c = q[0]
            d = q[1]
            again = (c, d)
            r = R.call_packed("h", again)
            return r
        """,
    )


def test_constants_are_used_directly():
    assert_becomes(
        CANONICALIZE,
        """
        @R.function
        def f(x: R.Tensor((4,), "float32")):
            k = R.const(1, "float32")
            l = k
            y = R.add(x, l)
            return (y, k)
        """,
        """
        @R.function
        def f(x: R.Tensor((4,), "float32")):
            k = R.const(1, "float32")
            y = R.add(x, R.const(1, "float32"))
            return (y, R.const(1, "float32"))
        """,
    )


def test_known_sizes_replace_those_of_match_casts():
    assert_becomes(
        CANONICALIZE,
        """
        @R.function(pure=False)
        def f(x: R.Tensor((4, "n"), "float32"), y: R.Tensor(("k",), "float32"), u: R.Tensor):
            n = T.int64()
            k = T.int64()
            a = T.int64()
            b = T.int64()
            z = R.match_cast(x, R.Tensor((a, b), "float32"))
            w = R.zeros((a, b + 1), "float32")
            v = R.match_cast(y, R.Tensor((b,), "float32"))
            q = R.call_packed("g", z, w, v, ty_args=R.Tensor((b,), "float32"))
            return q
        """,
        """
        @R.function(pure=False)
        def f(x: R.Tensor((4, "n"), "float32"), y: R.Tensor(("k",), "float32"), u: R.Tensor):
            n = T.int64()
            k = T.int64()
            w = R.zeros((4, n + 1), "float32")
            v = R.match_cast(y, R.Tensor((n,), "float32"))
            q = R.call_packed("g", x, w, v, ty_args=R.Tensor((n,), "float32"))
            return q
        """,
    )


CHECK = """
@R.function
def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("k",), "float32")):
    n = T.int64()
    k = T.int64()
    v = R.match_cast(y, R.Tensor((n,), "float32"))
    z = R.add(x, v)
    return z
"""


def test_a_cast_to_a_size_that_is_known_stays_a_check():
    """TVM takes ``n`` for ``k`` from there on and drops the cast, and with it the check (run)."""
    assert_unchanged(CANONICALIZE, CHECK)
    vm = relax.VirtualMachine(relax.build(module(CHECK), "numpy"), runtime.cpu())
    three, four = np.ones(3, np.float32), np.ones(4, np.float32)
    np.testing.assert_allclose(vm["main"](three, three).numpy(), 2)
    with pytest.raises(RuntimeError, match="variable n"):
        vm["main"](three, four)


def test_a_size_used_as_a_value_keeps_its_definition():
    assert_unchanged(
        CANONICALIZE,
        """
        @R.function(pure=False)
        def f(x: R.Tensor((4, "n"), "float32")):
            n = T.int64()
            a = T.int64()
            z = R.match_cast(x, R.Tensor((4, a), "float32"))
            q = R.call_packed("g", z, a + 1)
            return q
        """,
    )


def test_casts_that_contradict_each_other():
    mod = module(
        """
        @R.function
        def f(x: R.Tensor((4,), "float32"), y: R.Tensor((5,), "float32")):
            a = T.int64()
            z = R.match_cast(x, R.Tensor((a,), "float32"))
            w = R.match_cast(y, R.Tensor((a,), "float32"))
            return (z, w)
        """
    )
    with pytest.raises(ValueError, match="must be consistent") as caught:
        CANONICALIZE(mod)
    for word in ("variable z ", "variable w ", "variable a ", "int64(4)", "int64(5)"):
        assert word in str(caught.value)


def test_the_type_of_an_if_is_written_down_in_its_branches():
    """Else a branch that says more than the If would be used with its own type."""
    before = """
    @R.function
    def f(c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")):
        n = T.int64()
        m = T.int64()
        if c:
            z = R.exp(x)
        else:
            z = y
        return z
    """
    result = CANONICALIZE(module(before))
    text = result.script()
    ty = 'R.Tensor(dtype="float32", ndim=1)'
    assert f"then_branch_with_dyn: {ty} = R.match_cast(z_then, {ty})" in text
    assert f"else_branch_with_dyn: {ty} = R.match_cast(y, {ty})" in text
    assert CANONICALIZE(result) is result


def test_what_a_branch_learns_stays_in_it():
    result = CANONICALIZE(
        module(
            """
            @R.function
            def f(
                c: R.Tensor((), "bool"),
                x: R.Tensor(("n",), "float32"),
                y: R.Tensor(("n",), "float32"),
            ):
                n = T.int64()
                a = T.int64()
                if c:
                    u = R.match_cast(x, R.Tensor((a,), "float32"))
                    z = R.zeros((a,), "float32")
                else:
                    z = R.exp(y)
                g = R.call_pure_packed("g", ty_args=R.Object)
                v = R.match_cast(g, R.Tensor((a,), "float32"))
                w = R.zeros((a,), "float32")
                return (z, v, w)
            """
        )
    )
    text = result.script()
    assert 'z_then: R.Tensor((n,), dtype="float32") = R.zeros(R.shape([n])' in text
    assert 'w: R.Tensor((a,), dtype="float32") = R.zeros(R.shape([a])' in text


def test_scalar_names():
    assert_becomes(
        CANONICALIZE,
        """
        @R.function(pure=False)
        def f(x: R.Tensor(("n",), "float32")):
            n = T.int64()
            a: R.Prim("int64") = n
            z = R.zeros((a, 2), "float32")
            y = R.call_packed("g", a + 1, z)
            return y
        """,
        """
        @R.function(pure=False)
        def f(x: R.Tensor(("n",), "float32")):
            n = T.int64()
            z = R.zeros((n, 2), "float32")
            y = R.call_packed("g", n + 1, z)
            return y
        """,
    )


def test_nothing_to_do():
    assert_unchanged(
        CANONICALIZE,
        """
        @R.function
        def f(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
            with R.dataflow():
                a = R.exp(x)
                R.output(a)
            if c:
                b = R.exp(a)
            else:
                b = a
            return b
        """,
    )


class Names(PassInstrument):
    def __init__(self):
        self.names = []

    def run_before_pass(self, mod, info):
        self.names.append((info.name, info.opt_level))


def test_instruments_see_both_parts():
    seen = Names()
    mod = module("@R.function\ndef f(x: R.Tensor): return x")
    with PassContext(instruments=[seen]):
        CANONICALIZE(mod)
    assert seen.names == [
        ("CanonicalizeBindings", 0),
        ("CanonicalizeTIRVariables", 1),
        ("CanonicalizeRelaxBindings", 1),
    ]


def test_a_part_above_the_level_is_skipped():
    mod = module(
        """
        @R.function
        def f(x: R.Tensor((4,), "float32")):
            y = x
            return y
        """
    )
    with PassContext(opt_level=0):
        assert CANONICALIZE(mod) is mod
    assert CanonicalizeTIRVariables()(mod) is mod
