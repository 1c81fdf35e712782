"""The recorded executables as programs: what was written for TVM, with other imports.

The functions are those that made the JSON files beside this one with the real TVM; only the imports
and the few lines of machinery in front of them differ. Running them must give the same bytes.
"""

import struct
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

import relaxlab as tvm
from relaxlab import relax
from relaxlab.runtime import DataType as DT
from relaxlab.runtime import ShapeTuple as Shape
from relaxlab.runtime.vm import VMExecutable
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tirx as T

PROGRAMS: dict[str, Callable[[], Any]] = {}
F32 = "float32"


def case(name):
    def register(function):
        PROGRAMS[name] = function
        return function

    return register


def LOAD(data):
    return VMExecutable.load_from_bytes(data, verify=False)


def nd(x, dtype=None):
    return tvm.runtime.tensor(np.array(x, dtype=dtype))


def raw_bytes(mod):
    return mod.save_to_bytes()


def eb(*funcs):
    """Build a program from (name, num_inputs, param_names | None, body) tuples."""
    b = relax.ExecBuilder()
    for n, _, _, _ in funcs:
        b.declare_function(n, relax.exec_builder.VMFuncKind.VM_FUNC)
    for n, k, params, body in funcs:
        with b.function(n, num_inputs=k, param_names=params):
            body(b)
    return b.get()


def codegen(mod, mode="bytecode"):
    """Generate code only: ``mod`` must already carry global_symbol and lowered ops."""
    b = relax.ExecBuilder()
    relax.vm_build._vmcodegen(b, mod, exec_mode=mode)
    return b.get()


@case("eb_minimal")
def eb_minimal():
    return eb(("f", 1, ["x"], lambda b: b.emit_ret(b.r(0))))


@case("eb_empty")
def eb_empty():
    return relax.ExecBuilder().get()


@case("eb_two_funcs")
def eb_two_funcs():
    def addmul(b):
        b.emit_call("golden.add", [b.r(0), b.r(1)], dst=b.r(2))
        b.emit_call("golden.mul", [b.r(2), b.r(1)], dst=b.r(3))
        b.emit_ret(b.r(3))

    def mul(b):
        b.emit_call("golden.mul", [b.r(0), b.r(1)], dst=b.r(2))
        b.emit_ret(b.r(2))

    return eb(("addmul", 2, ["a", "b"], addmul), ("mul", 2, None, mul))


@case("eb_neg_imm")
def eb_neg_imm():
    def f(b):
        b.emit_call("golden.iadd", [b.imm(-3), b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))

    def lim(b):
        m = (1 << 55) - 1
        b.emit_call(
            "vm.builtin.make_tuple",
            [b.imm(m), b.imm(-m), b.imm(0), b.imm(-1), b.imm(1 << 54), b.imm((1 << 54) + 1)],
            dst=b.r(0),
        )
        b.emit_ret(b.r(0))

    return eb(("f", 1, ["x"], f), ("lim", 0, [], lim))


@case("eb_big_int_const")
def eb_big_int_const():
    def f(b):
        vals = [
            1 << 55,
            -(1 << 55),
            (1 << 55) - 1,
            -(1 << 55) + 1,
            (1 << 63) - 1,
            -(1 << 63),
            1 << 55,
        ]
        b.emit_call("vm.builtin.make_tuple", [b.convert_constant(v) for v in vals], dst=b.r(0))
        b.emit_ret(b.r(0))

    return eb(("f", 0, [], f))


