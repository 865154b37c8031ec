"""The package imported again after its modules were deleted: the old functions and new ones, in one process."""

from __future__ import annotations

from pathlib import Path

from tests.semantics.test_processes import run


def test_the_package_is_imported_again_and_compiles(tmp_path: Path) -> None:
    program = """
        import sys, torch
        import inductor_cpu

        def first(x): return (x * 2 + 1).relu().sum(1)
        def second(x): return (x * 3 - 1).softmax(1)

        model = torch.nn.Sequential(torch.nn.Linear(32, 48), torch.nn.GELU(), torch.nn.Linear(48, 4))
        frozen = torch.nn.Linear(64, 40).bfloat16().requires_grad_(False)

        def check(name, compiled, function, x):
            torch.testing.assert_close(compiled(x), function(x), msg=lambda text: f"{name}: {text}")

        def train(compiled):
            x = torch.randn(8, 32)
            got = torch.autograd.grad(compiled(x).square().sum(), model.parameters())
            torch.testing.assert_close(got, torch.autograd.grad(model(x).square().sum(), model.parameters()))

        def work():
            functions = [torch.compile(f, backend="icpu") for f in (first, second)]
            for compiled, function in zip(functions, (first, second)):
                check("new", compiled, function, torch.randn(8, 16))
            train(torch.compile(model, backend="icpu"))
            linear = torch.compile(frozen, backend="icpu")
            check("new linear", linear, frozen, torch.randn(9, 64).bfloat16())
            return functions[0], linear

        old, linear = work()
        for name in [name for name in sys.modules if name.split(".")[0] == "inductor_cpu"]:
            del sys.modules[name]
        torch._dynamo.reset_code_caches()
        before = inductor_cpu
        import inductor_cpu
        assert inductor_cpu is not before
        work()
        check("old", old, first, torch.randn(8, 16))
        check("old linear", linear, frozen, torch.randn(9, 64).bfloat16())
        check("old, of another size", old, first, torch.randn(3, 16))
        check("old linear, of another size", linear, frozen, torch.randn(5, 64).bfloat16())
        from torch._dynamo.backends.registry import lookup_backend
        assert lookup_backend("icpu") is sys.modules["inductor_cpu.backend"].icpu
        print("done")
    """
    assert run(program, tmp_path).endswith("done\n")
