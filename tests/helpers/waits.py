"""Waiting for another process or thread, on a machine that may be busy with other work."""

import time

# Seconds. A wait ends when the event happens; only a test that fails takes this long.
PATIENCE = 900


def wait_until(condition, *, pause=0.01):
    """The first true value of a condition. Fails where none comes."""
    end = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < end, f"nothing happened for {PATIENCE} s"
        time.sleep(pause)
    return value
