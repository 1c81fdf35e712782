"""The Relax virtual machine: bytecode, executable, and the loop that runs it."""
