"""Faults that a compiler of Relax must not have, as kinds: both pipelines, both execution modes.

Each was seen in the real TVM, or lies close to one that was. The value that a program must have is
computed by NumPy; beside it no storage may be shared by two tensors that are both needed.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxlab import relax, runtime
from relaxlab.errors import InternalError
from relaxlab.ir import Sequential, Target
from relaxlab.relax import transform
from relaxlab.relax.analysis import storage_liveness, well_formed
from relaxlab.relax.pass_recorder import PassRecorder
from relaxlab.runtime import ShapeTuple
from relaxlab.script import from_source

PIPELINES = {
    "default": relax.get_pipeline("default"),
    "fusing": relax.get_default_pipeline(Target("llvm")),
}
WAYS = list(itertools.product(PIPELINES, ("bytecode", "compiled")))
X = np.array([1, 2], "float32")
TENSOR = 'R.Tensor((2,), "float32")'


def module(functions, check=True):
    body = "\n".join(f"    {line}" for line in functions.strip("\n").splitlines())
    return from_source(f"@I.ir_module\nclass Module:\n{body}\n", check_well_formed=check)


def machine(mod, way, passes=None):
    """Return a machine for a module; no two tensors that are needed share a storage in it."""
    kind, mode = way
    recorder = PassRecorder()
    with recorder.recording():
        ex = relax.build(
            transform.LambdaLift()(mod),
            "numpy",
            relax_pipeline=passes or PIPELINES[kind],
            exec_mode=mode,
        )
    lowered = recorder.after(len(recorder) - 1)
    for memory in storage_liveness(lowered).functions:
        assert memory.conflicts() == (), str(memory)
    return relax.VirtualMachine(ex, runtime.cpu())


def run(mod, way, *inputs, passes=None):
    return machine(mod, way, passes)["main"](*inputs)


def check_all_ways(mod, want, *inputs, **tolerance):
    """Run a module in all ways."""
    for way in WAYS:
        got = run(mod, way, *inputs)
        np.testing.assert_allclose(got.numpy(), want, **{"rtol": 1e-5, **tolerance})


# ---------------------------------------------------------------- memory

#: Ways to give a value another name that shares its memory: code from ``a`` to ``z``.
ALIASES = {
    "match_cast": 'z = R.match_cast(a, R.Tensor((2,), "float32"))',
    "match_cast to a size": 'z = R.match_cast(a, R.Tensor((n,), "float32"))',
    "a name": "z = a",
    "a tuple": "t = (a, x)\n        z = t[0]",
    "a nested tuple": "t = ((x, a), x)\n        u = t[0]\n        z = u[1]",
    "a reshape": "v = R.reshape(a, (1, 2))\n        z = R.reshape(v, (2,))",
    "a cast of a reshape": (
        "v = R.reshape(a, (2, 1))\n"
        '        w = R.match_cast(v, R.Tensor((2, 1), "float32"))\n'
        "        z = R.reshape(w, (2,))"
    ),
    "a cast of a cast": (
        'v = R.match_cast(a, R.Tensor((2,), "float32"))\n'
        '        z = R.match_cast(v, R.Tensor((2,), "float32"))'
    ),
}


@pytest.mark.parametrize("dataflow", [True, False])
@pytest.mark.parametrize("alias", ALIASES)
def test_what_an_alias_keeps_alive_is_not_reused(alias, dataflow):
    """The value under its first name is done with; storages are asked for; then comes the alias."""
    code = ALIASES[alias]
    symbolic = "(n," in code
    ty = 'R.Tensor(("n",), "float32")' if symbolic else TENSOR
    lines = [
        "a = R.exp(x)",
        *code.replace("        ", "").splitlines(),
        "b = R.negative(x)",
        "c = R.tanh(b)",
        "d = R.add(c, b)",
        "e = R.multiply(d, z)",
    ]
    if dataflow:
        body = ["with R.dataflow():", *("    " + line for line in lines), "    R.output(e)"]
    else:
        body = lines
    if symbolic:
        body = ["n = T.int64()", *body]
    mod = module(
        f"@R.function\ndef main(x: {ty}):\n"
        + "\n".join("    " + line for line in [*body, "return e"])
    )
    check_all_ways(mod, (np.tanh(-X) - X) * np.exp(X), X)


@given(seed=st.integers(0, 2**32 - 1), length=st.integers(3, 14))
@settings(max_examples=25, deadline=None)
def test_random_chains_of_values_and_aliases(seed, length):
    """Values, casts, reshapes, tuples and names in any order: as in NumPy, whatever is reused."""
    random = np.random.default_rng(seed)
    values = {"x": X.astype("float64")}
    lines = []
    for number in range(length):
        name = f"v{number}"
        one, other = random.choice(list(values), 2)
        match random.integers(6):
            case 0:
                lines.append(f"{name} = R.add({one}, {other})")
                values[name] = values[one] + values[other]
            case 1:
                lines.append(f"{name} = R.tanh({one})")
                values[name] = np.tanh(values[one])
            case 2:
                lines.append(f'{name} = R.match_cast({one}, R.Tensor((2,), "float32"))')
                values[name] = values[one]
            case 3:
                lines.append(f"{name}r = R.reshape({one}, (2, 1))")
                lines.append(f"{name} = R.reshape({name}r, (2,))")
                values[name] = values[one]
            case 4:
                lines.append(f"{name}t = ({one}, ({other}, {one}))")
                lines.append(f"{name}u = {name}t[1]")
                lines.append(f"{name} = {name}u[0]")
                values[name] = values[other]
            case _:
                lines.append(f"{name} = {one}")
                values[name] = values[one]
    names = random.choice(list(values), 2)
    lines.append(f"result = R.add({names[0]}, {names[1]})")
    body = "\n".join("        " + line for line in lines)
    mod = module(
        f"@R.function\ndef main(x: {TENSOR}):\n    with R.dataflow():\n{body}\n"
        "        R.output(result)\n    return result"
    )
    want = values[names[0]] + values[names[1]]
    for way in WAYS:
        np.testing.assert_allclose(run(mod, way, X).numpy(), want, rtol=1e-4)


BRANCHES = """
@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor(({rows}, 3), "float32")):
    before = R.exp(x)
    if c:
        a = R.add(before, x)
        b = R.multiply(a, a)
        r = R.negative(b)
    else:
        d = R.multiply(before, x)
        e = R.add(d, d)
        f = R.add(e, d)
        r = R.tanh(f)
    s = R.add(r, x)
    t = R.multiply(s, s)
    return t
