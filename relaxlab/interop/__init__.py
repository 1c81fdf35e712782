"""What touches a real TVM: its processes, its machine code, its virtual machine.

Everything else in the package reads TVM's files as data. Here code of other people runs in this
process, by request only, and with packages that are optional:

``relaxlab.interop.tvm_ffi`` (extra ``tvmffi``)
    Runs the real kernels of a library that TVM exported, under our virtual machine.
``relaxlab.interop.tvm`` (extra ``tvm``)
    Moves programs between this process's TVM and ours, in both directions.

Native code is not checked: a library that is broken, or made for another version, can end the
process. Counterpart: none.

Examples
--------
>>> from relaxlab.interop import tvm_ffi
>>> tvm_ffi.is_installed() in (True, False)
True
"""

__all__: list[str] = []
