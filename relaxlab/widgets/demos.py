"""Five views of real runs, small enough to send: what ``relaxlab demo`` shows and exports.

Each is one idea of the package on a program or a model that is here: nothing is drawn that did not
happen. There is no TVM counterpart.

Examples
--------
>>> names()
['stepper', 'pages', 'passes', 'memory', 'file']
>>> demo("stepper")
VMStepper(main, step 0 of 24)
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from relaxlab import relax
from relaxlab.ir import IRModule
from relaxlab.models.download import ModelNotFoundError
from relaxlab.models.language_model import LanguageModel, open_model
from relaxlab.models.paged_llama import PagedLlama
from relaxlab.models.tokenizer import MissingExtraError
from relaxlab.registry import Registry
from relaxlab.runtime.tensor import Tensor, tensor
from relaxlab.runtime.vm import VMExecutable
from relaxlab.script import from_source
from relaxlab.serve.engine import Engine
from relaxlab.serve.scheduler import Limits
from relaxlab.trace.pool_recorder import PoolRecorder
from relaxlab.widgets.executable_view import ExecutableView
from relaxlab.widgets.memory_plan import MemoryPlan
from relaxlab.widgets.page_pool import PagePool
from relaxlab.widgets.pass_explorer import PassExplorer
from relaxlab.widgets.view import View
from relaxlab.widgets.vm_stepper import VMStepper

__all__ = ["NETWORK", "arguments", "compiled", "demo", "names", "network", "title", "two_users"]

NETWORK: Final = """
@I.ir_module
class Network:
    @R.function
    def main(
        x: R.Tensor((2, 4), "float32"),
        w1: R.Tensor((4, 8), "float32"),
        w2: R.Tensor((8, 3), "float32"),
    ) -> R.Tensor((2, 3), "float32"):
        with R.dataflow():
            hidden = R.nn.relu(R.matmul(x, w1))
            scores = R.matmul(hidden, w2)
            out = R.nn.softmax(scores)
            R.output(out)
        return out
"""
"""A network of two layers."""

_GUEST: Final = "A poem about the sea: "
_SHARED: Final = "You are a helpful guide to the cities of Europe. The capital of "
_USERS: Final = ("France is", "Spain is")
_PAGE: Final = 4
_TOKENS: Final = 20
_MISSING: Final = 3  # pages that the two users lack together

_DEMOS: Registry[tuple[str, Callable[[], View]]] = Registry("demo", KeyError)


def names() -> list[str]:
    """Return the names of all demos, in the order in which one would show them."""
    return _DEMOS.names()


def title(name: str) -> str:
    """Return what a demo shows, in a sentence."""
    return _DEMOS.get(name)[0]


def demo(name: str) -> View:
    """Make a demo's view.

    Raises
    ------
    KeyError
        If there is no such demo; the message names similar ones.
    """
    return _DEMOS.get(name)[1]()


def network() -> IRModule:
    """Return the network of two layers as a module."""
    module = from_source(NETWORK)
    assert isinstance(module, IRModule)
    return module


def compiled() -> VMExecutable:
    """Return it compiled for NumPy, which every machine can run."""
    return relax.build(network(), target="numpy")


def arguments() -> list[Tensor]:
    """Return arguments of its function ``main``, the same every time."""
    random = np.random.default_rng(0)
    shapes = ((2, 4), (4, 8), (8, 3))
    return [tensor(random.normal(size=shape).astype("float32")) for shape in shapes]


def two_users(model: str | None = None) -> PagePool:
    """Return the pages of two users who share a prompt, in a pool that is too small for both.

    A guest's request is over, its pages are kept for whoever asks the same. Then two users come
    whose prompts begin alike: the second finds the pages of the first. Both choose 20 tokens, the
    pool runs out, and the recording says what was given up, why, and who has to compute again.

    Parameters
    ----------
    model
        As for :func:`relaxlab.models.language_model.open_model`; by default SmolLM2 if it is on
        this machine, else the tiny model, whose tokens are bytes.
    """
    found = _model(model)
    encode = found.tokenizer.encode
    prompts = [_SHARED + user for user in _USERS]
    longest = max(len(encode(prompt)) for prompt in prompts) + _TOKENS
    together = 2 * longest - len(encode(_SHARED))
    pages = -(-together // _PAGE) + 1 - _MISSING
    llama = PagedLlama(found, page_size=_PAGE, capacity=pages * _PAGE)
    recorder = PoolRecorder.of_model(
        llama, lambda token: found.tokenizer.decode([token]), name=f"two users of {found.name}"
    )
    engine = Engine(
        llama,
        tokenizer=found.tokenizer,
        policy="lru",
        limits=Limits(running=2),
        observer=recorder.note,
    )
    engine.submit(_GUEST, max_tokens=4)
    engine.run()
    for prompt in prompts:
        engine.submit(prompt, max_tokens=_TOKENS)
    engine.run()
    return PagePool(recorder)


def _model(name: str | None) -> LanguageModel:
    if name is not None:
        return open_model(name)
    try:
        return open_model("smollm2")
    except (ModelNotFoundError, MissingExtraError):
        return open_model("tiny")


def _about(sentence: str) -> Callable[[Callable[[], View]], Callable[[], View]]:
    """Register a demo under its function's name."""

    def register(make: Callable[[], View]) -> Callable[[], View]:
        _DEMOS.register(make.__name__.strip("_"), (sentence, make))
        return make

    return register


@_about("Step a small network through the virtual machine, forwards and backwards.")
def _stepper() -> VMStepper:
    stepper = VMStepper(compiled(), "main", *arguments())
    return stepper.note("Press ] to step, [ to go back, ? for the keys.", 0)


@_about("Two users share a prompt in a pool that is too small: pages are shared, then given up.")
def _pages() -> PagePool:
    return two_users()


@_about("What every pass of the compiler does to the network.")
def _passes() -> PassExplorer:
    return PassExplorer(network(), target="numpy")


@_about("Which memory the network's tensors live in, and which of them share it.")
def _memory() -> MemoryPlan:
    return MemoryPlan(compiled())


@_about("The compiled file, byte by byte.")
def _file() -> ExecutableView:
    return ExecutableView(compiled())