@case("eb_const_kinds")
def eb_const_kinds():
    def f(b):
        vals = [
            nd(np.arange(6).reshape(2, 3), F32),
            nd(3, "int64"),
            nd([True, False], "bool"),
            nd(np.zeros((0, 3)), "int8"),
            nd([1, 2], "int32"),
            nd([1, 2], "int32"),
            nd([1, 2], "int64"),
            nd([0.0], F32),
            nd([-0.0], F32),
            nd([1.5, -2.0], "float16"),
            Shape([1, 2]),
            Shape([1, 2]),
            Shape([]),
            Shape([-1, 1 << 40]),
            "abc",
            "abc",
            "",
            "a string of more than eight bytes",
            'h\u00e9llo "q"\n',
            DT("float32"),
            DT("float32"),
            DT("int8x4"),
            DT("bool"),
            DT("uint1"),
            DT("int4"),
            DT("bfloat16"),
            DT("float8_e4m3fn"),
            DT("float4_e2m1fn"),
            DT("handle"),
            DT("void"),
            1 << 60,
        ]
        args = [b.convert_constant(v) for v in vals]
        b.emit_call("vm.builtin.make_tuple", args, dst=b.r(0))
        b.emit_ret(b.r(0))

    return eb(("f", 0, [], f))


@case("eb_const_float")
def eb_const_float():
    def f(b):
        vals = [1.5, -0.0, 0.0, float("inf"), float("nan"), float("nan"), 1e-320]
        b.emit_call("vm.builtin.make_tuple", [b.convert_constant(v) for v in vals], dst=b.r(0))
        b.emit_ret(b.r(0))

    return eb(("f", 0, [], f))


@case("eb_empty_shape_stats")
def eb_empty_shape_stats():
    def f(b):
        b.emit_call("vm.builtin.copy", [b.convert_constant(Shape([]))], dst=b.r(0))
        b.emit_ret(b.r(0))

    return eb(("f", 0, [], f))


@case("eb_if")
def eb_if():
    def f(b):
        b.emit_if(b.r(0), 3)
        b.emit_call("golden.iadd", [b.r(1), b.r(2)], dst=b.r(3))
        b.emit_goto(2)
        b.emit_call("golden.imul", [b.r(1), b.r(2)], dst=b.r(3))
        b.emit_ret(b.r(3))

    return eb(("f", 3, ["c", "x", "y"], f))


@case("eb_loop")
def eb_loop():
    def f(b):
        b.emit_call("vm.builtin.copy", [b.r(0)], dst=b.r(1))
        b.emit_call("vm.builtin.copy", [b.imm(0)], dst=b.r(2))
        b.emit_if(b.r(1), 4)
        b.emit_call("golden.iadd", [b.r(2), b.r(1)], dst=b.r(2))
        b.emit_call("golden.iadd", [b.r(1), b.imm(-1)], dst=b.r(1))
        b.emit_goto(-3)
        b.emit_ret(b.r(2))

    return eb(("sum", 1, ["n"], f))


@case("eb_formalize")
def eb_formalize():
    def f(b):
        b.emit_call("golden.iadd", [b.r(0), b.r(1)], dst=b.r(100))
        b.emit_call("golden.imul", [b.r(1), b.r(100)], dst=b.r(50))
        b.emit_call("golden.iadd", [b.r(50), b.r(100)], dst=b.r(1))
        b.emit_call("vm.builtin.copy", [b.r(1)], dst=b.r(100))
        b.emit_ret(b.r(100))

    return eb(("f", 2, ["x", "y"], f))


@case("eb_void")
def eb_void():
    def f(b):
        b.emit_call("golden.nop")
        b.emit_call("golden.nop", [b.void_arg()])
        b.emit_call(
            "golden.kinds", [b.void_arg(), b.r(0), b.imm(1), b.convert_constant("s")], dst=b.r(1)
        )
        b.emit_call("vm.builtin.alloc_shape_heap", [b.vm_state(), b.imm(2)], dst=b.r(2))
        b.emit_call("vm.builtin.shape_of", [b.r(2)], dst=b.r(3))
        b.emit_call("vm.builtin.make_tuple", [b.r(1), b.r(3)], dst=b.r(4))
        b.emit_ret(b.r(4))

    return eb(("f", 1, ["x"], f), ("retvoid", 0, [], lambda b: b.emit_ret(b.void_arg())))


