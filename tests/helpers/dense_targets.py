"""The targets of a loss as matrices."""

import torch


def dense(targets):
    """The targets, which pairs are positives (also those with the target 0), and which pairs are ignored."""
    y = torch.zeros(targets.shape, dtype=torch.float64)
    known = torch.zeros(targets.shape, dtype=torch.bool)
    ignored = torch.zeros(targets.shape, dtype=torch.bool)
    y[targets.rows, targets.columns] = targets.weights.double()
    known[targets.rows, targets.columns] = True
    ignored[targets.ignored_rows, targets.ignored_columns] = True
    return y, known, ignored
