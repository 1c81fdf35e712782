"""KillAfterLastUse: what dies where, and what never does."""

from relaxlab.relax.transform import KillAfterLastUse
from tests.relax.transform.checks import assert_becomes, assert_unchanged


def test_tensors_then_storages_then_other_objects():
    assert_becomes(
        KillAfterLastUse(),
        """
        @R.function(pure=False)
        def f(x: R.Tensor((2,), "float32"), n: R.Prim("int64")):
            st = R.memory.alloc_storage(R.shape([8]), 0, R.str("global"), R.dtype("float32"))
            o = R.call_packed("make")
            s = R.shape_of(x)
            a = R.memory.alloc_tensor(st, 0, R.shape([2]), R.dtype("float32"), 0)
            b = R.call_packed("f", o, st, a, s, n, ty_args=R.Tensor((2,), "float32"))
            unused = R.call_packed("g", b)
            t = (x, b)
            return t
        """,
        """
        @R.function(pure=False)
        def f(x: R.Tensor((2,), "float32"), n: R.Prim("int64")):
            st = R.memory.alloc_storage(R.shape([8]), 0, R.str("global"), R.dtype("float32"))
            o = R.call_packed("make")
            s = R.shape_of(x)
            a = R.memory.alloc_tensor(st, 0, R.shape([2]), R.dtype("float32"), 0)
            b = R.call_packed("f", o, st, a, s, n, ty_args=R.Tensor((2,), "float32"))
            R.memory.kill_tensor(a)
            R.memory.kill_storage(st)
            R.vm.kill_object(o)
            unused = R.call_packed("g", b)
            t = (x, b)
            R.memory.kill_tensor(b)
            return t
        """,
    )


def test_nothing_is_never_killed():
    assert_becomes(
        KillAfterLastUse(),
        """
        @R.function(pure=False)
        def f(x: R.Any):
            io = R.null_value()
            c = R.call_packed("f", io, x)
            t = (io, c)
            return t
        """,
        """
        @R.function(pure=False)
        def f(x: R.Any):
            io = R.null_value()
            c = R.call_packed("f", io, x)
            t = (io, c)
            R.vm.kill_object(c)
            return t
        """,
    )


def test_other_names_of_a_tensor_are_removed_first():
    assert_becomes(
        KillAfterLastUse(),
        """
        @R.function(pure=False)
        def f(x: R.Tensor((2,), "float32")):
            a = R.call_packed("f", x, ty_args=R.Tensor((2,), "float32"))
            b = a
            c = R.match_cast(b, R.Tensor((2,), "float32"))
            d = R.call_packed("f", c, ty_args=R.Tensor((2,), "float32"))
            return d
        """,
        """
        @R.function(pure=False)
        def f(x: R.Tensor((2,), "float32")):
            a = R.call_packed("f", x, ty_args=R.Tensor((2,), "float32"))
            d = R.call_packed("f", a, ty_args=R.Tensor((2,), "float32"))
            R.memory.kill_tensor(a)
            return d
        """,
    )


def test_after_an_if_nothing_dies_but_branches_do_their_own():
    assert_becomes(
        KillAfterLastUse(),
        """
        @R.function(pure=False)
        def f(x: R.Tensor((2,), "float32"), c: R.Tensor((), "bool")):
            a = R.call_packed("f", x, ty_args=R.Tensor((2,), "float32"))
            b = R.call_packed("f", a, ty_args=R.Tensor((2,), "float32"))
            if c:
                d = R.call_packed("f", b, ty_args=R.Tensor((2,), "float32"))
                e = R.call_packed("f", d, ty_args=R.Tensor((2,), "float32"))
                r = e
            else:
                r = x
            g = R.call_packed("f", r, ty_args=R.Tensor((2,), "float32"))
            h = R.call_packed("f", g, ty_args=R.Tensor((2,), "float32"))
            return h
        """,
        """
        @R.function(pure=False)
        def f(x: R.Tensor((2,), "float32"), c: R.Tensor((), "bool")):
            a = R.call_packed("f", x, ty_args=R.Tensor((2,), "float32"))
            b = R.call_packed("f", a, ty_args=R.Tensor((2,), "float32"))
            R.memory.kill_tensor(a)
            if c:
                d = R.call_packed("f", b, ty_args=R.Tensor((2,), "float32"))
                e = R.call_packed("f", d, ty_args=R.Tensor((2,), "float32"))
                R.memory.kill_tensor(d)
                r = e
            else:
                r = x
            g = R.call_packed("f", r, ty_args=R.Tensor((2,), "float32"))
            h = R.call_packed("f", g, ty_args=R.Tensor((2,), "float32"))
            return h
        """,
    )


def test_what_is_killed_by_hand_is_not_killed_again():
    assert_unchanged(
        KillAfterLastUse(),
        """
        @R.function(pure=False)
        def f(x: R.Tensor((2,), "float32")):
            a = R.call_packed("f", x, ty_args=R.Tensor((2,), "float32"))
            b = R.call_packed("f", a, ty_args=R.Tensor((2,), "float32"))
            R.vm.kill_object(a)
            return b
        """,
    )


def test_constants_and_functions_do_not_die():
    assert_unchanged(
        KillAfterLastUse(),
        """
        @R.function(private=True, pure=False)
        def g(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            return x

        @R.function(pure=False)
        def f(x: R.Tensor((2,), "float32")):
            g = Module.g
            y = g(x)
            return y
        """,
    )


def test_the_result_lives_on():
    assert_unchanged(
        KillAfterLastUse(),
        """
        @R.function(pure=False)
        def f(x: R.Tensor((2,), "float32")):
            a = R.call_packed("f", x, ty_args=R.Tensor((2,), "float32"))
            b = R.call_packed("g", a, ty_args=R.Tensor((2,), "float32"))
            return (a, b)
        """,
    )