@case("eb_void_call_to_vm_func")
def eb_void_call_to_vm_func():
    def outer(b):
        b.emit_call("inner", [b.r(0)])
        b.emit_ret(b.r(0))

    return eb(("outer", 1, ["x"], outer), ("inner", 1, ["x"], lambda b: b.emit_ret(b.r(0))))


@case("eb_undefined_register")
def eb_undefined_register():
    def f(b):
        b.emit_if(b.r(0), 3)
        b.emit_call("vm.builtin.copy", [b.imm(5)], dst=b.r(1))
        b.emit_goto(1)
        b.emit_ret(b.r(1))

    return eb(("f", 1, ["c"], f))


@case("eb_fallthrough")
def eb_fallthrough():
    return eb(
        ("a", 0, [], lambda b: b.emit_call("vm.builtin.copy", [b.imm(7)], dst=b.r(0))),
        (
            "b",
            0,
            [],
            lambda b: (b.emit_call("vm.builtin.copy", [b.imm(8)], dst=b.r(0)), b.emit_ret(b.r(0))),
        ),
    )


@case("eb_bad_goto")
def eb_bad_goto():
    return eb(
        ("far", 0, [], lambda b: (b.emit_goto(1000), b.emit_ret(b.void_arg()))),
        ("back", 0, [], lambda b: (b.emit_goto(-100), b.emit_ret(b.void_arg()))),
    )


@case("eb_closure")
def eb_closure():
    def three(b):
        b.emit_call("vm.builtin.make_tuple", [b.r(0), b.r(1), b.r(2)], dst=b.r(3))
        b.emit_ret(b.r(3))

    def make(b):
        b.emit_call("vm.builtin.make_closure", [b.f("three"), b.r(0), b.r(1)], dst=b.r(2))
        b.emit_ret(b.r(2))

    def full(b):
        b.emit_call("vm.builtin.make_closure", [b.f("three"), b.r(0), b.r(1)], dst=b.r(3))
        b.emit_call("vm.builtin.invoke_closure", [b.vm_state(), b.r(3), b.r(2)], dst=b.r(4))
        b.emit_ret(b.r(4))

    def chain(b):
        b.emit_call("vm.builtin.make_closure", [b.f("three"), b.r(0)], dst=b.r(3))
        b.emit_call("vm.builtin.make_closure", [b.r(3), b.r(1)], dst=b.r(4))
        b.emit_call("vm.builtin.invoke_closure", [b.vm_state(), b.r(4), b.r(2)], dst=b.r(5))
        b.emit_ret(b.r(5))

    def toomany(b):
        b.emit_call("vm.builtin.make_closure", [b.f("three"), b.r(0), b.r(1)], dst=b.r(2))
        b.emit_call(
            "vm.builtin.invoke_closure", [b.vm_state(), b.r(2), b.imm(1), b.imm(2)], dst=b.r(3)
        )
        b.emit_ret(b.r(3))

    def notclosure(b):
        b.emit_call("vm.builtin.make_closure", [b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))

    def inv_packed(b):
        b.emit_call("golden.iadd", [b.r(0), b.r(0)], dst=b.r(1))
        b.emit_call(
            "vm.builtin.invoke_closure",
            [b.vm_state(), b.f("golden.iadd"), b.r(1), b.imm(1)],
            dst=b.r(2),
        )
        b.emit_ret(b.r(2))

    return eb(
        ("three", 3, ["a", "b", "c"], three),
        ("make", 2, ["x", "y"], make),
        ("full", 3, ["x", "y", "z"], full),
        ("chain", 3, ["x", "y", "z"], chain),
        ("toomany", 2, ["x", "y"], toomany),
        ("notclosure", 1, ["x"], notclosure),
        ("inv_packed", 1, ["x"], inv_packed),
    )


