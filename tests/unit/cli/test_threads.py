"""Threads wait without spinning, and there are no more than cores."""

import pytest

from unidex.cli import threads


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"cpu.max": "250000 100000\n"}, 2),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "nonsense\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
    ],
)
def test_the_limit_of_a_container(files, limit, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert threads._limit_of_group(tmp_path) == limit


def test_threads_sleep_while_they_wait_unless_a_user_has_set_it(monkeypatch, tmp_path):
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    monkeypatch.setattr(threads, "_GROUP", tmp_path)
    monkeypatch.setattr(threads, "_usable_cores", lambda: 8)
    environment = {}
    threads.choose_threads(environment)
    sleeps = {"GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0", "OPENBLAS_THREAD_TIMEOUT": "4"}
    assert environment == sleeps | {"OMP_NUM_THREADS": "1"}
    chosen = dict.fromkeys(sleeps, "9") | {"OMP_NUM_THREADS": "3"}
    threads.choose_threads(environment := dict(chosen))
    assert environment == chosen
