"""The gradients of a step, by name."""

import torch

from unidex.nn.row_table import merged


def gradients(network, touched):
    """Every gradient by name: dense parameters, and tables as whole matrices. They are cleared in the network."""
    found = {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}
    names = {id(table): name for name, table in network.tables().items()}
    for used in merged(touched):
        whole = torch.zeros_like(used.table.weight)
        found[names[id(used.table)]] = whole.index_copy_(0, used.ids, used.rows.grad)
    network.zero_grad()
    return found