@case("eb_recursion")
def eb_recursion():
    def f(b):
        b.emit_call("vm.builtin.read_if_cond", [b.r(0)], dst=b.r(1))
        b.emit_if(b.r(1), 5)
        b.emit_call("golden.iadd", [b.r(0), b.imm(-1)], dst=b.r(2))
        b.emit_call("fact", [b.r(2)], dst=b.r(3))
        b.emit_call("golden.imul", [b.r(0), b.r(3)], dst=b.r(4))
        b.emit_goto(2)
        b.emit_call("vm.builtin.copy", [b.imm(1)], dst=b.r(4))
        b.emit_ret(b.r(4))

    return eb(("fact", 1, ["n"], f))


@case("eb_storage")
def eb_storage():
    def st(b, n, dst, dev=0, dt="uint8"):
        b.emit_call(
            "vm.builtin.alloc_storage",
            [b.vm_state(), Shape([n]), b.imm(dev), DT(dt), b.convert_constant("global")],
            dst=dst,
        )

    def two(b):
        st(b, 32, b.r(0))
        b.emit_call("vm.builtin.alloc_tensor", [b.r(0), b.imm(0), Shape([8]), DT(F32)], dst=b.r(1))
        b.emit_call("golden.fill", [b.r(1), b.imm(1)])
        b.emit_call(
            "vm.builtin.alloc_tensor", [b.r(0), b.imm(16), Shape([2, 2]), DT(F32)], dst=b.r(2)
        )
        b.emit_call("golden.fill", [b.r(2), b.imm(5)])
        b.emit_call("vm.builtin.make_tuple", [b.r(1), b.r(2)], dst=b.r(3))
        b.emit_ret(b.r(3))

    def big(b):
        st(b, 24, b.r(0))
        b.emit_call(
            "vm.builtin.alloc_tensor", [b.r(0), b.imm(4092), Shape([2]), DT(F32)], dst=b.r(1)
        )
        b.emit_ret(b.r(1))

    def rounding(b):  # the pooled allocator rounds 24 bytes up to 4096
        st(b, 24, b.r(0))
        b.emit_call(
            "vm.builtin.alloc_tensor", [b.r(0), b.imm(4092), Shape([1]), DT(F32)], dst=b.r(1)
        )
        b.emit_call("vm.builtin.shape_of", [b.r(1)], dst=b.r(2))
        b.emit_ret(b.r(2))

    def bad(b):
        st(b, 24, b.r(0), dev=3)
        b.emit_ret(b.r(0))

    return eb(
        ("two_views", 0, [], two),
        ("too_big", 0, [], big),
        ("pooled_rounding", 0, [], rounding),
        ("bad_device", 0, [], bad),
    )


@case("eb_shapes")
def eb_shapes():
    def f(b):
        b.emit_call("vm.builtin.alloc_shape_heap", [b.vm_state(), b.imm(2)], dst=b.r(1))
        b.emit_call(
            "vm.builtin.match_shape",
            [
                b.r(0),
                b.r(1),
                b.imm(2),
                b.imm(1),
                b.imm(0),
                b.imm(0),
                b.imm(3),
                b.convert_constant("ctx"),
            ],
        )
        b.emit_call(
            "vm.builtin.match_shape",
            [
                b.r(0),
                b.r(1),
                b.imm(2),
                b.imm(3),
                b.imm(0),
                b.imm(2),
                b.imm(0),
                b.convert_constant("ctx2"),
            ],
        )
        b.emit_call(
            "vm.builtin.make_shape",
            [b.r(1), b.imm(3), b.imm(1), b.imm(0), b.imm(0), b.imm(9), b.imm(1), b.imm(0)],
            dst=b.r(2),
        )
        b.emit_ret(b.r(2))

    def g(b):
        b.emit_call("vm.builtin.alloc_shape_heap", [b.vm_state(), b.imm(1)], dst=b.r(2))
        b.emit_call(
            "vm.builtin.match_prim_value",
            [b.r(0), b.r(2), b.imm(1), b.imm(0), b.convert_constant("c")],
        )
        b.emit_call(
            "vm.builtin.match_prim_value",
            [b.r(1), b.r(2), b.imm(3), b.imm(0), b.convert_constant("c")],
        )
        b.emit_call("vm.builtin.make_prim_value", [b.r(2), b.imm(1), b.imm(0)], dst=b.r(3))
        b.emit_ret(b.r(3))

    return eb(("f", 1, ["x"], f), ("g", 2, ["x", "y"], g))


