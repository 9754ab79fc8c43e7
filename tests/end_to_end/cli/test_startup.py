"""A command line that answers at once."""

import resource
import subprocess

from helpers.command import UNIDEX

LIMIT_SECONDS = 0.4


def cpu_seconds(*arguments):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([UNIDEX, *arguments], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def test_help_takes_less_cpu_time_than_the_limit():
    # The first of up to 20 tries that is not disturbed by other work on the machine.
    assert any(cpu_seconds("--help") < LIMIT_SECONDS for _ in range(20))
