"""Fused copies of networks compute the same features; the kernels equal PyTorch's operations."""

from __future__ import annotations

import copy
import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from hadahash.lazy import is_installed
from hadahash.networks import build_backbone, fused
from hadahash.networks.fused import FusedConv, fuse, fuse_backbone, window_of

KERNELS = """
import itertools, torch
from timm.layers import Conv2dSame
from torch.nn import functional as F
from hadahash.networks import gpu_kernels
from hadahash.networks.fused import window_of

torch.manual_seed(0)
ACT = {"identity": lambda x: x, "relu": F.relu, "relu6": F.relu6, "silu": F.silu}
assert ACT.keys() == gpu_kernels.ACTIVATIONS.keys()
channels_last = {"memory_format": torch.channels_last}
for (name, act), channels in itertools.product(ACT.items(), (3, 72)):
    values = (4 * torch.randn(2, channels, 5, 7)).contiguous(**channels_last)
    bias = torch.randn(channels)
    expected = act(values + bias[:, None, None])
    torch.testing.assert_close(gpu_kernels.bias_act_(values, bias, name), expected)
sizes = ((9, 14), (16, 5))
for kind, size, stride, shape in itertools.product("ps", (3, 5), (2, 3), sizes):
    options = {"stride": stride, "groups": 40, "bias": False}
    same = Conv2dSame(40, 40, size, **options)
    conv = same if kind == "s" else torch.nn.Conv2d(40, 40, size, padding=size // 2, **options)
    images = torch.randn(2, 40, *shape).contiguous(**channels_last)
    bias, weight = torch.randn(40), conv.weight.detach()
    taps = weight.flatten(1).t().contiguous()
    got = gpu_kernels.depthwise(images, taps, bias, *window_of(conv, images), "relu6")
    expected = F.relu6(conv(images).detach() + bias[:, None, None])
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert got.is_contiguous(**channels_last)
print("equal")
"""


def randomize_norms(net: nn.Module) -> None:
    """Give norms statistics and weights other than 0 and 1."""
    generator = torch.Generator().manual_seed(0)
    for norm in net.modules():
        if isinstance(norm, nn.BatchNorm2d):
            for tensor in (norm.running_mean, norm.bias.data):
                tensor.copy_(0.3 * torch.randn(tensor.shape, generator=generator))
            for tensor in (norm.running_var, norm.weight.data):
                tensor.copy_(0.5 + torch.rand(tensor.shape, generator=generator))


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("timm/test_efficientnet", 13),
        ("timm/resnet18", 20),
        ("torchvision/resnet18", 20),
        ("timm/mobilenetv3_small_050", 34),
        ("torchvision/mobilenet_v2", 52),
    ],
)
def test_a_fused_network_computes_the_same(name, count):
    backbone = build_backbone(name, weights="none").eval()
    randomize_norms(backbone)
    before = {key: value.clone() for key, value in backbone.net.state_dict().items()}
    net = fuse(backbone.net, torch.float32)
    kinds = [type(module) for module in net.modules()]
    assert kinds.count(FusedConv) == count
    assert not any(issubclass(kind, nn.BatchNorm2d) for kind in kinds)
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        expected = backbone.net(images)
        torch.testing.assert_close(net(images), expected, rtol=1e-4, atol=1e-5)
    after = backbone.net.state_dict()
    assert all(torch.equal(after[key], value) for key, value in before.items())


class Chain(nn.Module):
    """Convolution, norm, and what follows."""

    def __init__(self, *after: nn.Module, uses: int = 1) -> None:
        super().__init__()
        self.conv, self.norm, self.uses = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), uses
        self.after = nn.Sequential(*after)

    def forward(self, images):
        for _ in range(self.uses):
            images = self.after(self.norm(self.conv(images)))
        return images


class Sum(Chain):
    """The convolution has a second user, so the norm cannot be folded into it."""

    def forward(self, images):
        found = self.conv(images)
        return found + self.norm(found)


@pytest.mark.parametrize(
    ("net", "expected"),
    [
        (Chain(nn.ReLU()), ["relu"]),
        (Chain(nn.SiLU(), nn.ReLU()), ["silu"]),
        (Chain(nn.Hardswish()), ["identity"]),
        (Chain(nn.Dropout(0.5), nn.ReLU()), ["identity"]),
        (Chain(nn.ReLU(), uses=2), []),
        (Sum(), []),
        (nn.Conv2d(3, 3, 3), []),
    ],
)
def test_what_is_fused(net, expected):
    net = net.eval()
    randomize_norms(net)
    found = fuse(net, torch.float32)
    modules = [] if found is None else list(found.modules())
    assert [own.activation for own in modules if isinstance(own, FusedConv)] == expected
    if expected:
        images = torch.randn(2, 3, 8, 8)
        with torch.no_grad():
            torch.testing.assert_close(found(images), net(images), rtol=1e-4, atol=1e-5)


def test_a_network_that_cannot_be_traced_stays_as_it_is():
    class Depends(Chain):
        def forward(self, images):
            return super().forward(images) if images.sum() > 0 else images

    assert fuse(Depends().eval(), torch.float32) is None


def test_a_backbone_on_a_cpu_stays_as_it_is():
    backbone = build_backbone("timm/test_efficientnet", weights="none").eval()
    assert fuse_backbone(backbone) is backbone


def test_a_copy_that_computes_something_else_is_not_used():
    backbone = build_backbone("timm/test_efficientnet", weights="none").eval()
    randomize_norms(backbone)
    right, wrong = copy.copy(backbone), copy.deepcopy(backbone)
    right.__dict__["_modules"] = {"net": fuse(backbone.net, torch.bfloat16)}
    next(m for m in wrong.modules() if isinstance(m, nn.BatchNorm2d)).bias.data += 3
    assert fused._agree(backbone, right)
    assert not fused._agree(backbone, wrong)


@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("side", [7, 8, 9])
def test_the_window_of_a_convolution(padding, side):
    conv, images = nn.Conv2d(4, 4, 5, 2, padding, groups=4), torch.zeros(1, 4, side, side + 1)
    window, out_size = window_of(conv, images)
    assert window == (5, 2, padding, padding)
    assert out_size == F.conv2d(images, conv.weight, None, 2, padding, 1, 4).shape[2:]


@pytest.mark.skipif(not is_installed("triton"), reason="triton is not installed")
def test_the_kernels_equal_pytorch():
    done = subprocess.run(
        [sys.executable, "-c", KERNELS],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "equal", done.stderr[-2000:]