@case("eb_kill")
def eb_kill():
    def f(b):
        b.emit_call("vm.builtin.copy", [b.r(0)], dst=b.r(2))
        b.emit_call("vm.builtin.null_value", [], dst=b.r(0))
        b.emit_call("golden.is_none", [b.r(0)], dst=b.r(3))
        b.emit_call("golden.is_none", [b.r(2)], dst=b.r(4))
        b.emit_call("vm.builtin.tuple_reset_item", [b.r(1), b.imm(0)])
        b.emit_call("vm.builtin.make_tuple", [b.r(3), b.r(4), b.r(1)], dst=b.r(5))
        b.emit_ret(b.r(5))

    return eb(("f", 2, ["x", "t"], f))


@case("eb_func_args")
def eb_func_args():
    def f(b):
        b.emit_call("golden.iadd", [b.imm(1), b.imm(2)], dst=b.r(0))
        b.emit_call("golden.kinds", [b.f("g"), b.f("golden.iadd")], dst=b.r(1))
        b.emit_ret(b.r(1))

    return eb(("f", 0, [], f), ("g", 1, ["x"], lambda b: b.emit_ret(b.r(0))))


@case("bytes_v1_magic")
def bytes_v1_magic():
    blob = raw_bytes(eb(("f", 1, ["x"], lambda b: b.emit_ret(b.r(0)))).mod)
    # V2: magic, version, func table, scope section (here an empty vector), constants ...
    off = 8 + 12
    r = off + 8 + 4 + 8 + 1 + 32 + 8 + 8 + 1
    assert blob[r : r + 8] == b"\0" * 8
    v1 = struct.pack("<Q", 0xD225DE2F4214151D) + blob[8:r] + blob[r + 8 :]
    m = LOAD(v1)
    _V1["hex"] = v1.hex()
    return m


_V1 = {}


@case("cg_tuples")
def cg_tuples():
    @I.ir_module
    class M:
        @R.function(pure=False)
        def f(x: R.Any, y: R.Any):
            R.func_attr({"global_symbol": "f"})
            a = x
            t = (
                x,
                (y, a),
                R.const([1, 2], "int32"),
                R.str("s"),
                R.dtype("float32"),
                R.shape([1, 2]),
                R.prim_value(5),
            )
            u = t[1]
            v = t[1][0]
            w = R.call_packed("golden.kinds", u, v, R.tuple(x, y), R.prim_value(-1), ty_args=R.Any)
            return (t, w)

    return codegen(M)


@case("cg_if")
def cg_if():
    @I.ir_module
    class M:
        @R.function(pure=False)
        def f(c: R.Tensor((), "bool"), x: R.Any):
            R.func_attr({"global_symbol": "f"})
            if c:
                a = R.call_packed("golden.iadd", x, R.prim_value(1), ty_args=R.Any)
                b = R.call_packed("golden.imul", a, R.prim_value(2), ty_args=R.Any)
            else:
                b = x
            if c:
                d = b
            else:
                if c:
                    d = R.call_packed("golden.iadd", x, x, ty_args=R.Any)
                else:
                    d = R.prim_value(3)
            return d

    return codegen(M)