"""


@pytest.mark.parametrize("rows", ["2", '"n"'])
@pytest.mark.parametrize("condition", [True, False])
def test_both_branches_allocate(condition, rows):
    x = np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)
    before = np.exp(x)
    r = -((before + x) ** 2) if condition else np.tanh(3 * before * x)
    check_all_ways(module(BRANCHES.format(rows=rows)), (r + x) ** 2, np.array(condition), x)


@pytest.mark.parametrize("choice", list(itertools.product([True, False], repeat=2)))
def test_branches_inside_branches_allocate(choice):
    mod = module(
        f"""
@R.function
def main(c: R.Tensor((), "bool"), d: R.Tensor((), "bool"), x: {TENSOR}):
    if c:
        a = R.exp(x)
        if d:
            b = R.add(a, x)
            p = R.multiply(b, b)
        else:
            b = R.negative(a)
            p = R.add(b, b)
        r = R.add(p, a)
    else:
        a = R.tanh(x)
        r = R.add(a, x)
    t = R.multiply(r, x)
    return t
"""
    )
    a = np.exp(X)
    inner = (a + X) ** 2 if choice[1] else -2 * a
    want = ((inner + a) if choice[0] else np.tanh(X) + X) * X
    check_all_ways(mod, want, np.array(choice[0]), np.array(choice[1]), X)


def kills(*, twice=False, first=False, before_folding=False):
    """Return a lowering with more kills than the pipeline has."""
    kill = transform.KillAfterLastUse()
    return Sequential(
        [
            *([kill] if first else []),
            transform.LegalizeOps(),
            *([kill] if before_folding else []),
            transform.AnnotateTIROpPattern(),
            transform.FoldConstant(),
            transform.ToNonDataflow(),
            transform.RemovePurityChecking(),
            transform.CallTIRRewrite(),
            transform.StaticPlanBlockMemory(),
            transform.LowerAllocTensor(),
            kill,
            *([kill] if twice else []),
            transform.FoldConstant(),
            transform.LowerRuntimeBuiltin(),
            transform.ComputePrimValue(),
            transform.VMShapeLower(),
            transform.AttachGlobalSymbol(),
        ]
    )


FOLDABLE = f"""
@R.function
def main(x: {TENSOR}):
    k = R.add(R.const([1.0, 2.0], "float32"), R.const([3.0, 4.0], "float32"))
    a = R.exp(x)
    b = R.multiply(a, k)
    c = R.add(b, k)
    return c
