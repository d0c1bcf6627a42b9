"""The kernels of a training step: their classes, their bytes, and how the page shows them."""

from __future__ import annotations

import pytest
import torch
from benches import load_bench


@pytest.fixture
def classes(monkeypatch):
    return load_bench("gpu_classes", monkeypatch)


ELEMENTWISE = "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<"
NAMES = {
    "NORM_FORWARD": [
        "triton_red_fused__native_batch_norm_legit_functional_convolution_12",
        "triton_poi_fused__native_batch_norm_legit_functional_constant_pad_nd_hardtanh_7",
        "void at::native::batch_norm_transform_input_channels_last_kernel<c10::BFloat16, float>",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>",
    ],
    "NORM_BACKWARD": [
        "triton_poi_fused__native_batch_norm_legit_functional_constant_pad_nd_convolution_backward_"
        "hardtanh_backward_native_batch_norm_backward_121",
        "triton_red_fused__native_batch_norm_legit_functional_hardtanh_backward_native_batch_norm_"
        "backward_110",
        "void at::native::batch_norm_backward_reduce_channels_last_kernel<4, c10::BFloat16>",
        "void cudnn::bn_bw_1C11_kernel_new<float, float>",
    ],
    "ACTIVATION": [
        "triton_poi_fused_hardtanh_backward_3",
        "void at::native::vectorized_elementwise_kernel<8, at::native::(anonymous namespace)::"
        "launch_clamp_scalar(at::TensorIteratorBase&)",
    ],
    "DEPTHWISE_FORWARD": [
        "conv2d_c1_k1_nhwc_specialized",
        "void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, int, __nv_bfloat16>",
        "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3>",
        "_depthwise_kernel",
    ],
    "DEPTHWISE_DATA": [
        "dgrad2d_c1_k1_nhwc_specialized",
        "void cudnn::cnn::dgrad2d_grouped_direct_kernel<false>",
        "void at::native::(anonymous namespace)::conv_depthwise2d_backward_kernel<3, 1>",
    ],
    "DEPTHWISE_WEIGHT": [
        "wgrad2d_c1_k1_nhwc",
        "void cudnn::cnn::wgrad2d_grouped_direct_kernel<false, true, int, __nv_bfloat16, float>",
        "void at::native::(anonymous namespace)::conv_depthwise2d_grad_weight_kernel<float>",
    ],
    "PRODUCTS": [
        "nvjet_sm90_tst_96x384_64x3_1x2_h_bz_coopA_TNN",
        "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64",
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x32x8_stage3_warpsize2x2x1_ffma",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x64_nn_align8>",
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816wgrad_optimized_bf16_64x64>",
        "void convolve_common_engine_float_NHWC<__nv_bfloat16, __nv_bfloat16, 128, 5, 5, 3, 3, 3>",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>",
        "triton_tem_fused_mm_4",
    ],
    "OPTIMIZER": [
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
        "namespace)::TensorListMetadata<3>, at::native::FusedSgdMathFunctor<float, 3>>",
        "void at::native::multi_tensor_apply_kernel<TensorListMetadata<2>, LerpFunctor<float>>",
    ],
    "COPIES": [
        "Memcpy DtoD (Device -> Device)",
        "Memset (Device)",
        f"{ELEMENTWISE}at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>",
        "void at::native::vectorized_elementwise_kernel<8, at::native::FillFunctor<float>>",
        "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel>",
        "void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float, false, true>",
        "triton_poi_fused__to_copy_2",
    ],
    "OTHER": [
        f"{ELEMENTWISE}at::native::BinaryFunctor<float, float, float>>",
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 4, true, false>",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>",
        "triton_poi_fused_add_5",
    ],
}


@pytest.mark.parametrize("kind", NAMES)
def test_kernels_are_classified_by_their_names(classes, kind):
    found = {name: classes.class_of(name) for name in NAMES[kind]}
    assert found == dict.fromkeys(NAMES[kind], getattr(classes, kind))
    assert set(NAMES) == {name for name in vars(classes) if vars(classes)[name] in classes.CLASSES}


def test_the_kernels_of_the_augmentation_are_its_own(classes):
    name = NAMES["OTHER"][0]
    step = [classes.Kernel(name, 14, 7.0), classes.Kernel("nvjet_1", 2, 9.0)]
    found = classes.classified(step, [classes.Kernel(name, 10, 5.0)])
    assert found == [
        (classes.PRODUCTS, classes.Kernel("nvjet_1", 2, 9.0)),
        (classes.COPIES, classes.Kernel(name, 10, 5.0)),
        (classes.OTHER, classes.Kernel(name, 4, 2.0)),
    ]
    assert classes.classified(step[:1], [classes.Kernel(name, 14, 6.0)]) == [
        (classes.COPIES, classes.Kernel(name, 14, 7.0))  # nothing is left of it
    ]
    totals = classes.totals(found, {classes.PRODUCTS: 100})
    assert list(totals) == [classes.PRODUCTS, classes.COPIES, classes.OTHER]
    assert totals[classes.PRODUCTS] == {"seconds": 9.0, "calls": 2, "bytes": 100}
    assert totals[classes.OTHER] == {"seconds": 2.0, "calls": 4}


