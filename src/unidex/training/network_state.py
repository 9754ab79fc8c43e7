"""The parameters of a network as tensors by name: its modules and its row tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from unidex.nn.network import Network
from unidex.storage.disk_errors import writing
from unidex.storage.tensors import StoredTensors, save_tensors

# Bytes of a copy that is kept in memory; a larger one is kept in a file.
MAX_COPY = 1 << 24
State = dict[str, Tensor]


def network_state(network: Network) -> State:
    """The parameters themselves, not a copy."""
    state = {f"network.{name}": tensor for name, tensor in network.state_dict().items()}
    return state | {f"table.{name}": table.weight for name, table in network.tables().items()}


def load_network(network: Network, state: Mapping[str, Tensor]) -> None:
    """Take the parameters of a state."""
    network.load_state_dict(part(state, "network."))
    for name, table in network.tables().items():
        table.load(state, f"table.{name}")


def copied(state: State, file: Path | None) -> Mapping[str, Tensor]:
    """A copy of tensors as they are now: in memory, or in the file where they are large and there is one."""
    size = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    if file is None or size <= MAX_COPY:
        return {name: tensor.clone() for name, tensor in state.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    # A new file: the copy before it may still be mapped.
    file.unlink(missing_ok=True)
    with writing(file):
        save_tensors(state, file)
    return StoredTensors(file, {name: name for name in state})


def part(tensors: Mapping[str, Tensor], prefix: str) -> State:
    """The tensors whose names have a prefix, without it."""
    return {name.removeprefix(prefix): tensors[name] for name in tensors if name.startswith(prefix)}