"""


@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
@pytest.mark.parametrize(
    "options",
    [{"twice": True}, {"first": True}, {"before_folding": True}, {"twice": True, "first": True}],
    ids=str,
)
def test_kills_twice_and_before_constants_are_folded(options, mode):
    got = run(module(FOLDABLE), ("default", mode), X, passes=kills(**options))
    np.testing.assert_allclose(got.numpy(), np.exp(X) * [4, 6] + [4, 6], rtol=1e-5)


def test_kills_are_there_once():
    mod = module(FOLDABLE)
    for step in kills().passes[:-5]:
        mod = step(mod)
    assert transform.KillAfterLastUse()(mod) is mod


NAMES = {
    "a name": "b = a",
    "a name of a name": "n = a\n    b = n",
    "a cast": f"b = R.match_cast(a, {TENSOR})",
    "a field": "t = (x, a)\n    b = t[1]",
    "a view": "v = R.reshape(a, (2, 1))\n    b = R.reshape(v, (2,))",
}


@pytest.mark.parametrize("dead", ["a", "b"])
@pytest.mark.parametrize("name", NAMES)
def test_of_two_names_of_one_value_one_is_killed(name, dead):
    alive = "b" if dead == "a" else "a"
    mod = module(
        f"""
@R.function(pure=False)
def main(x: {TENSOR}):
    a = R.exp(x)
    {NAMES[name]}
    R.vm.kill_object({dead})
    c = R.add({alive}, x)
    return c
"""
    )
    for way in WAYS:
        np.testing.assert_allclose(run(mod, way, X).numpy(), np.exp(X) + X, rtol=1e-5)


TWICE = """
@T.prim_func(private=True, s_tir=True)
def twice(a: T.Buffer((T.int64(1), T.int64(2)), "float32")):
    for i, j in T.grid(T.int64(1), T.int64(2)):
        with T.sblock("twice"):
            vi, vj = T.axis.remap("SS", [i, j])
            a[vi, vj] = a[vi, vj] * T.float32(2)
"""
#: What stands for the tensor that is viewed, and its value.
WRITTEN = {"computed": ("R.exp(x)", np.exp(X)), "the caller's own": ("x", X)}
VIEWS = {
    "expand_dims": "R.expand_dims(p, axis=0)",
    "reshape": "R.reshape(p, (1, 2))",
    "reshape of reshape": "R.reshape(R.reshape(p, (2, 1)), (1, 2))",
}


@pytest.mark.parametrize("other", ["b", "R.expand_dims(p, axis=0)"])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("written", WRITTEN)
def test_writing_in_place_through_one_view_leaves_the_other_alone(written, view, other):
    value, number = WRITTEN[written]
    mod = module(
        TWICE
        + f"""
@R.function
def main(x: {TENSOR}):
    cls = Module
    with R.dataflow():
        p = {value}
        a = {VIEWS[view]}
        b = {VIEWS[view]}
        c = R.call_tir_inplace(
            cls.twice, (a,), inplace_indices=[0], out_ty=R.Tensor((1, 2), "float32")
        )
        d = R.add({other}, c)
        R.output(d)
    return d
"""
    )
    x = X.copy()
    for way in WAYS:
        np.testing.assert_allclose(run(mod, way, x).numpy(), [3 * number], rtol=1e-5)
        np.testing.assert_array_equal(x, X)  # the caller's array is the caller's


def test_a_view_that_nobody_else_reads_is_one():
    mod = module(
        TWICE
        + f"""
@R.function
def main(x: {TENSOR}):
    cls = Module
    with R.dataflow():
        p = R.exp(x)
        a = R.expand_dims(p, axis=0)
        c = R.call_tir_inplace(
            cls.twice, (a,), inplace_indices=[0], out_ty=R.Tensor((1, 2), "float32")
        )
        d = R.add(c, c)
        R.output(d)
    return d
"""
    )
    legal = transform.LegalizeOps()(mod)
    assert "R.reshape(p" in transform.RewriteDataflowReshape()(legal).script()
    check_all_ways(mod, [4 * np.exp(X)], X)


def test_removing_dead_code_keeps_what_an_impure_call_needs(capsys):
    mod = module(
        f"""
