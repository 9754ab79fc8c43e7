"""Blocked losses as plain functions of texts, labels, scale and targets."""

from functools import partial

from unidex.losses import run_blocked

RUN = {"texts_BD", "labels_LD", "scale", "targets", "log_q_L", "block_size", "ranks", "sink"}


def as_function(loss):
    """The blocked loss; it takes its own options and those of `run_blocked`."""

    def call(*sides, **options):
        own = {name: value for name, value in options.items() if name not in RUN}
        return run_blocked(partial(loss, **own), *sides, **{name: options[name] for name in options.keys() & RUN})

    return call
