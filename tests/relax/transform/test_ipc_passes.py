"""Memory that GPUs share: IPCAllReduceRewrite and LowerGPUIPCAllocStorage."""

from relaxlab.relax.transform import IPCAllReduceRewrite, LowerGPUIPCAllocStorage
from relaxlab.runtime import register_global_func, remove_global_func
from tests.relax.transform.checks import module

SUMS = """
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        a = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), 0, R.str("global"))
        a2 = R.reshape(a, R.shape([2, 2]))
        b = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), 0, R.str("global"))
        R.call_packed("runtime.disco.allreduce", a2, R.shape([0]), 1, b, ty_args=(R.Tuple,))
        R.call_packed("runtime.disco.allreduce", x, R.shape([0]), 1, b, ty_args=(R.Tuple,))
        R.call_packed("runtime.disco.allreduce", a, R.shape([1]), 1, b, ty_args=(R.Tuple,))
        return b
"""


def test_sums_of_allocated_memory():
    mod = module(SUMS)
    assert IPCAllReduceRewrite(1)(mod) is mod  # the runtime has no such function
    name = "runtime.disco.cuda_ipc.custom_allreduce"
    register_global_func(name, lambda *args: None)
    try:
        lines = [line.strip() for line in IPCAllReduceRewrite(1)(mod).script().splitlines()]
    finally:
        remove_global_func(name)
    scopes = [line.split('R.str("')[1].split('"')[0] for line in lines if "R.builtin" in line]
    assert scopes == ["ipc_memory", "global"]
    assert [line for line in lines if "allreduce" in line] == [
        f'R.call_packed("{name}", a2, 1, b, ty_args=(R.Tuple,))',
        'R.call_packed("runtime.disco.allreduce", x, R.shape([0]), 1, b, ty_args=(R.Tuple,))',
        'R.call_packed("runtime.disco.allreduce", a, R.shape([1]), 1, b, ty_args=(R.Tuple,))',
    ]


def test_storages():
    text = LowerGPUIPCAllocStorage()(
        module(
            """
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        s = R.memory.alloc_storage(R.shape([16]), 0, R.str("ipc_memory"), R.dtype("float32"))
        t = R.memory.alloc_storage(R.shape([16]), 0, R.str("global"), R.dtype("float32"))
        return (s, t)
"""
        )
    ).script()
    assert (
        's: R.Any = R.call_packed("runtime.disco.cuda_ipc.alloc_storage", R.shape([16]), '
        'R.dtype("float32"), ty_args=(R.Any,))'
    ) in text
    assert 't: R.Any = R.memory.alloc_storage(R.shape([16]), 0, R.str("global")' in text


def test_nothing_to_do():
    mod = module("@R.function\ndef main(x: R.Tensor((4,))):\n    return x\n")
    assert LowerGPUIPCAllocStorage()(mod) is mod