@R.function(pure=False)
def main(x: {TENSOR}):
    a = R.exp(x)
    b = R.add(a, a)
    _ = R.print(b, format="{{}}")
    unused = R.tanh(b)
    return x
"""
    )
    swept = transform.DeadCodeElimination()(mod)
    assert "R.exp" in swept.script()
    assert "R.tanh" not in swept.script()
    legal = transform.DeadCodeElimination()(transform.LegalizeOps()(mod))
    for program in (mod, swept, legal):
        for way in WAYS:
            capsys.readouterr()
            np.testing.assert_array_equal(run(program, way, X).numpy(), X)
            assert "5.43656" in capsys.readouterr().out


# ---------------------------------------------------------------- shapes


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("cast", ["n", "m"])
def test_a_cast_that_is_negated_split_and_joined(cast, axis):
    mod = module(
        f"""
@R.function
def main(x: R.Tensor(("n", 4), "float32")):
    n = T.int64()
    m = T.int64()
    with R.dataflow():
        a = R.match_cast(x, R.Tensor(({cast}, 4), "float32"))
        b = R.negative(a)
        c = R.match_cast(b, R.Tensor(({cast}, 4), "float32"))
        s = R.split(c, 2, axis={axis})
        s0 = s[0]
        s1 = s[1]
        r = R.concat((s1, s0), axis={axis})
        R.output(r)
    return r
"""
    )
    x = np.arange(16, dtype="float32").reshape(4, 4)
    one, other = np.split(-x, 2, axis=axis)
    check_all_ways(mod, np.concatenate([other, one], axis=axis), x)


NESTED = {
    "made": (
        f"def main(x: {TENSOR}, y: {TENSOR}):",
        ["a = R.exp(x)", "b = R.tanh(y)", "t = ((a, b), (b, (a, x)))"],
        "t[1][1][0]",
        "t[0][1]",
        lambda: (np.exp(X), np.tanh(-X)),
        (X, -X),
    ),
    "given": (
        f"def main(t: R.Tuple(R.Tuple({TENSOR}, {TENSOR}), {TENSOR})):",
        [],
        "t[0][1]",
        "t[1]",
        lambda: (-X, 2 * X),
        (((X, -X), 2 * X),),
    ),
}


@pytest.mark.parametrize("step_by_step", [True, False])
@pytest.mark.parametrize("kind", NESTED)
def test_fields_of_tuples_in_tuples(kind, step_by_step):
    head, lines, one, other, values, inputs = NESTED[kind]
    body = list(lines)
    for name, path in (("p", one), ("q", other)):
        if not step_by_step:
            body.append(f"{name} = {path}")
            continue
        now = "t"
        for number, index in enumerate(path[1:].replace("]", "").split("[")[1:]):
            body.append(f"{name}{number} = {now}[{index}]")
            now = f"{name}{number}"
        body.append(f"{name} = {now}")
    body += ["r = R.add(p, q)", "s = R.exp(r)", "R.output(s)"]
    code = "\n".join("        " + line for line in body)
    mod = module(f"@R.function\n{head}\n    with R.dataflow():\n{code}\n    return s")
    want = np.exp(sum(values()))
    for way in WAYS:
        np.testing.assert_allclose(run(mod, way, *inputs).numpy(), want, rtol=1e-5)


RESHAPES = {
    "a shape": (
        'def main(x: R.Tensor((6,), "float32"), s: R.Shape(ndim=2)):',
        ["y = R.reshape(x, s)"],
        ShapeTuple,
    ),
    "a shape with names": (
        'def main(x: R.Tensor((6,), "float32"), s: R.Shape(["a", "b"])):',
        ["a = T.int64()", "b = T.int64()", "e = R.add(x, x)", "y = R.reshape(e, (a, b))"],
        ShapeTuple,
    ),
    "a tensor": (
        'def main(x: R.Tensor((6,), "float32"), t: R.Tensor((2,), "int64")):',
        ["s = R.tensor_to_shape(t)", "y = R.reshape(x, s)"],
        lambda shape: np.array(shape, "int64"),
    ),
}


@pytest.mark.parametrize("way", WAYS, ids="-".join)
@pytest.mark.parametrize("kind", RESHAPES)
def test_reshape_by_a_shape_that_comes_at_run_time(kind, way):
    head, lines, shape = RESHAPES[kind]
    code = "\n".join("    " + line for line in [*lines, "return y"])
    vm = machine(module(f"@R.function\n{head}\n{code}"), way)
    x = np.arange(6, dtype="float32")
    factor = 2 if "e = R.add(x, x)" in lines else 1
    for good in ((2, 3), (3, 2), (6, 1), (1, 6)):
        got = vm["main"](x, shape(good)).numpy()
        np.testing.assert_array_equal(got, factor * x.reshape(good))
    for bad in ((4, 2), (7, 1)):
        with pytest.raises(ValueError, match=r"reshape.*6 elements"):
            vm["main"](x, shape(bad))
    np.testing.assert_array_equal(vm["main"](x, shape((2, 3))).numpy().size, 6)


def test_reshape_inside_a_dataflow_block_checks_too():
    mod = module(
        """
