"""Fork, data loaders, spawn and data-parallel training: compiled functions in more than one process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(program: str, folder: Path, seconds: int = 240) -> str:
    """What a program prints; a failure shows its errors. `spawn` needs the program in a file."""
    path = folder / "program.py"
    path.write_text(textwrap.dedent(program))
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        timeout=seconds,
        check=False,
    )
    sys.__stderr__.write(done.stderr)  # where `tests.sanitize` looks for undefined behaviour
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_children_of_a_fork_and_workers_of_a_data_loader_call_and_compile(tmp_path: Path) -> None:
    program = """
        import multiprocessing, torch, inductor_cpu.backend
        from torch.utils.data import DataLoader, Dataset

        def first(x): return x * 2 + 1
        def second(x): return x.softmax(0) * 3

        def compiles(x):
            torch.testing.assert_close(torch.compile(first, backend="icpu")(x), first(x))

        def calls(x):
            torch.set_num_threads(1)
            torch.testing.assert_close(compiled(x), first(x))

        def calls_and_compiles(x):
            calls(x)
            torch.testing.assert_close(torch.compile(second, backend="icpu")(x), second(x))
            y = x.clone().requires_grad_()
            compiled(y).sum().backward()
            torch.testing.assert_close(y.grad, torch.full_like(x, 2))

        def in_children(work, x, count=2):
            context = multiprocessing.get_context("fork")
            children = [context.Process(target=work, args=(x,)) for _ in range(count)]
            for c in children: c.start()
            for c in children: c.join(120)
            print([c.exitcode for c in children])
            for c in children: c.kill()

        class Rows(Dataset):
            def __len__(self): return 8
            def __getitem__(self, i): return compiled(torch.full((3,), float(i)))

        x = torch.randn(50)
        in_children(compiles, x, 1)  # nothing but the import has happened
        compiled = torch.compile(first, backend="icpu")
        compiled(x)
        in_children(calls_and_compiles, x)
        model = torch.compile(torch.nn.Linear(3, 2), backend="icpu")
        total = 0.0
        for _ in range(2):
            for batch in DataLoader(Rows(), batch_size=4, num_workers=2):
                model(batch).sum().backward()
                total += batch.sum().item()
        print(total)
        torch.set_num_threads(2)
        wide = torch.randn(300000)
        compiled(wide)  # on two threads, which a child does not have
        in_children(calls, wide, 1)
        torch.testing.assert_close(compiled(wide), first(wide))
    """
    total = 2 * 3 * sum(2.0 * i + 1 for i in range(8))
    assert run(program, tmp_path).split("\n") == ["[0]", "[0, 0]", str(total), "[0]", ""]


def test_spawned_children_train_data_parallel_with_eagers_gradients(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = f"""
        import os, torch, torch.distributed as dist, torch.multiprocessing as mp
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP

        def train(rank, compiled):
            torch.manual_seed(0)
            model = DDP(nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 2)))
            call = torch.compile(model, backend="icpu") if compiled else model
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(2):
                torch.manual_seed(100 * step + rank)
                optimizer.zero_grad()
                call(torch.randn(8, 6)).square().mean().backward()
                optimizer.step()
            return [p.grad for p in model.parameters()] + [v for v in model.state_dict().values()]

        def child(rank):
            torch.set_num_threads(1)
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="{port}")
            dist.init_process_group("gloo", rank=rank, world_size=2)
            have, want = train(rank, True), train(rank, False)
            torch.testing.assert_close(have, want, atol=1e-5, rtol=1e-4)
            mine = torch.stack([g.sum() for g in have[:4]])
            both = [torch.empty_like(mine) for _ in range(2)]
            dist.all_gather(both, mine)
            assert torch.equal(both[0], both[1])
            dist.destroy_process_group()

        if __name__ == "__main__":
            mp.spawn(child, nprocs=2)
            print("right")
    """
    assert run(program, tmp_path).strip() == "right"
