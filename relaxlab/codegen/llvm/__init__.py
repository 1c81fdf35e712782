"""Kernels as LLVM IR with explicit vectors, compiled in the process.

Counterpart: TVM's LLVM back end.
"""
