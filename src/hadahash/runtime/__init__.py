"""Two ways to run a saved model, torch and onnxruntime, behind one interface.

`base.Runtime` is the interface. `torch.TorchRuntime` runs the weights of a model, on a CPU or a
GPU. `onnx.OnnxNetwork` runs the graphs that `hadahash export --onnx` wrote, without torch.
"""
