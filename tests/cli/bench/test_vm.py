"""The rows of the machine measure what they say."""

import numpy as np
import pytest

from relaxlab import relax, runtime
from relaxlab.cli.bench import vm
from relaxlab.runtime.vm import run_loop as loop_module


def test_the_loop_without_hooks_is_the_loop():
    machine = relax.VirtualMachine(vm._program(50), runtime.cpu())
    function = machine.require_closure("main").function
    for loop in (loop_module.run_loop, vm._bare_loop()):
        frame = loop_module.new_frame(machine, function, (7,), None)
        assert list(loop(machine, [frame], None, None)) == []
        assert frame.result == 7
    code = vm._bare_loop().__code__
    assert "watch" in loop_module.run_loop.__code__.co_varnames
    assert not {"instruction", "finished", "returned"} & set(code.co_names)


@pytest.mark.parametrize("adds", [0, 3])
def test_programs_give_what_is_timed(adds):
    main = vm._built(vm._chain(adds))
    x = runtime.tensor(np.arange(4, dtype="float32"))
    assert main(x).numpy().tolist() == [0, 1 + adds, 2 + 2 * adds, 3 + 3 * adds]
    with pytest.raises(ValueError, match="ndim"):
        main(x.view((2, 2)))
    shape = vm._compiled(vm._call_program(8))(x)
    assert shape == (4,)