@case("cg_calls")
def cg_calls():
    @I.ir_module(check_well_formed=False)
    class M:
        @R.function(pure=False)
        def main(x: R.Any):
            R.func_attr({"global_symbol": "main_sym"})
            a = M.other(x)
            k = M.other
            clo = R.call_packed("vm.builtin.make_closure", M.other, ty_args=R.Any)
            b = R.call_builtin_with_ctx("vm.builtin.invoke_closure", (clo, a), ty_args=R.Any)
            d = R.call_packed("golden.kinds", k, R.ExternFunc("golden.iadd"), clo, ty_args=R.Any)
            e = R.call_packed("golden.is_none", R.null_value(), ty_args=R.Any)
            _ = R.call_packed("golden.nop", x, ty_args=R.Tuple())
            g = R.call_builtin_with_ctx(
                "vm.builtin.alloc_shape_heap", (R.prim_value(2),), ty_args=R.Any
            )
            s = R.call_packed("vm.builtin.shape_of", g, ty_args=R.Any)
            return (b, d, e, s)

        @R.function(pure=False)
        def other(y: R.Any):
            R.func_attr({"global_symbol": "other"})
            return y

    return codegen(M)


@case("cg_call_var")
def cg_call_var():
    @I.ir_module
    class M:
        @R.function(pure=False)
        def main(x: R.Any, fn: R.Callable((R.Any,), R.Any, purity=False)):
            R.func_attr({"global_symbol": "main"})
            a = fn(x)
            return a  # noqa: RET504  # the binding is part of the program

    return codegen(M)


@case("cg_returns")
def cg_returns():
    @I.ir_module
    class M:
        @R.function
        def r_const():
            R.func_attr({"global_symbol": "r_const"})
            return R.const(1.0, "float32")

        @R.function
        def r_unit():
            R.func_attr({"global_symbol": "r_unit"})
            return R.tuple()

        @R.function
        def r_param(x: R.Any, y: R.Any):
            R.func_attr({"global_symbol": "r_param"})
            return y

        @R.function
        def r_null():
            R.func_attr({"global_symbol": "r_null"})
            return R.null_value()

        @R.function
        def r_shape():
            R.func_attr({"global_symbol": "r_shape"})
            return R.shape([2, 3])

        @R.function
        def r_int():
            R.func_attr({"global_symbol": "r_int"})
            return R.prim_value(7)

        @R.function
        def r_bool():
            R.func_attr({"global_symbol": "r_bool"})
            return R.prim_value(T.bool(True))

        @R.function
        def r_i8():
            R.func_attr({"global_symbol": "r_i8"})
            return R.prim_value(T.int8(-1))

        @R.function
        def r_big():
            R.func_attr({"global_symbol": "r_big"})
            return R.prim_value(T.int64(36028797018963968))

        @R.function
        def r_str():
            R.func_attr({"global_symbol": "r_str"})
            return R.str("hello")

        @R.function
        def r_dtype():
            R.func_attr({"global_symbol": "r_dtype"})
            return R.dtype("float16")

    return codegen(M)


@case("cg_const_dedup")
def cg_const_dedup():
    @I.ir_module
    class M:
        @R.function
        def f():
            R.func_attr({"global_symbol": "f"})
            a = R.const([1, 2], "int32")
            b = R.const([1, 2], "int32")
            c = R.const([1, 2], "int64")
            return (
                a,
                b,
                c,
                R.shape([1, 2]),
                R.shape([1, 2]),
                R.str("a"),
                R.str("a"),
                R.dtype("int8"),
                R.dtype("int8"),
                R.prim_value(1 << 56),
                R.prim_value(1 << 56),
            )

        @R.function
        def g():
            R.func_attr({"global_symbol": "g"})
            return (R.const([1, 2], "int32"), R.shape([1, 2]), R.str("b"))

    return codegen(M)


@case("cg_kill_object")
def cg_kill_object():
    @I.ir_module(check_well_formed=False)
    class M:
        @R.function(pure=False)
        def main():
            R.func_attr({"global_symbol": "main"})
            st = R.vm.alloc_storage(R.shape([16]), R.prim_value(0), R.dtype("uint8"))
            al = R.vm.alloc_tensor(st, R.prim_value(0), R.shape([4]), R.dtype("float32"))
            _ = R.call_packed("golden.fill", al, R.prim_value(2), ty_args=R.Tuple())
            alias = al
            _1 = R.vm.kill_object(al)
            _2 = R.vm.kill_object(st)
            a = R.call_packed("golden.is_none", al, ty_args=R.Any)
            b = R.call_packed("golden.is_none", alias, ty_args=R.Any)
            return (a, b, alias)

    return codegen(M)


