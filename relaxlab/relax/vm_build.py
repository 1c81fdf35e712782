"""From a module to an executable: ``relax.build``.

The steps are those of TVM and can be called one by one: a pipeline lowers the module,
:func:`_vmcodegen` emits the Relax functions as bytecode, :func:`_filter_tir` keeps the kernels,
:func:`_vmlink` compiles them and imports them into the executable.
Counterpart: ``tvm.relax.vm_build``.

Examples
--------
>>> from relaxlab import relax
>>> from relaxlab.script import from_source
>>> mod = from_source('''
... @I.ir_module
... class Module:
...     @R.function
...     def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
...         y = R.add(x, x)
...         return y
... ''')
>>> relax.build(mod, "numpy").as_text().splitlines()[0]
'@main:'
"""

from collections.abc import Mapping, Sequence
from typing import Any

from relaxlab.codegen import GENERATORS, Library, default_target, vmtir
from relaxlab.codegen import build as build_kernels
from relaxlab.ir import IRModule, Pass, Target
from relaxlab.relax import codegen_vm, codegen_vm_tir
from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.relax.pipeline import get_default_pipeline, get_pipeline
from relaxlab.runtime.vm.executable import KernelLibrary, VMExecutable
from relaxlab.runtime.vm.function_body import BODY_PREFIX
from relaxlab.tirx import PrimFunc

__all__ = ["build"]


def build(
    mod: IRModule,
    target: str | Target | None = None,
    params: Mapping[str, Any] | None = None,
    relax_pipeline: str | Pass | None = "default",
    tir_pipeline: str | Pass | None = "default",
    exec_mode: str = "bytecode",
    *,
    system_lib: bool | None = None,
) -> VMExecutable:
    """Compile a module.

    Parameters
    ----------
    mod
        Relax functions and kernels; it is not changed.
    target
        What kernels are compiled for; None picks the best that is installed.
    params
        Constants for external modules, by name. To bind weights use
        ``relax.transform.BindParams`` before building.
    relax_pipeline
        Name of a pipeline, a pass, or None when the module is lowered already.
    tir_pipeline
        ``"default"``, or a pass run over the kernels before they are compiled.
    exec_mode
        ``"bytecode"``, or ``"compiled"``: Relax functions become PrimFuncs ``__vmtir__<name>`` as
        in TVM, and a machine runs them as Python source that it generates.
    system_lib
        Whether kernels are to be found under ``system_lib_prefix``, as in a program that links
        them; None for what the target needs (see :func:`_auto_attach_system_lib_prefix`).

    Returns
    -------
    VMExecutable
        Bytecode that imports the compiled kernels; in compiled mode only a function table and
        constants, with the functions imported, too.

    Raises
    ------
    ValueError
        For an unknown pipeline or execution mode.
    InternalError
        If the module cannot be lowered; the message names function and operator.
    """
    chosen = default_target() if target is None else Target(target)
    pipeline = _relax_pipeline(relax_pipeline, chosen)
    if pipeline is not None:
        with chosen:
            mod = pipeline(mod)
    libraries: Sequence[KernelLibrary] = mod.attrs.get("external_mods", ())
    constants = {**(params or {}), **mod.attrs.get("const_name_to_constant", {})}
    builder = ExecBuilder()
    kernels = _filter_tir(_vmcodegen(builder, mod, exec_mode))
    return _vmlink(
        builder, chosen, kernels, tir_pipeline, libraries, constants, system_lib=system_lib
    )


def _relax_pipeline(chosen: str | Pass | None, target: Target) -> Pass | None:
    if not isinstance(chosen, str):
        return chosen
    if chosen == "default" and "gpu" in target.keys:
        return get_default_pipeline(target)
    return get_pipeline(chosen)


def _vmcodegen(builder: ExecBuilder, mod: IRModule, exec_mode: str = "bytecode") -> IRModule:
    """Emit the Relax functions into ``builder``; return what is left of the module."""
    if exec_mode == "bytecode":
        return codegen_vm.codegen(builder, mod)
    if exec_mode == "compiled":
        return codegen_vm_tir.codegen(builder, mod)
    raise ValueError(f"Unknown exec_mode {exec_mode!r}: expected 'bytecode' or 'compiled'")


def _filter_tir(mod: IRModule) -> IRModule | None:
    """Keep the kernels of a module; None when there is none."""
    kernels = {g: f for g, f in mod.functions.items() if isinstance(f, PrimFunc)}
    return IRModule(kernels, mod.attrs, mod.global_infos) if kernels else None


def _auto_attach_system_lib_prefix(
    tir_mod: IRModule, target: Target | None = None, system_lib: bool | None = None
) -> IRModule:
    """Note in a module that its kernels are linked statically, if that is asked for.

    Without an answer they are for WebAssembly, whose programs load no libraries. A prefix that the
    module has already stays.
    """
    if system_lib is None:
        triple = "" if target is None else str(target.attrs.get("mtriple", ""))
        system_lib = "wasm" in triple
    if not system_lib or tir_mod.attrs.get("system_lib_prefix") is not None:
        return tir_mod
    return tir_mod.with_attr("system_lib_prefix", "")


def _vmlink(
    builder: ExecBuilder,
    target: Target | str | None,
    tir_mod: IRModule | None = None,
    tir_pipeline: str | Pass | None = "default",
    ext_libs: Sequence[KernelLibrary] = (),
    params: Mapping[str, Any] | None = None,
    *,
    system_lib: bool | None = None,
) -> VMExecutable:
    """Compile the kernels and import all libraries into the executable of ``builder``."""
    if params:
        raise ValueError(
            f"params {sorted(params)} are constants of external modules, but no external module "
            "asks for one; bind weights with relax.transform.BindParams before building"
        )
    ex = builder.get()
    if tir_mod is not None:
        known = Target(target) if isinstance(target, str) else target
        tir_mod = _auto_attach_system_lib_prefix(tir_mod, known, system_lib)
        kernels, bodies = _separated(tir_mod)
        if bodies:
            ex.import_module(Library(vmtir.KIND, bodies, GENERATORS.get(vmtir.KIND)))
        if kernels is not None:
            if isinstance(tir_pipeline, Pass):
                kernels = tir_pipeline(kernels)
            ex.import_module(build_kernels(kernels, target))
    for library in ext_libs:
        ex.import_module(library)
    return ex


def _separated(mod: IRModule) -> tuple[IRModule | None, dict[str, PrimFunc]]:
    """Return the kernels, and the compiled Relax functions by the names that entries have."""
    bodies: dict[str, PrimFunc] = {}
    kernels = mod.clone()
    prefix = str(mod.attrs.get("system_lib_prefix", "")) + BODY_PREFIX
    for gvar, func in mod.functions.items():
        if isinstance(func, PrimFunc) and gvar.name_hint.startswith(prefix):
            bodies[BODY_PREFIX + gvar.name_hint.removeprefix(prefix)] = func
            kernels.remove(gvar)
    return _filter_tir(kernels), bodies
