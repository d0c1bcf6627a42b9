"""Record a training step as a CUDA graph: small networks are bound by kernel launches."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Step = Callable[..., dict[str, Tensor]]


def record(step: Step, module: nn.Module, *examples: Tensor) -> Step:
    """Record `step` once and return a function that replays it in one launch.

    Args:
        step: Computes losses and gradients; must neither read back from the device nor change
            shapes.
        module: Its buffers (batch statistics) are restored after the warm-up runs.
        *examples: Tensors with the shapes of all later calls.

    Returns:
        A function with the signature of `step`.
    """
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    inputs = [example.clone() for example in examples]
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            module.zero_grad(set_to_none=True)
            step(*inputs)
    torch.cuda.current_stream().wait_stream(stream)
    module.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = step(*inputs)
    with torch.no_grad():
        for buffer, before in buffers:
            buffer.copy_(before)

    def replay(*values: Tensor) -> dict[str, Tensor]:
        for slot, value in zip(inputs, values, strict=True):
            slot.copy_(value)
        graph.replay()
        return outputs

    return replay
