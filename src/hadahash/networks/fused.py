"""Faster copies of convolutional networks for encoding on a GPU.

Each convolution takes over the batch norm behind it and that one's activation, so the GPU goes
through the memory of its output once instead of three times. PyTorch's compiler does the same and
needs half a minute for it; this takes a second.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils.fusion import fuse_conv_bn_weights

from ..lazy import is_installed
from .backbones import Backbone

# Modules and what they compute; subclasses may compute something else.
_ACTIVATIONS: dict[type[nn.Module], str] = {
    nn.Identity: "identity",
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.SiLU: "silu",
}
_APPLY: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda values: values,
    "relu": F.relu,
    "relu6": F.relu6,
    "silu": F.silu,
}
_WORSE = 2.0  # a copy may be this many times as far from float32 as bfloat16 is


class Window(NamedTuple):
    """A square window of a convolution that moves by `stride`.

    Attributes:
        size: Side of the window.
        stride: Step in both directions.
        top: Rows of zeros above the image.
        left: Columns of zeros on its left side.
    """

    size: int
    stride: int
    top: int
    left: int


class FusedConv(nn.Module):
    """A convolution, a bias and an activation.

    Args:
        conv: A convolution without padding modes other than zeros.
        norm: The batch norm that follows.
        activation: What follows the norm: "identity", "relu", "relu6" or "silu".
        dtype: Type of the weights and of the output; the bias is float32.
    """

    bias: Tensor
    taps: Tensor

    def __init__(
        self, conv: nn.Conv2d, norm: nn.BatchNorm2d, activation: str, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.activation, self.dtype = activation, dtype
        weight, bias = _folded(conv, norm)
        self.conv = copy.deepcopy(conv)
        self.conv.weight = nn.Parameter(
            weight.to(dtype, memory_format=torch.channels_last), requires_grad=False
        )
        self.conv.bias = None
        self.register_buffer("bias", bias.float())
        self.strided_depthwise = _is_strided_depthwise(conv)
        if self.strided_depthwise:
            taps = self.conv.weight.detach().flatten(1).t().contiguous()
            self.register_buffer("taps", taps)

    def forward(self, images: Tensor) -> Tensor:
        """Compute the activation of the norm of the convolution.

        Args:
            images: Float (n, channels, height, width).

        Returns:
            (n, channels, height, width) of the type of the weights.
        """
        images = images.to(self.dtype)
        if not images.is_cuda:
            found = self.conv(images).float() + self.bias[:, None, None]
            return _APPLY[self.activation](found).to(self.dtype)
        from . import gpu_kernels

        if self.strided_depthwise:
            images = images.contiguous(memory_format=torch.channels_last)
            window, out_size = window_of(self.conv, images)
            return gpu_kernels.depthwise(
                images, self.taps, self.bias, window, out_size, self.activation
            )
        found = self.conv(images).contiguous(memory_format=torch.channels_last)
        return gpu_kernels.bias_act_(found, self.bias, self.activation)


def _folded(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Weight and bias of a convolution that includes the norm."""
    mean, variance = norm.running_mean, norm.running_var
    if mean is None or variance is None:
        raise ValueError("a batch norm has no running statistics")
    parts = fuse_conv_bn_weights(
        conv.weight, conv.bias, mean, variance, norm.eps, norm.weight, norm.bias
    )
    return parts[0].detach(), parts[1].detach()


def _is_strided_depthwise(conv: nn.Conv2d) -> bool:
    """Whether `gpu_kernels.depthwise` computes it; cuDNN is slow where the stride is above 1."""
    square = conv.kernel_size[0] == conv.kernel_size[1] and conv.stride[0] == conv.stride[1]
    channels = conv.in_channels == conv.out_channels == conv.groups
    return square and channels and conv.stride[0] > 1 and tuple(conv.dilation) == (1, 1)


