"""RemoveUnusedOutputs: only fields that somebody reads are returned."""

from relaxlab.relax.analysis import check_well_formed
from relaxlab.relax.transform import RemoveUnusedOutputs
from tests.relax.transform.checks import assert_becomes, assert_unchanged, module

T = 'R.Tensor((4,), "float32")'


def test_fields_that_any_caller_reads():
    result = assert_becomes(
        RemoveUnusedOutputs(),
        f"""
        @R.function(private=True)
        def sub(x: {T}):
            a = R.exp(x)
            b = R.tanh(x)
            c = R.sin(x)
            return (a, b, c)

        @R.function
        def main(x: {T}):
            r = Module.sub(x)
            u = r[2]
            s = Module.sub(u)
            v = s[0]
            return v
        """,
        f"""
        @R.function(private=True)
        def sub(x: {T}):
            a = R.exp(x)
            c = R.sin(x)
            return (a, c)

        @R.function
        def main(x: {T}):
            gv = Module.sub(x)
            gv2 = gv[1]
            gv3 = Module.sub(gv2)
            gv4 = gv3[0]
            return gv4
        """,
    )
    assert check_well_formed(result)


def test_a_single_field_is_returned_by_itself_in_recursion_too():
    assert_becomes(
        RemoveUnusedOutputs(),
        f"""
        @R.function(private=True)
        def sub(x: {T}, c: R.Tensor((), "bool")) -> R.Tuple({T}, {T}):
            if c:
                r = (x, x)
            else:
                y = R.exp(x)
                q = Module.sub(y, c)
                z = q[0]
                r = (z, y)
            return r

        @R.function
        def main(x: {T}, c: R.Tensor((), "bool")):
            r = Module.sub(x, c)
            u = r[0]
            return u
        """,
        f"""
        @R.function(private=True)
        def sub(x: {T}, c: R.Tensor((), "bool")) -> {T}:
            if c:
                r = (x, x)
            else:
                y = R.exp(x)
                gv1: {T} = Module.sub(y, c)
                r = (gv1, y)
            gv2: {T} = r[0]
            return gv2

        @R.function
        def main(x: {T}, c: R.Tensor((), "bool")):
            gv: {T} = Module.sub(x, c)
            return gv
        """,
    )


def test_whole_results_and_public_functions_stay():
    assert_unchanged(
        RemoveUnusedOutputs(),
        f"""
        @R.function(private=True)
        def sub(x: {T}):
            a = R.exp(x)
            b = R.tanh(x)
            return (a, b)

        @R.function
        def public(x: {T}):
            a = R.exp(x)
            b = R.tanh(x)
            return (a, b)

        @R.function
        def main(x: {T}):
            r = Module.sub(x)
            p = Module.public(x)
            q = p[0]
            return (r, q)
        """,
    )


def test_a_result_that_nobody_reads():
    mod = RemoveUnusedOutputs()(
        module(
            f"""
            @R.function(private=True)
            def sub(x: {T}):
                a = R.exp(x)
                return (a, a)

            @R.function
            def main(x: {T}):
                r = Module.sub(x)
                return x
            """
        )
    )
    assert [gvar.name_hint for gvar in mod.functions] == ["main"]
