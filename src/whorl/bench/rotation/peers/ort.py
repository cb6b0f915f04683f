"""onnxruntime: its fused RotaryEmbedding, on preallocated tensors so that nothing is copied."""

from typing import Any

import torch
from torch import Tensor

from whorl.bench.rotation.case import RotationCase

from .base import Peer, PeerCall

__all__ = ["OnnxRuntime"]


class OnnxRuntime(Peer):
    """The com.microsoft operator for q and k in one graph, with tables in the dtype of q.

    Queries, keys and results are bound at every call, as a caller with new tensors must do, or
    once; tables stay bound. The runtime gets as many threads as the cell. It has no bfloat16 kernel
    for the CPU.
    """

    name = "ort"
    title = "onnxruntime"
    module = "onnxruntime"
    package = "onnxruntime"
    dtypes = ("float32", "float16")
    trains = False
    note = "com.microsoft.RotaryEmbedding on preallocated memory"

    def explain_missing(self) -> str | None:
        problem = super().explain_missing()
        if problem is None:
            try:
                import onnx  # noqa: F401  # builds the graph
            except ImportError as error:
                return f"ImportError: {error}"
        return problem

    def build_calls(self, case: RotationCase) -> list[PeerCall]:
        session = _build_session(case)
        binding, run = session.io_binding(), session.run_with_iobinding
        cos, sin = case.angles.cos().to(case.dtype), case.angles.sin().to(case.dtype)
        first = torch.zeros(1).long()
        for name, x in (("cos", cos), ("sin", sin), ("first", first)):
            binding.bind_input(name, "cpu", 0, _get_numpy_type(x), list(x.shape), x.data_ptr())
        kind, q, k, q_out, k_out = _get_numpy_type(case.q), case.q, case.k, case.q_out, case.k_out

        def bind() -> None:
            binding.bind_input("q", "cpu", 0, kind, q.shape, q.data_ptr())
            binding.bind_input("k", "cpu", 0, kind, k.shape, k.data_ptr())
            binding.bind_output("q_out", "cpu", 0, kind, q_out.shape, q_out.data_ptr())
            binding.bind_output("k_out", "cpu", 0, kind, k_out.shape, k_out.data_ptr())

        # The binding holds addresses only; the default argument keeps the tables alive.
        def run_bound(alive: object = (cos, sin, first)) -> tuple[Tensor, Tensor]:
            run(binding)
            return q_out, k_out

        def call() -> tuple[Tensor, Tensor]:
            bind()
            return run_bound()

        bind()
        return [PeerCall("out", call, call), PeerCall("bound", run_bound, run_bound)]


def _build_session(case: RotationCase) -> Any:
    import onnxruntime
    from onnx import TensorProto, helper

    kind = TensorProto.FLOAT if case.dtype == torch.float32 else TensorProto.FLOAT16
    interleaved = int(case.cell.layout == "interleaved")
    nodes = [
        helper.make_node(
            "RotaryEmbedding",
            [name, "first", "cos", "sin"],
            [f"{name}_out"],
            domain="com.microsoft",
            interleaved=interleaved,
        )
        for name in ("q", "k")
    ]
    value = helper.make_tensor_value_info
    table = list(case.angles.shape)
    inputs = [value("q", kind, case.q.shape), value("k", kind, case.k.shape)]
    inputs += [value("cos", kind, table), value("sin", kind, table)]
    inputs += [value("first", TensorProto.INT64, [1])]
    outputs = [value("q_out", kind, case.q.shape), value("k_out", kind, case.k.shape)]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "rotary", inputs, outputs)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = case.cell.threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _get_numpy_type(x: Tensor) -> Any:
    import numpy as np

    return {torch.float32: np.float32, torch.float16: np.float16, torch.int64: np.int64}[x.dtype]
