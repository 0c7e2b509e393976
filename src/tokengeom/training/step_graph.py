"""Training steps recorded once as a CUDA graph and replayed, so that the host's part is shared by many steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

# Steps in the long graph.
_UNROLL = 16
# Steps made on a side stream before recording, as capture asks.
_WARM_UP = 3


class StepGraph:
    """Replays ``step(coefficients, windows)``; ``moving`` are the tensors that a step changes.

    Graphs of one step and of many are recorded when they are first needed; recording leaves the moving tensors as
    they were.
    """

    def __init__(self, torch: Any, device: Any, step: Callable[[Any, Any], None], moving: Sequence[Any]) -> None:
        self._torch, self._device, self._step, self._moving = torch, device, step, moving
        self._recorded: dict[int, tuple[Any, Any, Any]] = {}

    def run(self, rows: Any, drawn: Any) -> None:
        """Make one step for each row of coefficients; ``drawn`` has the windows of each step, or is None."""
        done, steps = 0, rows.shape[0]
        while done < steps:
            count = _UNROLL if steps - done >= _UNROLL else 1
            part = slice(done, done + count)
            self._replay(rows[part], None if drawn is None else drawn[part])
            done += count
        self._torch.cuda.synchronize(self._device)

    def _replay(self, rows: Any, drawn: Any) -> None:
        count = rows.shape[0]
        if count not in self._recorded:
            self._recorded[count] = self._record(rows, drawn)
        graph, static_rows, static_drawn = self._recorded[count]
        static_rows.copy_(rows)
        if drawn is not None:
            static_drawn.copy_(drawn)
        graph.replay()

    def _record(self, rows: Any, drawn: Any) -> tuple[Any, Any, Any]:
        torch = self._torch
        static_rows, static_drawn = rows.clone(), None if drawn is None else drawn.clone()
        kept = [x.clone() for x in self._moving]
        stream = torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                self._step(static_rows[0], None if static_drawn is None else static_drawn[0])
        torch.cuda.current_stream(self._device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for t in range(rows.shape[0]):
                self._step(static_rows[t], None if static_drawn is None else static_drawn[t])
        for x, old in zip(self._moving, kept, strict=True):
            x.copy_(old)
        return graph, static_rows, static_drawn