@R.function
def main(x: R.Tensor(("n",), "float32"), s: R.Shape(["a", "b"])):
    a = T.int64()
    b = T.int64()
    with R.dataflow():
        e = R.exp(x)
        y = R.reshape(e, (a, b))
        z = R.negative(y)
        R.output(z)
    return z
"""
    )
    x = np.arange(6, dtype="float32")
    check_all_ways(mod, -np.exp(x).reshape(2, 3), x, ShapeTuple((2, 3)))
    for way in WAYS:
        with pytest.raises(ValueError, match=r"reshape.*6 elements.*8"):
            run(mod, way, x, ShapeTuple((4, 2)))


UNKNOWN = [
    "R.add(y, y)",
    "R.matmul(y, y)",
    "R.exp(y)",
    "R.sum(y)",
    "R.concat((y, y))",
    "R.nn.softmax(y)",
    "R.strided_slice(y, [0], [0], [1])",
]


@pytest.mark.parametrize("way", WAYS, ids="-".join)
@pytest.mark.parametrize("call", UNKNOWN)
def test_an_operator_on_an_unknown_shape_is_named_with_what_fixes_it(call, way):
    name = call.partition("(")[0].removeprefix("R.")
    mod = module(
        f"""
@R.function
def main(x: R.Tensor((6,), "float32"), s: R.Shape(ndim=2)):
    y = R.reshape(x, s)
    z = {call}
    return z
"""
    )
    with pytest.raises(InternalError) as caught:
        machine(mod, way)
    message = str(caught.value)
    assert f"the operator 'relax.{name}' at <str>:6:13" in message
    assert "the shape of its argument y" in message
    assert '`y1 = R.match_cast(y, R.Tensor((m, n), "float32"))`' in message


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_the_fix_that_is_named_works(way):
    mod = module(
        """
@R.function
def main(x: R.Tensor((6,), "float32"), s: R.Shape(ndim=2)):
    m = T.int64()
    n = T.int64()
    y = R.reshape(x, s)
    y1 = R.match_cast(y, R.Tensor((m, n), "float32"))
    z = R.add(y1, y1)
    return z
"""
    )
    x = np.arange(6, dtype="float32")
    got = run(mod, way, x, ShapeTuple((2, 3)))
    np.testing.assert_array_equal(got.numpy(), 2 * x.reshape(2, 3))


@pytest.mark.parametrize(
    ("signature", "call", "words"),
    [
        (
            'x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")',
            "R.add(x, y)",
            ["relax.add", "shape of its result", "nothing says that their sizes", "match_cast"],
        ),
        (
            'x: R.Tensor(("n",))',
            "R.add(x, x)",
            ["relax.add", "dtype of its argument x", "match_cast"],
        ),
        (
            'x: R.Tensor(dtype="float32")',
            "R.exp(x)",
            ["relax.exp", "shape of its argument x", "match_cast"],
        ),
        (
            't: R.Tuple(R.Tensor(ndim=1, dtype="float32"), R.Tensor((2,), "float32"))',
            "R.concat(t)",
            ["relax.concat", "shape", "match_cast"],
        ),
    ],
)
def test_other_things_that_are_not_known(signature, call, words):
    mod = module(f"@R.function\ndef main({signature}):\n    z = {call}\n    return z")
    for way in WAYS:
        with pytest.raises(InternalError) as caught:
            machine(mod, way)
        for word in words:
            assert word in str(caught.value)


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_a_vocabulary_of_unknown_size_in_a_fused_take(way):
    mod = module(
        """
@R.function
def main(i: R.Tensor(("k",), "int64"), e: R.Tensor(("vocab", 4), "float32")):
    with R.dataflow():
        a = R.take(e, i, axis=0)
        b = R.multiply(a, R.const(2.0, "float32"))
        c = R.exp(b)
        R.output(c)
    return c
