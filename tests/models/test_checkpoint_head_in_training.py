"""Modules in training: found inside their wrappers, refused where sharded, and left as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tiny_models import build
from tokengeom.core.errors import InputError
from tokengeom.models.checkpoint_head import is_finite, last_logits, undisturbed, unwrapped


@pytest.fixture
def one_process(tmp_path: Path) -> Any:
    """A process group of this process alone."""
    import torch.distributed as distributed

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def test_the_module_is_found_inside_parallel_and_compiled_wrappers(one_process: None) -> None:
    import torch

    model = build("llama")
    assert unwrapped(model) is model
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    assert unwrapped(parallel) is model
    assert unwrapped(torch.nn.DataParallel(model)) is model
    assert unwrapped(torch.compile(parallel, backend="eager")) is model


def test_a_module_compiled_in_place_is_read_uncompiled() -> None:
    import torch

    model = build("llama")
    model.compile(backend="eager")
    seen: list[object] = []
    with undisturbed(unwrapped(model)):
        handle = model.lm_head.register_forward_hook(lambda *_: seen.append(torch.compiler.is_compiling()))
        last_logits(model, [(1, 2)])
        handle.remove()
    assert seen == [False]


def test_sharded_modules_are_refused(one_process: None) -> None:
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(torch.nn.Linear(4, 4), mesh=init_device_mesh("cpu", (1,)))
    with pytest.raises(InputError, match=r"sharded over several \(FSDP"):
        unwrapped(model)
    partitioned = torch.nn.Linear(4, 4)
    partitioned.weight.ds_id = 0
    with pytest.raises(InputError, match="ZeRO stage 3"):
        unwrapped(partitioned)


def test_modes_random_state_and_forward_are_restored_even_after_an_error() -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5), torch.nn.Dropout(0.5))
    model.train()
    model[2].eval()
    plain = model.forward
    model._original_forward, model.forward = plain, lambda x: 0 * plain(x)
    mixed, state = model.forward, torch.get_rng_state()

    def fail_while_reading() -> None:
        with undisturbed(model):
            assert not any(part.training for part in model.modules())
            assert model(torch.rand(1, 2)).abs().sum() > 0
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_while_reading()
    assert [part.training for part in model.modules()] == [True, True, True, False]
    assert model.forward is mixed
    assert torch.equal(torch.get_rng_state(), state)


def test_what_a_module_caches_while_it_is_read_can_be_trained_with() -> None:
    import torch

    class Caching(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head, self.scale = torch.nn.Embedding(5, 4), torch.nn.Linear(4, 5), None

        def forward(self, ids: Any) -> Any:
            if self.scale is None:
                self.scale = torch.arange(4.0)
            return self.head(self.embedding(ids) * self.scale)

    model = Caching()
    with undisturbed(model):
        last_logits(model, [(1, 2)])
    model(torch.tensor([[1, 2]])).sum().backward()
    assert model.embedding.weight.grad is not None


def test_a_module_that_has_diverged_is_seen() -> None:
    import torch

    model = torch.nn.Linear(2, 2)
    assert is_finite(model)
    with torch.no_grad():
        model.bias[0] = float("inf")
    assert not is_finite(model)