def test_the_bytes_of_a_step_follow_from_the_layers(classes):
    conv, depthwise = torch.nn.Conv2d(3, 8, 1), torch.nn.Conv2d(8, 8, 3, groups=8)
    layers = [
        classes.Layer(conv, 3, 8, True),
        classes.Layer(torch.nn.BatchNorm2d(8), 8, 8, False),
        classes.Layer(depthwise, 8, 2, False),
        classes.Layer(torch.nn.Linear(2, 4), 2, 4, False),
    ]
    found = classes.bytes_moved(layers, 10, 100)
    assert found == {
        classes.NORM_FORWARD: 20 * (8 + 8 + 8),
        classes.NORM_BACKWARD: 20 * (2 * (8 + 8) + 8),
        classes.PRODUCTS: 20 * (2 * 11 + 3 * 6),
        classes.DEPTHWISE_FORWARD: 200,
        classes.DEPTHWISE_DATA: 200,
        classes.DEPTHWISE_WEIGHT: 200,
        classes.OPTIMIZER: 3200,
    }


def test_a_gpu_is_busy_while_any_kernel_runs(monkeypatch):
    kernels = load_bench("gpu_kernels", monkeypatch)
    assert kernels.busy_seconds([(5, 6), (0, 2), (1, 3), (1, 2)]) == 4
    found = kernels.per_step([("a", 0.0, 1.0), ("b", 1.0, 4.0), ("a", 4.0, 6.0)])
    assert found == [("a", 2 / 3, 1.0), ("b", 1 / 3, 1.0)]


def test_the_page_has_the_classes_of_kernels(monkeypatch):
    section = load_bench("gpu_kernels_section", monkeypatch)
    named = {
        "norms": {"seconds": 0.004, "calls": 98, "bytes": 8e9},
        "loss and other": {"seconds": 0.002, "calls": 10.4},
    }
    step = {"seconds": 0.01, "busy_seconds": 0.006, "idle": 0.4, "classes": named}
    result = {"machine": {"copy_bytes": 4e12}, "step_kernels": {"224": step}}
    lines = section.step_kernels(result)
    assert "| 224 | norms | 98 | 4.00 | 40% | 8,000 | 50% |" in lines
    assert "| 224 | loss and other | 10 | 2.00 | 20% |  |  |" in lines
    assert "| 224 | idle | | 4.00 | 40% | | |" in lines
    assert section.longest_classes(result, "224") == (
        "Of a step, 40% norms (at 50% of the bandwidth of the memory); 20% loss and other. "
        "The GPU is idle for 40% of it."
    )
    assert section.step_kernels({"step_kernels": {"32": {"seconds": 1.0}}}) == []  # on a CPU


def test_a_profile_of_steps_is_stored_with_its_classes(tmp_path, monkeypatch):
    """What a GPU would report, since there may be none here."""
    bench = load_bench("gpu", monkeypatch)
    kernels = bench.gpu_kernels
    session = bench.Session(bench.SMOKE, torch.device("cpu"), "none", tmp_path, 0.0)
    parts = kernels.gpu_train.parts_of(session, 32, 8)
    norm, product = "triton_red_fused__native_batch_norm_legit_1", "nvjet_sm90"
    once = [(product, 0.0, 0.6), (norm, 0.6, 0.9), (norm, 1.2, 1.5), ("add", 1.5, 1.8)]
    profiles = {parts.whole: kernels.STEPS * once, parts.augment: kernels.STEPS * once[3:]}
    shifted = {run: [] for run in profiles}
    for run, found in profiles.items():
        for place, (name, start, end) in enumerate(found):
            step = 10 * (place // (len(found) // kernels.STEPS))
            shifted[run].append((name, start + step, end + step))
    monkeypatch.setattr(bench.Session, "on_gpu", True)
    monkeypatch.setattr(kernels, "profiled", lambda run: shifted[run])
    monkeypatch.setattr(kernels, "seconds_of", lambda *given: 2.0)
    result = {}
    kernels.measure(session, 32, 8, result)
    found = result["step_kernels"]["32"]
    assert (found["batch"], found["seconds"]) == (8, 2.0)
    assert found["busy_seconds"] == pytest.approx(1.5) and found["idle"] == pytest.approx(0.25)
    times = {name: (each["seconds"], each["calls"]) for name, each in found["classes"].items()}
    assert times == {
        "other convolutions and matrix products": (pytest.approx(0.6), 1),
        "norms and activations, forward": (pytest.approx(0.6), 2),
        "copies and augmentation": (pytest.approx(0.3), 1),
    }
    assert found["classes"]["norms and activations, forward"]["bytes"] > 1e5
    assert sum(each["seconds"] for each in found["kernels"]) == pytest.approx(1.5)
    result["machine"] = {"copy_bytes": 4e12}
    assert "| 32 | idle | | 500.00 | 25% | | |" in bench.gpu_section.step_kernels(result)
