"""The tensors of a TorchScript module or function, which a C++ pickler reads without any op."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from recoup import _C


def leaves_of(script: Any) -> Iterator[Any]:
    """The objects in its file: attributes of the module and its submodules, constants of code."""
    if isinstance(script, torch._C.ScriptFunction):
        yield from _constants(script.graph)
        return
    yield from _C.tensors_of_script(script._c)
    for module in script.modules():
        compiled = module._c
        for name in compiled._method_names():
            yield from _constants(compiled._get_method(name).graph)


def leaves_of_tree(tree: Any) -> Iterator[Any]:
    """Leaves of nested containers; of a script among them, the tensors that its file holds."""
    for leaf in tree_leaves(tree):
        if isinstance(leaf, torch.jit.ScriptModule):
            yield from leaves_of(leaf)
        elif isinstance(leaf, torch._C.ScriptModule):
            yield from _C.tensors_of_script(leaf)
        else:
            yield leaf


def _constants(graph: Any) -> Iterator[Any]:
    for node in graph.findAllNodes("prim::Constant"):
        kind = node.kindOf("value") if node.hasAttribute("value") else ""
        if kind == "t":
            yield node.t("value")
        elif kind == "ival":
            yield from tree_leaves(node.ival("value"))
