"""GPU kernels in Triton for what cuDNN does slowly: bias and activation, strided depthwise.

Tensors are in channels_last order. TRITON_INTERPRET=1 runs the kernels on a CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from .fused import Window

ACTIVATIONS = {"identity": 0, "relu": 1, "relu6": 2, "silu": 3}
_ROWS, _COLUMNS = 64, 64  # of a block of bias_act_
_TILE, _CHANNELS = 8, 32  # of a block of depthwise


@triton.jit
def _activate(value, kind: tl.constexpr):
    if kind == 1:
        value = tl.maximum(value, 0.0)
    if kind == 2:
        value = tl.minimum(tl.maximum(value, 0.0), 6.0)
    if kind == 3:
        value = value * tl.sigmoid(value)
    return value


@triton.jit
def _bias_act_kernel(
    values,
    bias,
    rows,
    channels,
    kind: tl.constexpr,
    block_rows: tl.constexpr,
    block_columns: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * block_rows + tl.arange(0, block_rows)
    column = tl.program_id(1) * block_columns + tl.arange(0, block_columns)
    inside = (row < rows)[:, None] & (column < channels)[None, :]
    places = values + row[:, None] * channels + column[None, :]
    added = tl.load(bias + column, mask=column < channels, other=0.0)
    found = tl.load(places, mask=inside, other=0.0).to(tl.float32) + added[None, :]
    tl.store(places, _activate(found, kind).to(values.dtype.element_ty), mask=inside)


@triton.jit
def _depthwise_kernel(
    images,
    weights,
    bias,
    output,
    height,
    width,
    channels,
    out_height,
    out_width,
    top,
    left,
    tiles,
    size: tl.constexpr,
    stride: tl.constexpr,
    kind: tl.constexpr,
    tile: tl.constexpr,
    block_channels: tl.constexpr,
):
    number, image = tl.program_id(0), tl.program_id(2).to(tl.int64)
    pixel = tl.arange(0, tile * tile)
    y = (number // tiles) * tile + pixel // tile
    x = (number % tiles) * tile + pixel % tile
    channel = tl.program_id(1) * block_channels + tl.arange(0, block_channels)
    known = channel < channels
    images += image * height * width * channels
    total = tl.zeros((tile * tile, block_channels), tl.float32)
    for i in tl.static_range(size):
        row = y * stride + i - top
        for j in tl.static_range(size):
            column = x * stride + j - left
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            pixels = tl.load(
                images + (row * width + column)[:, None] * channels + channel[None, :],
                mask=inside[:, None] & known[None, :],
                other=0.0,
            )
            weight = tl.load(weights + (i * size + j) * channels + channel, mask=known, other=0.0)
            total += pixels.to(tl.float32) * weight.to(tl.float32)[None, :]
    total = _activate(total + tl.load(bias + channel, mask=known, other=0.0)[None, :], kind)
    output += image * out_height * out_width * channels
    tl.store(
        output + (y * out_width + x)[:, None] * channels + channel[None, :],
        total.to(output.dtype.element_ty),
        mask=((y < out_height) & (x < out_width))[:, None] & known[None, :],
    )


def bias_act_(values: Tensor, bias: Tensor, activation: str) -> Tensor:
    """Add a bias and apply an activation in place, in one pass over the memory.

    Args:
        values: Float (n, channels, height, width) in channels_last order.
        bias: float32 (channels,).
        activation: Name of `ACTIVATIONS`.

    Returns:
        `values`.
    """
    channels = values.shape[1]
    rows = values.numel() // channels
    columns = min(_COLUMNS, triton.next_power_of_2(channels))
    grid = (triton.cdiv(rows, _ROWS), triton.cdiv(channels, columns))
    kind = ACTIVATIONS[activation]
    _bias_act_kernel[grid](values, bias, rows, channels, kind, _ROWS, columns)
    return values


def depthwise(
    images: Tensor,
    weights: Tensor,
    bias: Tensor,
    window: Window,
    out_size: tuple[int, int],
    activation: str,
) -> Tensor:
    """Convolve each channel with a window of its own, add a bias, and apply an activation.

    Args:
        images: Float (n, channels, height, width) in channels_last order.
        weights: Float (size * size, channels): the windows, row by row.
        bias: float32 (channels,).
        window: The window.
        out_size: Height and width of the result. Windows may reach beyond the images, where they
            find zeros.
        activation: Name of `ACTIVATIONS`.

    Returns:
        The results (n, channels, *out_size), in channels_last order.
    """
    count, channels, height, width = images.shape
    shape = (count, channels, *out_size)
    output = torch.empty(
        shape, dtype=images.dtype, device=images.device, memory_format=torch.channels_last
    )
    tiles = triton.cdiv(out_size[1], _TILE)
    grid = (triton.cdiv(out_size[0], _TILE) * tiles, triton.cdiv(channels, _CHANNELS), count)
    sizes = (height, width, channels, *out_size, window.top, window.left, tiles)
    kind = ACTIVATIONS[activation]
    constants = (window.size, window.stride, kind, _TILE, _CHANNELS)
    _depthwise_kernel[grid](images, weights, bias, output, *sizes, *constants)
    return output
