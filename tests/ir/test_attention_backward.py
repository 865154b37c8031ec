"""The gradients of attention: what the verifier, the interpreter and the printer make of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from inductor_cpu.errors import InternalError
from inductor_cpu.ir.attention import attend, attend_backward
from inductor_cpu.ir.index import as_expr
from inductor_cpu.ir.interpret import run
from inductor_cpu.ir.nodes import AttentionBackward, Program
from inductor_cpu.ir.printer import show
from inductor_cpu.ir.verify import verify_program
from tests.ir.build import buffer, program, whole

Q, KEYS = (1, 4, 5, 8), (1, 2, 6, 8)
SIZES = {"grad_out": Q, "q": Q, "k": KEYS, "v": KEYS, "out": Q, "log_sums": Q[:3], "mask": (1, 4, 5, 6)}
BUFFERS = {name: buffer(name, sizes, "input") for name, sizes in SIZES.items()}
GRADS = {f"grad_{name}": buffer(f"grad_{name}", SIZES[name], "output") for name in "qkv"}
APART = (*whole(BUFFERS["grad_out"]).strides[:3], as_expr(2))


def gradients(**changes: Any) -> Program:
    views = [whole(one) for one in BUFFERS.values()]
    node = AttentionBackward("backward", "vec_f32", *views, 0.5, True, *GRADS)
    return program([*BUFFERS.values(), *GRADS.values()], [replace(node, **changes)])


def test_the_interpreter_follows_the_formula_of_the_reference() -> None:
    given = [torch.randn(SIZES[name]) for name in ("grad_out", "q", "k", "v", "mask")]
    grad_out, q, k, v, mask = given
    out, log_sums = attend(q, k, v, mask, 0.5, True, False)
    made = gradients()
    verify_program(made)
    results = run(made, [grad_out, q, k, v, out.contiguous(), log_sums, mask])
    expected = attend_backward(grad_out, q, k, v, out, log_sums, mask, 0.5, True)[:3]
    for result, one in zip(results, expected, strict=True):
        torch.testing.assert_close(result, one)


def test_it_is_printed_with_all_that_it_reads_and_writes() -> None:
    text = show(gradients())
    assert "backward: grad_q, grad_k, grad_v = vec_f32 gradients by grad_out" in text
    assert all(name in text for name in SIZES)
    assert "* 0.5 + " in text
    assert ", causal)" in text


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"kernel": "none"}, "there is no kernel none"),
        ({"log_sums": whole(BUFFERS["mask"])}, "mask is not one value for each row"),
        ({"k": whole(BUFFERS["log_sums"])}, "log_sums has the wrong rank"),
        ({"grad_out": replace(whole(BUFFERS["grad_out"]), strides=APART)}, "grad_out has no contiguous rows"),
        ({"grad_q": "nowhere"}, "buffer nowhere does not exist"),
    ],
)
def test_its_operands_are_checked(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(InternalError) as caught:
        verify_program(gradients(**changes))
    assert text in caught.value.message