"""
    )
    vm = machine(mod, way)
    table = np.arange(12, dtype="float32").reshape(3, 4) / 10
    got = vm["main"](np.array([0, 2]), table)
    np.testing.assert_allclose(got.numpy(), np.exp(2 * table[[0, 2]]), rtol=1e-5)
    for wrong in (3, -1, 2**40, -(2**40)):
        with pytest.raises(IndexError, match=rf"index {wrong} .*outside \[0, 3\)"):
            vm["main"](np.array([0, wrong]), table)
    np.testing.assert_allclose(vm["main"](np.array([1]), table).numpy(), np.exp(2 * table[[1]]))


def test_one_symbolic_variable_in_two_functions():
    """A module that shares it is ill-formed, and says so; it runs all the same."""
    n = relax.Var("n", "int64")
    builder = relax.BlockBuilder()
    for name in ("f", "main"):
        x = relax.Var("x", relax.TensorType([n, 2], "float32"))
        with builder.function(name, [x]):
            builder.emit_func_output(builder.emit(relax.op.add(x, x)))
    mod = builder.get()
    with pytest.raises(ValueError, match='n is defined in both function "f" and function "main"'):
        well_formed(mod)
    for way in WAYS:
        vm = machine(mod, way)
        for name, rows in (("main", 3), ("f", 1), ("main", 2)):
            got = vm[name](np.ones((rows, 2), "float32"))
            np.testing.assert_array_equal(got.numpy(), np.full((rows, 2), 2))


def test_one_name_of_a_size_in_two_functions():
    mod = module(
        """
@R.function
def double(x: R.Tensor(("n", 2), "float32")) -> R.Tensor(("n", 2), "float32"):
    y = R.add(x, x)
    return y

@R.function
def main(x: R.Tensor(("n", 2), "float32"), y: R.Tensor(("m", 2), "float32")):
    cls = Module
    a = cls.double(x)
    b = cls.double(y)
    c = R.concat((a, b), axis=0)
    return c
"""
    )
    x, y = np.ones((2, 2), "float32"), np.zeros((3, 2), "float32")
    check_all_ways(mod, np.concatenate([2 * x, 2 * y]), x, y)


# ---------------------------------------------------------------- closures

CALLABLE = f"R.Callable(({TENSOR},), {TENSOR})"
CLOSURES = {
    "one returns the other": f"""
@R.function
def main(x: {TENSOR}, y: {TENSOR}) -> {TENSOR}:
    @R.function
    def outer(a: {TENSOR}) -> {CALLABLE}:
        b = R.add(a, x)
        @R.function
        def inner(c: {TENSOR}) -> {TENSOR}:
            d = R.multiply(c, b)
            e = R.add(d, y)
            return e
        return inner
    f = outer(y)
    g = f(x)
    return g
""",
    "from a function of the module": f"""
@R.function
def main(x: {TENSOR}, y: {TENSOR}) -> {TENSOR}:
    cls = Module
    f = cls.make(x)
    g = f(y)
    h = g(x)
    r = R.add(h, y)
    return r

@R.function
def make(x: {TENSOR}) -> R.Callable(({TENSOR},), {CALLABLE}):
    @R.function
    def one(y: {TENSOR}) -> {CALLABLE}:
        s = R.add(x, y)
        @R.function
        def two(z: {TENSOR}) -> {TENSOR}:
            d = R.multiply(s, z)
            return d
        return two
    return one
""",
    "chosen by an If": f"""
@R.function
def main(x: {TENSOR}, y: {TENSOR}) -> {TENSOR}:
    @R.function
    def outer(a: {TENSOR}) -> {CALLABLE}:
        @R.function
        def inner(c: {TENSOR}) -> {TENSOR}:
            b = R.add(a, x)
            d = R.multiply(c, b)
            return d
        return inner
    f = outer(y)
    k = R.const(True, "bool")
    if k:
        g = f(x)
    else:
        g = f(y)
    r = R.add(g, y)
    return r
""",
}


@pytest.mark.parametrize("name", CLOSURES)
def test_closures_that_return_closures(name):
    mod = module(CLOSURES[name])
    want = X * (-X + X) + -X  # all three: (x + y) * x + y
    lifted = transform.LambdaLift()(mod)
    well_formed(lifted)
    for way in WAYS:
        np.testing.assert_allclose(run(mod, way, X, -X).numpy(), want, atol=1e-6)