@case("cg_memory_scope")
def cg_memory_scope():
    vds = (
        [relax.VDevice("llvm", 0, "global"), relax.VDevice("llvm", 0, "texture")]
        if hasattr(relax, "VDevice")
        else [tvm.ir.VDevice("llvm", 0, "global"), tvm.ir.VDevice("llvm", 0, "texture")]
    )
    c0 = tvm.ir.GenericConst(nd([0, 0], F32), relax.TensorType((2,), F32, vdevice=vds[1]))
    x = relax.Var("x", relax.AnyType())
    fn = relax.Function([x], relax.SeqExpr([], c0), relax.AnyType()).with_attr("global_symbol", "f")
    m = tvm.IRModule({"f": fn})
    m.update_global_info("vdevice", vds)
    return codegen(m)


@case("cg_vmtir")
def cg_vmtir():
    @I.ir_module
    class M:
        @R.function(pure=False)
        def f(c: R.Tensor((), "bool"), x: R.Any):
            R.func_attr({"global_symbol": "f"})
            if c:
                b = R.call_packed(
                    "golden.kinds",
                    x,
                    R.const([1, 2], "int32"),
                    R.str("s"),
                    R.dtype("float32"),
                    R.shape([3]),
                    R.prim_value(9),
                    ty_args=R.Any,
                )
            else:
                b = x
            return b

    return codegen(M, "compiled")


K_ADD = {"add": "args (a, b, out): out[...] = a + b"}


@case("build_add_const")
def build_add_const():
    @I.ir_module
    class M:
        @R.function
        def main(x: R.Tensor((2, 2), "float32")) -> R.Tensor((2, 2), "float32"):
            with R.dataflow():
                y = R.add(x, R.const(np.ones((2, 2), "float32")))
                R.output(y)
            return y

    return relax.build(M, "llvm")


@case("build_memory_reuse")
def build_memory_reuse():
    @I.ir_module
    class M:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a = R.add(x, x)
                b = R.multiply(a, a)
                c = R.subtract(b, x)
                d = R.add(c, c)
                e = R.multiply(d, x)
                R.output(e)
            return e

    return relax.build(M, "llvm")


n = TypeVar("n")


@case("build_symbolic")
def build_symbolic():
    @I.ir_module
    class M:
        @R.function
        def main(x: R.Tensor((n, 4), "float32")) -> R.Tensor((n, 4), "float32"):
            with R.dataflow():
                y = R.add(x, x)
                z = R.reshape(y, (n * 4,))
                q = R.reshape(z, (n, 4))
                R.output(q)
            return q

    return relax.build(M, "llvm")


@case("build_match_cast")
def build_match_cast():
    m_, k_ = tvm.tirx.Var("m", "int64"), tvm.tirx.Var("k", "int64")
    n_ = tvm.tirx.Var("n", "int64")
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([n_, m_], F32))
    y = relax.Var("y", relax.AnyType())
    with bb.function("main", [x, y]):
        z = bb.match_cast(y, relax.TensorType([m_, k_], F32))
        s = bb.emit(relax.ShapeExpr([n_, k_, 7]))
        bb.emit_func_output(relax.Tuple([z, s]))
    return relax.build(bb.get(), "llvm")


@case("build_shape_params")
def build_shape_params():
    a_, b_ = tvm.tirx.Var("a", "int64"), tvm.tirx.Var("b", "int64")
    bb = relax.BlockBuilder()
    s = relax.Var("s", relax.ShapeType([a_, b_]))
    with bb.function("main", [s]):
        r = bb.emit(relax.ShapeExpr([a_ * 2, b_ * 3]))
        bb.emit_func_output(r)
    return relax.build(bb.get(), "llvm")