def window_of(conv: nn.Conv2d, images: Tensor) -> tuple[Window, tuple[int, int]]:
    """The window of a square convolution, and the size of its output.

    Args:
        conv: A convolution, or one of timm that pads as TensorFlow does.
        images: Its input.

    Returns:
        The window, and height and width of the output.
    """
    from timm.layers import Conv2dSame  # type: ignore[attr-defined]

    size, stride = conv.kernel_size[0], conv.stride[0]
    first, out_size = [], []
    for axis, length in enumerate(images.shape[2:]):
        if isinstance(conv, Conv2dSame):
            out = -(-length // stride)
            first.append(max((out - 1) * stride + size - length, 0) // 2)
        else:
            padding = int(conv.padding[axis])
            out = (length + 2 * padding - size) // stride + 1
            first.append(padding)
        out_size.append(out)
    return Window(size, stride, *first), (out_size[0], out_size[1])


# ---- Copies of networks --------------------------------------------------------------------------


def fuse_backbone(backbone: Backbone) -> Backbone:
    """Make a copy of a backbone with fused convolutions in bfloat16, for encoding on a GPU.

    Args:
        backbone: The backbone, in evaluation mode. Its weights must not change later.

    Returns:
        The copy; the backbone itself if it is not on a GPU, if Triton is not installed, or if its
        structure is not known.
    """
    on_gpu = next(backbone.parameters(), torch.empty(0)).is_cuda
    if not on_gpu or not is_installed("triton"):
        return backbone
    net = fuse(backbone.net, torch.bfloat16)
    if net is None:
        return backbone
    fused = copy.copy(backbone)
    fused.__dict__["_modules"] = {**backbone._modules, "net": net}
    return fused if _agree(backbone, fused) else backbone


def _agree(backbone: Backbone, fused: Backbone) -> bool:
    """Whether a copy computes the same features but for rounding: tracing may miss a condition."""
    kind = backbone.mean.device.type
    coarse = 255 * torch.rand((8, 3, 16, 16), generator=torch.Generator().manual_seed(0))
    size = (backbone.size, backbone.size)  # as smooth as photos: noise has other rounding errors
    pixels = F.interpolate(coarse, size=size, mode="bilinear").to(backbone.mean.device)
    kernels = torch.backends.cudnn.flags(enabled=True, benchmark=False)  # not worth a search
    with torch.inference_mode(), kernels:
        with torch.autocast(kind, enabled=False):
            exact = backbone(pixels)
        with torch.autocast(kind, torch.bfloat16):
            usual, copied = (net(pixels).float() - exact for net in (backbone, fused))
    return bool(copied.norm() <= _WORSE * usual.norm() + 1e-3 * exact.norm())


def fuse(net: nn.Module, dtype: torch.dtype) -> nn.Module | None:
    """Fuse each convolution with the batch norm and the activation that follow it.

    Args:
        net: The network, in evaluation mode.
        dtype: Type of the weights of the convolutions.

    Returns:
        The fused network, which shares all other weights; None if it has no such convolution, or if
        it cannot be traced.
    """
    try:
        graph = _Tracer().trace(net)
    except Exception:  # a network may do anything in `forward`
        return None
    module = fx.GraphModule(net, graph)
    found = list(_pairs(module))
    for conv, norm, activation in found:
        _replace(module, conv, norm, activation, dtype)
    graph.lint()
    module.delete_all_unused_submodules()
    module.recompile()
    return module.eval() if found else None


class _Tracer(fx.Tracer):
    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        known = isinstance(module, (nn.Conv2d, nn.BatchNorm2d, *_ACTIVATIONS))
        return known or super().is_leaf_module(module, name)


def _pairs(module: fx.GraphModule) -> Iterator[tuple[fx.Node, fx.Node, fx.Node | None]]:
    """Convolutions whose output goes to a batch norm only, that norm, and a known activation."""
    modules = dict(module.named_modules())
    uses = Counter(node.target for node in module.graph.nodes if node.op == "call_module")
    for node in module.graph.nodes:
        norm = modules.get(str(node.target)) if node.op == "call_module" else None
        given = node.args[0] if isinstance(norm, nn.BatchNorm2d) else None
        if not isinstance(given, fx.Node) or given.op != "call_module" or len(given.users) > 1:
            continue
        conv, alone = modules[str(given.target)], uses[given.target] == 1 == uses[node.target]
        if isinstance(conv, nn.Conv2d) and conv.padding_mode == "zeros" and alone:
            yield given, node, _activation_after(node, norm, modules)


def _activation_after(
    node: fx.Node, norm: nn.Module | None, modules: dict[str, nn.Module]
) -> fx.Node | None:
    """The node of an activation that is the only one to use a norm without its own."""
    if hasattr(norm, "act") or len(node.users) != 1:
        return None
    user = next(iter(node.users))
    known = user.op == "call_module" and type(modules[str(user.target)]) in _ACTIVATIONS
    return user if known else None


def _replace(
    module: fx.GraphModule,
    conv: fx.Node,
    norm: fx.Node,
    activation: fx.Node | None,
    dtype: torch.dtype,
) -> None:
    """Let one module compute what two or three did."""
    first, second = (cast(Any, module.get_submodule(str(node.target))) for node in (conv, norm))
    act: nn.Module = getattr(second, "act", nn.Identity())  # norms of timm have one
    if activation is not None:
        act = module.get_submodule(str(activation.target))
    fused = FusedConv(first, second, _ACTIVATIONS.get(type(act), "identity"), dtype)
    known = type(act) in _ACTIVATIONS
    module.set_submodule(str(conv.target), fused if known else nn.Sequential(fused, act))
    for node in (norm, activation):
        if node is not None:
            node.replace_all_uses_with(conv)
            module.graph.erase_node(node)
