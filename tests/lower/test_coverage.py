"""Every core ATen operator has a rule, a decomposition, or a reason to be a library call."""

from __future__ import annotations

import pytest
import torch
from torch._C import DispatchKey

from inductor_cpu.lower.library import LIBRARY
from inductor_cpu.lower.rules import RULES
from tests.lower.harness import DECOMPOSITIONS, lower

#: Operators that give an int of a tensor's shape: an index expression, computed without a call.
SIZES = frozenset({"aten::sym_numel", "aten::sym_size", "aten::sym_storage_offset", "aten::sym_stride"})


def core_operators() -> list[torch._ops.OpOverload]:
    """The operators that torch promises to be enough for any graph. In-place and out forms are made functional."""
    found = []
    for full_name in torch._C._dispatch_get_all_op_names():
        namespace, _, name = full_name.partition("::")
        packet, _, overload = name.partition(".")
        if namespace == "aten" and overload != "out" and hasattr(torch.ops.aten, packet):
            operator = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
            if operator is not None and torch.Tag.core in operator.tags:
                found.append(operator)
    return found


def is_covered(operator: torch._ops.OpOverload) -> bool:
    name = operator._schema.name
    return (
        operator in RULES
        or operator in DECOMPOSITIONS
        or operator.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd)
        or torch.Tag.nondeterministic_seeded in operator.tags
        or name in LIBRARY
        or name in SIZES
    )


def test_every_core_operator_is_covered() -> None:
    operators = core_operators()
    assert len(operators) > 150
    assert [str(operator) for operator in operators if not is_covered(operator)] == []


def test_names_of_library_operators_exist() -> None:
    unknown = [name for name in (*LIBRARY, *SIZES) if not hasattr(torch.ops.aten, name.removeprefix("aten::"))]
    assert unknown == []


def test_no_operator_has_both_a_rule_and_a_reason_to_have_none() -> None:
    assert sorted({operator._schema.name for operator in RULES if hasattr(operator, "_schema")} & set(LIBRARY)) == []


@pytest.mark.parametrize(("name", "word"), [("kthvalue", "selecting"), ("nonzero_static", "rule")])
def test_an_extern_call_tells_its_reason(name: str, word: str) -> None:
    calls = {
        "kthvalue": lambda x: x.kthvalue(2)[0],
        "nonzero_static": lambda x: torch.nonzero_static(x, size=2),
    }
    (node,) = lower(calls[name], torch.randn(4)).nodes
    assert word in node.reason  # type: ignore[union-attr]
