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


def test_help_takes_less_than_the_limit():
    assert min(cpu_seconds("--help") for _ in range(5)) < LIMIT_SECONDS
