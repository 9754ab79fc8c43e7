"""An ONNX graph that grows node by node. The package onnx is imported when a graph is begun."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unidex.errors import MissingExtraError, ModelError
from unidex.nn.sentence_modules import Dense, Normalize

FILE = "model.onnx"
OPSET = 17
_IR_VERSION = 8  # the version of the file format that came with the operators
_SHORTEST = 1e-12  # torch's minimum of a length that it divides by
_LARGE = 1 << 30  # bytes of constants from which they have a file of their own: one file has at most 2 GiB
_ACTIVATIONS = {nn.Identity: "Identity", nn.Tanh: "Tanh", nn.ReLU: "Relu", nn.Sigmoid: "Sigmoid"}


class OnnxGraph:
    """Nodes, constants and inputs. Every method that adds a node gives the name of its output."""

    def __init__(self) -> None:
        try:
            import onnx
        except ImportError:
            raise MissingExtraError("--to onnx", "onnx") from None
        self._onnx: Any = onnx
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: dict[str, Any] = {}
        self._num_bytes = 0

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs so far."""
        return list(self._inputs)

    def input(self, name: str, dtype: type[np.generic], shape: Sequence[str | int]) -> str:
        """An input; a second one of the same name is the first."""
        helper = self._onnx.helper
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._inputs.setdefault(name, helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def constant(self, value: NDArray[Any] | Tensor) -> str:
        """A constant."""
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        name = f"constant_{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        self._num_bytes += array.nbytes
        return name

    def node(self, operator: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        """A node with one output."""
        return self.nodes(operator, *inputs, names=[name or f"value_{len(self._nodes)}"], **attributes)[0]

    def nodes(self, operator: str, *inputs: str, names: list[str], **attributes: Any) -> list[str]:
        """A node with the named outputs."""
        self._nodes.append(self._onnx.helper.make_node(operator, list(inputs), names, **attributes))
        return names

    def weighted_sum(self, table: Tensor, ids_NU: str, weights_NU: str) -> str:
        """The sums of rows of a table with these numbers and weights, per text."""
        rows_NUD = self.node("Gather", self.constant(table), ids_NU)
        axis = self.constant(np.array([2]))
        weighted_NUD = self.node("Mul", rows_NUD, self.node("Unsqueeze", weights_NU, axis))
        return self.node("ReduceSum", weighted_NUD, self.constant(np.array([1])), keepdims=0)

    def modules(self, vectors_ND: str, modules: Sequence[nn.Module]) -> str:
        """The vectors behind dense layers and divisions by their lengths."""
        for module in modules:
            if isinstance(module, Normalize):
                lengths = self.node("ReduceL2", vectors_ND, axes=[1], keepdims=1)
                shortest = self.constant(np.array([_SHORTEST], dtype=np.float32))
                vectors_ND = self.node("Div", vectors_ND, self.node("Max", lengths, shortest))
            elif isinstance(module, Dense):
                vectors_ND = self._dense(vectors_ND, module)
            else:
                raise ModelError(f"a module must be a dense layer or Normalize, but is {type(module).__name__}")
        return vectors_ND

    def _dense(self, vectors_ND: str, module: Dense) -> str:
        activation = _ACTIVATIONS.get(type(module.activation))
        if activation is None:
            known = ", ".join(sorted(kind.__name__ for kind in _ACTIVATIONS))
            raise ModelError(
                f"--to onnx knows the activations {known}, but the model has {type(module.activation).__name__}"
            )
        found = self.node(activation, self._linear(vectors_ND, module.linear))
        if not module.adds_input:
            return found
        kept = vectors_ND if module.residual is None else self._linear(vectors_ND, module.residual)
        return self.node("Add", found, kept)

    def _linear(self, vectors_ND: str, linear: nn.Linear) -> str:
        inputs = [vectors_ND, self.constant(linear.weight)]
        return self.node("Gemm", *inputs, *([] if linear.bias is None else [self.constant(linear.bias)]), transB=1)

    def trace(self, module: nn.Module, inputs: dict[str, Tensor], prefix: str) -> str:
        """The vectors of a torch module, which torch itself translates; all inputs are texts x tokens."""
        onnx = self._onnx
        axes = {name: {0: "texts", 1: "tokens"} for name in inputs}
        with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
            # The exporter by tracing needs no further package; the result is compared with the model.
            warnings.simplefilter("ignore")
            file = Path(place) / FILE
            torch.onnx.export(
                module.eval(),
                tuple(inputs.values()),
                str(file),
                input_names=list(inputs),
                output_names=["vectors"],
                dynamic_axes=axes | {"vectors": {0: "texts"}},
                opset_version=OPSET,
                dynamo=False,
            )
            traced = onnx.compose.add_prefix(onnx.load(file), prefix, rename_inputs=False)
        for name in inputs:
            self.input(name, np.int64, ["texts", "tokens"])
        self._nodes += traced.graph.node
        self._constants += traced.graph.initializer
        self._num_bytes += traced.ByteSize()
        return f"{prefix}vectors"

    def save(self, folder: Path, outputs: dict[str, type[np.generic]]) -> None:
        """Write the graph with these outputs, texts x something each; large constants go to a file beside it."""
        onnx, helper = self._onnx, self._onnx.helper
        results = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), ["texts", None])
            for name, dtype in outputs.items()
        ]
        graph = helper.make_graph(self._nodes, "unidex", list(self._inputs.values()), results, self._constants)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=_IR_VERSION, producer_name="unidex"
        )
        beside = {"save_as_external_data": True, "location": f"{FILE}.data"} if self._num_bytes > _LARGE else {}
        onnx.save_model(model, folder / FILE, **beside)
        onnx.checker.check_model(folder / FILE)
