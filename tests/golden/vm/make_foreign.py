"""Make library.dll and library.dylib: the blob of files.json linked for Windows and macOS.

TVM itself was not run there; the symbols are those it exports, the linkers are real.

Usage: python make_foreign.py ZIG [OUT_DIR]  (needs zig 0.17, as in the PyPI package ziglang)
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent

SOURCE = """
#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
int __stdcall DllMainCRTStartup(void *module, unsigned reason, void *reserved) { return 1; }
#else
#define EXPORT __attribute__((visibility("default")))
#endif
EXPORT int __tvm_ffi_twice(void *self, const void *args, int count, void *result) { return 0; }
EXPORT extern const unsigned char __tvm_ffi__library_bin[COUNT];
EXPORT const unsigned char __tvm_ffi__library_bin[COUNT] = {BYTES};
"""

TARGETS = {"library.dll": "x86_64-windows-gnu", "library.dylib": "x86_64-macos"}


def main(zig, folder):
    blob = bytes.fromhex(json.loads((HERE / "files.json").read_text())["library_bin"]["hex"])
    text = SOURCE.replace("COUNT", str(len(blob))).replace("BYTES", ",".join(map(str, blob)))
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "library.c").write_text(text)
        for name, target in TARGETS.items():
            # the linker writes the path as it is given into the file
            command = [zig, "cc", "-target", target, "-shared", "-O1", "-nostdlib", "-s"]
            subprocess.run([*command, "-o", name, "library.c"], check=True, cwd=scratch)
            (folder / name).write_bytes(Path(scratch, name).read_bytes())


if __name__ == "__main__":
    main(str(Path(sys.argv[1]).resolve()), Path(sys.argv[2] if len(sys.argv) > 2 else HERE))
