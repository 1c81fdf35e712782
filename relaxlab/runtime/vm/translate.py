"""One linked function as Python source.

Registers become local variables, branches and loops become Python's, constants and callees become
names of the module that the source runs in. Builtins whose arguments are known are written out, see
``inline.py``. Counterpart: none.

Examples
--------
>>> from relaxlab.runtime.vm.linker import RET
>>> f = LinkedFunction("f", num_args=1, num_registers=1)
>>> f.code, f.length = [(RET, None, None, 0)], 1
>>> print(translate(f, "f0", Names()).text)
def f0(machine, room, r0):
    return r0
"""

from typing import Final

from relaxlab.runtime.vm.frame import LinkedFunction
from relaxlab.runtime.vm.generated_source import Callees, Memory, Names, Source
from relaxlab.runtime.vm.linker import CALL, GOTO
from relaxlab.runtime.vm.register_use import builtin_name
from relaxlab.runtime.vm.source_writer import INDENT, Writer

__all__ = ["translate", "translate_door"]

_LONGEST_DOOR: Final = 100


def translate(
    function: LinkedFunction,
    name: str,
    names: Names,
    callees: Callees | None = None,
    memory: Memory | None = None,
) -> Source:
    """Return a function as Python source.

    It takes the machine, how many more calls may go on Python's stack, and the arguments.

    Parameters
    ----------
    function
        What to translate.
    name
        What the source calls it.
    names
        Receives constants and callees.
    callees
        What is known of the functions that it may call.
    memory
        What it keeps from call to call.
    """
    writer = Writer(function, names, callees or Callees(), memory)
    params = ", ".join(("machine", "room", *(f"r{i}" for i in range(function.num_args))))
    writer.line(f"def {name}({params}):")
    writer.depth = 1
    if memory is None:
        writer.body()
        return writer.source(name)
    writer.take(memory, f"{memory.otherwise}({params})")
    writer.line("try:")
    writer.depth = 2
    writer.body()
    writer.depth = 1
    writer.give_back(memory)
    return writer.source(name)


def translate_door(
    function: LinkedFunction,
    name: str,
    names: Names,
    callees: Callees,
    memory: Memory | None = None,
) -> Source | None:
    """Return the function as a host calls it; None for one that is too long to be written twice.

    The source defines a function of the machine that returns a function of the arguments. If this
    sees at once that nobody watches, that
    the arguments are register values, and that the checks at the beginning hold, it does the rest
    of the function; otherwise ``careful`` does everything.
    """
    if function.length > _LONGEST_DOOR:
        return None
    writer = Writer(function, names, callees, memory)
    guards = _guards(writer)
    params = [f"r{i}=ABSENT" for i in range(function.num_args)]
    # the machine is a variable of the function around it: a bound argument would cost more
    writer.line(f"def {name}(machine):")
    writer.depth = 1
    writer.line(f"def door({', '.join([*params, '/', '*more'] if params else ['*more'])}):")
    writer.depth = 2
    writer.line(f"if more or machine.is_watched{''.join(f' or {test}' for test in guards)}:")
    args = "".join(f"r{i}, " for i in range(function.num_args))
    linked = names.name("F", function, function.name)
    careful = f"careful(machine, {linked}, [{args}*more])"
    writer.line(f"{INDENT}return {careful}")
    if memory is not None:
        writer.take(memory, careful)
    writer.line("try:")
    writer.depth = 3
    writer.line("room = stack_room(machine)")
    writer.body()
    writer.depth = 2
    writer.finish()
    writer.line("except BaseException as error:")
    writer.line(f"{INDENT}explain(machine, error)")
    writer.line(f"{INDENT}raise")
    if memory is not None:
        writer.give_back(memory)
    writer.depth = 1
    writer.line("return door")
    source = writer.source(name)
    if source.text.count("room") == source.text.count("stack_room") + 1:
        return source.without(f"{3 * INDENT}room = stack_room(machine)")
    return source


def _guards(writer: Writer) -> list[str]:
    """Return when a door must be careful; checks that this covers are not written again.

    The first instructions of most functions check their parameters. Nothing of these checks can be
    seen if they hold, so they may be made before anything else.
    """
    function, code = writer.function, writer.code
    loops = any(op == GOTO and target <= pc for pc, (op, target, *_) in enumerate(code))
    tests: dict[int, list[str]] = {}
    for pc in range(0 if loops or function.entry else function.length):
        operation, target, _, slot = code[pc]
        if operation != CALL:
            break
        name = builtin_name(target)
        guard = writer.callees.guards.get(name)
        call = writer.call_site(pc)
        if guard is not None and call.slots and call.slots[0] < function.num_args:
            found = guard(writer, call)
            if found is None or slot is not None:
                break
            known = tests.setdefault(call.slots[0], [])
            known += [test for test in found if test not in known]
            writer.skipped.add(pc)
        elif name != "vm.builtin.alloc_shape_heap" or (slot or 0) < function.num_args:
            break
    guards: list[str] = []
    for parameter in range(function.num_args):
        ours = tests.get(parameter, [f"type(r{parameter}) not in PLAIN_TYPES"])
        # whole shapes that are compared have a rank, so that need not be
        whole = f"r{parameter}.shape != ("
        shapes = (test.removeprefix(whole) for test in ours if test.startswith(whole))
        ranks = {sum(size.strip(") ") != "" for size in shape.split(",")) for shape in shapes}
        implied = {f"len(r{parameter}.shape) != {rank}" for rank in ranks}
        guards += [test for test in ours if test not in implied]
    return guards