@case("build_params_checks")
def build_params_checks():
    @I.ir_module
    class M:
        @R.function
        def main(
            t: R.Tuple(R.Tensor(("n",), "float32"), R.Any),
            s: R.Shape(["n", "k"]),
            u: R.Tensor,
            p: R.Prim("int64"),
            q: R.Prim("float32"),
            b: R.Prim("bool"),
        ) -> R.Any:
            return (t, s, u, p)

    return relax.build(M, "llvm")


@case("build_closure")
def build_closure():
    @I.ir_module
    class M:
        @R.function
        def lifted(x: R.Tensor((2,), "float32"), env: R.Tensor((2,), "float32")):
            return R.call_pure_packed("golden.mul", x, env, ty_args=(R.Tensor((2,), "float32")))

        @R.function
        def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
            clo = R.make_closure(M.lifted, (x,))
            res = R.invoke_pure_closure(clo, (y,), ty_args=(R.Tensor((2,), "float32")))
            return res  # noqa: RET504

    return relax.build(M, "llvm")


@case("build_packed")
def build_packed():
    @I.ir_module
    class M:
        @R.function(pure=False)
        def main(x: R.Tensor((2,), "float32")):
            a = R.call_pure_packed("golden.add", x, x, ty_args=(R.Tensor((2,), "float32")))
            _ = R.call_packed("golden.nop", a, ty_args=(R.Tuple()))
            b = R.call_dps_packed("golden.copy_into", (a,), R.Tensor((2,), dtype="float32"))
            c = R.call_packed("golden.mul", a, b, ty_args=(R.Tensor((2,), "float32")))
            return (a, b, c)

    return relax.build(M, "llvm")


@case("build_recursion")
def build_recursion():
    @I.ir_module
    class M:
        @R.function
        def main(x: R.Tensor((1,), "float32")) -> R.Tensor((1,), "float32"):
            c0 = R.equal(x, R.const([0], "float32"))
            c = R.squeeze(c0)
            if c:
                r = R.const([1], "float32")
            else:
                y = R.subtract(x, R.const([1], "float32"))
                z = M.main(y)
                r = R.add(z, z)
            return r

    return relax.build(M, "llvm")


@case("build_sub_function")
def build_sub_function():
    @I.ir_module
    class M:
        @R.function
        def pair(x: R.Tensor((2,), "float32")) -> R.Tuple(
            R.Tensor((2,), "float32"), R.Tuple(R.Tensor((2,), "float32"))
        ):
            y = R.add(x, x)
            return (x, (y,))

        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            t = M.pair(x)
            u = t[1]
            v = u[0]
            w = R.add(v, t[0])
            return w  # noqa: RET504

    return relax.build(M, "llvm")


@case("build_compiled")
def build_compiled():
    @I.ir_module
    class M:
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            with R.dataflow():
                y = R.add(x, x)
                R.output(y)
            return y

    return relax.build(M, "llvm", exec_mode="compiled")


@case("build_cuda_graph")
def build_cuda_graph():
    @I.ir_module
    class M:
        @R.function
        def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            with R.dataflow():
                a = R.add(x, x)
                b = R.multiply(a, a)
                c = R.nn.relu(b)
                d = R.exp(c)
                e = R.add(d, x)
                R.output(e)
            return e

    tr = relax.transform
    with tvm.ir.transform.PassContext(config={"relax.backend.use_cuda_graph": True}):
        low = tvm.ir.transform.Sequential(
            [
                tr.LegalizeOps(),
                tr.RewriteDataflowReshape(),
                tr.ToNonDataflow(),
                tr.RemovePurityChecking(),
                tr.CallTIRRewrite(),
                tr.StaticPlanBlockMemory(),
                tr.RewriteCUDAGraph(),
                tr.LowerAllocTensor(),
                tr.KillAfterLastUse(),
                tr.LowerRuntimeBuiltin(),
                tr.ComputePrimValue(),
                tr.VMShapeLower(),
                tr.AttachGlobalSymbol(),
            ]
        )(M)
    return codegen(low)
