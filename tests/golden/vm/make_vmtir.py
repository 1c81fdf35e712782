"""Record what TVM's exec_mode="compiled" makes of our modules (needs apache-tvm==0.27.0.post1).

Usage:  python make_vmtir.py
"""

import json
import sys
import tempfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import tvm
from tvm import relax

HERE = Path(__file__).parent
MODULES = HERE.parent / "compiler" / "modules"
# text that a build makes; a lowered module has it in the file
BUILT = [
    "call_tir_manual", "embedding_take", "ew_chain_sym", "if_else", "if_else_sym", "kv_append",
    "match_cast_tensor", "memory_reuse", "packed_calls", "recursion", "shape_compute",
    "shape_param", "subroutine", "tuples",
]  # fmt: skip


def raw_bytes(mod):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "executable"
        mod.write_to_file(str(path))
        return path.read_bytes()


def parsed(path):
    """Return the module of a file that imports its parser, as TVM's users write it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "recorded.py"
        copy.write_text(path.read_text())
        spec = spec_from_file_location("recorded", copy)
        module = module_from_spec(spec)
        sys.modules["recorded"] = module
        spec.loader.exec_module(module)
        return next(v for v in vars(module).values() if isinstance(v, tvm.IRModule))


def record(mod, whole):
    builder = relax.ExecBuilder()
    left = relax.vm_build._vmcodegen(builder, mod, "compiled")
    bodies = {g: f for g, f in left.functions_items() if g.name_hint.startswith("__vmtir__")}
    ex = builder.get()
    shown = left if whole else tvm.IRModule(bodies)
    return {
        "script": shown.script(show_meta=True),
        "as_text": ex.as_text(),
        "as_python": ex.as_python(),
        "stats": ex.stats(),
        "bytes_hex": raw_bytes(ex.mod).hex(),
    }


cases = {}
for path in sorted((HERE / "vmtir").glob("*.txt")):
    mod = tvm.script.from_source(path.read_text(), check_well_formed=False)
    cases[path.stem] = {"built": False, **record(mod, whole=True)}
for name in BUILT:
    mod = parsed(MODULES / f"{name}.txt")
    with tvm.target.Target("llvm"):
        mod = relax.get_pipeline("default")(mod)
    cases[name] = {"built": True, **record(mod, whole=False)}
(HERE / "vmtir.json").write_text(json.dumps(cases, indent=1) + "\n")
