"""What every node of both languages can do: be walked, rebuilt, compared and hashed.

A node is a frozen dataclass. It is equal to itself only; ``structural_equal`` asks whether two
nodes say the same thing, with a map from the variables that one side defines to those of the
other. The walk is by reflection over dataclass fields, so a language adds a node by declaring it.
Counterpart: ``tvm.ir.Node`` and ``tvm_ffi.structural_equal`` / ``structural_hash``.

A field's role is its metadata: plain fields are compared and walked, ``field(metadata=DEFINES)``
holds variables that this node introduces (parameters, loop variables, binding variables) and
``field(metadata=IGNORED)`` is no part of the meaning (spans, name hints, cached types).

Examples
--------
>>> from relaxlab.ir import IntImm, Var, PrimType
>>> n = Var("n", PrimType("int64"))
>>> structural_equal(n + 1, n + 1), n + 1 is n + 1
(True, False)
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from relaxlab.runtime.dtype import DataType

__all__ = [
    "DEFINES",
    "IGNORED",
    "Node",
    "assert_structural_equal",
    "children",
    "map_children",
    "replace",
    "structural_equal",
    "structural_hash",
]

_ROLE = "relaxlab.role"
N = TypeVar("N", bound="Node")
#: What a node may hold that has no parts.
_ATOMS = frozenset({bool, int, str, type(None), DataType})


#: Metadata of a dataclass field that introduces variables.
DEFINES: Mapping[str, str] = MappingProxyType({_ROLE: "defines"})
#: Metadata of a dataclass field that is no part of a node's meaning.
IGNORED: Mapping[str, str] = MappingProxyType({_ROLE: "ignored"})


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Node:
    """Base of everything in a program: types, expressions, statements, functions."""


def _find_roles(cls: type) -> tuple[tuple[str, str], ...]:
    """Return (field name, role) for the meaningful fields, in declaration order."""
    return tuple(
        (f.name, f.metadata.get(_ROLE, "child"))
        for f in dataclasses.fields(cls)
        if f.metadata.get(_ROLE) != "ignored"
    )


#: The walk asks for roles once per class, not once per node.
_roles: Callable[[type], tuple[tuple[str, str], ...]] = cache(_find_roles)


def replace(node: N, **changes: Any) -> N:
    """Return ``node`` with some fields changed, or ``node`` itself if nothing would change."""
    if all(getattr(node, name) is value for name, value in changes.items()):
        return node
    return dataclasses.replace(node, **changes)


def children(node: Node) -> Iterator[Node]:
    """Yield the nodes directly inside ``node``, in declaration order, tuples and maps opened."""
    for name, _ in _roles(type(node)):
        yield from _nodes_in(getattr(node, name))


def _nodes_in(value: object) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _nodes_in(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _nodes_in(item)


def map_children(node: N, function: Callable[[Any], Any]) -> N:
    """Rebuild ``node`` with ``function`` applied to each node inside it.

    The same object comes back when ``function`` returned every child unchanged.
    """
    changes: dict[str, Any] = {}
    for name, _ in _roles(type(node)):
        old = getattr(node, name)
        new = _map_value(old, function)
        if new is not old:
            changes[name] = new
    return dataclasses.replace(node, **changes) if changes else node


def _map_value(value: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(value, Node):
        return function(value)
    if isinstance(value, tuple):
        new = tuple(_map_value(item, function) for item in value)
        return value if all(a is b for a, b in zip(new, value, strict=True)) else new
    if isinstance(value, dict):
        mapped = {key: _map_value(item, function) for key, item in value.items()}
        return value if all(mapped[key] is value[key] for key in value) else mapped
    return value


class _Equal:
    """One comparison: the variable map in both directions and whether free variables map."""

    def __init__(self, map_free_vars: bool) -> None:
        self.map_free_vars = map_free_vars
        self.forward: dict[Node, Node] = {}
        self.backward: dict[Node, Node] = {}

    def equal(self, a: Any, b: Any, defining: bool = False) -> bool:
        # Node before anything else: it is by far the most frequent case.
        if isinstance(a, Node):
            if type(a) is not type(b):
                return False
            if hasattr(a, "is_variable"):
                return self._variables(a, b, defining)
            if a is b and not defining and not self.forward:
                return True
            return self._fields(a, b, defining)
        if type(a) in _ATOMS:  # asked first: the other questions are slow, and rarely answered yes
            return type(a) is type(b) and bool(a == b)
        if isinstance(a, tuple | list):
            return (
                isinstance(b, tuple | list)
                and len(a) == len(b)
                and all(self.equal(x, y, defining) for x, y in zip(a, b, strict=True))
            )
        if isinstance(a, Mapping):
            return (
                isinstance(b, Mapping)
                and a.keys() == b.keys()
                and all(self.equal(a[key], b[key], defining) for key in a)
            )
        if isinstance(a, np.ndarray):
            return (
                isinstance(b, np.ndarray)
                and a.dtype == b.dtype
                and a.shape == b.shape
                and a.tobytes() == b.tobytes()
            )
        if isinstance(a, float):
            return isinstance(b, float) and (a == b or (a != a and b != b))
        if hasattr(a, "numpy") and hasattr(b, "numpy") and not isinstance(a, type | DataType):
            # a runtime tensor: constants are compared by content
            return type(a) is type(b) and self._arrays(a.numpy(), b.numpy())
        return type(a) is type(b) and bool(a == b)

    def _arrays(self, a: Any, b: Any) -> bool:
        return self.equal(a, b) if isinstance(a, np.ndarray) else bool(a == b)

    def _fields(self, a: Node, b: Node, defining: bool) -> bool:
        custom = getattr(type(a), "structural_fields", None)
        if custom is not None:
            return self.equal(custom(a), custom(b), defining)
        for name, role in _roles(type(a)):  # a loop: much called, and `all` is slower
            inside = defining or role == "defines"
            if not self.equal(getattr(a, name), getattr(b, name), inside):
                return False
        return True

    def _variables(self, a: Node, b: Node, defining: bool) -> bool:
        known = self.forward.get(a)
        if known is not None:
            return known is b
        if b in self.backward:
            return False
        if defining or self.map_free_vars:
            # registered before the types are compared: a function's type may mention itself
            self.forward[a] = b
            self.backward[b] = a
            typed = getattr(a, "is_typed_variable", False)
            return not typed or self.equal(getattr(a, "ty", None), getattr(b, "ty", None), defining)
        return a is b


def structural_equal(a: Any, b: Any, map_free_vars: bool = False) -> bool:
    """Say whether two nodes (or tuples, maps, constants of nodes) or two modules mean the same.

    Parameters
    ----------
    a, b
        What to compare.
    map_free_vars
        Whether variables that neither side defines may be renamed too. Without it a free
        variable is equal only to itself.
    """
    module_rule = getattr(type(a), "structural_equal", None)
    if module_rule is not None:  # a module matches functions by name
        return type(a) is type(b) and bool(module_rule(a, b, map_free_vars))
    return _Equal(map_free_vars).equal(a, b)


def assert_structural_equal(a: Any, b: Any, map_free_vars: bool = False) -> None:
    """Raise unless :func:`structural_equal` says that two things mean the same.

    Raises
    ------
    ValueError
        With the first line in which the printed texts differ, as TVM's function of this name.
    """
    if structural_equal(a, b, map_free_vars):
        return
    texts = [one.script() if hasattr(one, "script") else str(one) for one in (a, b)]
    lines = [text.splitlines() for text in texts]
    for number, (left, right) in enumerate(zip_longest(*lines, fillvalue="(nothing)"), 1):
        if left != right:
            raise ValueError(
                f"StructuralEqual check failed: line {number} of the texts differs:\n"
                f"  lhs: {left.strip()}\n  rhs: {right.strip()}"
            )
    raise ValueError(
        "StructuralEqual check failed, though both print alike: they differ in what is not "
        "printed, or have free variables (see map_free_vars)"
    )


def structural_hash(node: Any, map_free_vars: bool = False) -> int:
    """Return a hash that agrees with :func:`structural_equal`.

    Variables count by the order in which they are met, never by name or identity.
    """
    order: dict[Node, int] = {}

    def walk(value: Any) -> int:
        if isinstance(value, Node):
            if hasattr(value, "is_variable"):
                # not the identity: defined variables may be renamed
                return hash(("var", order.setdefault(value, len(order))))
            custom = getattr(type(value), "structural_fields", None)
            if custom is not None:
                return hash((type(value).__name__, walk(custom(value))))
            parts = [walk(getattr(value, name)) for name, _ in _roles(type(value))]
            return hash((type(value).__name__, *parts))
        if type(value) in _ATOMS:
            return hash((type(value).__name__, value))
        if isinstance(value, tuple | list):
            return hash(("seq", *(walk(item) for item in value)))
        if isinstance(value, Mapping):
            return hash(("map", *(hash((key, walk(value[key]))) for key in sorted(value))))
        if isinstance(value, np.ndarray):
            return hash((str(value.dtype), value.shape, value.tobytes()))
        if isinstance(value, float):
            return hash(("float", value if value == value else "nan"))
        if hasattr(value, "numpy") and not isinstance(value, type | DataType):
            return walk(value.numpy())
        return hash((type(value).__name__, value))

    return walk(node)
