"""Kernels for the vector units that a processor has."""

import os
import subprocess
import sys

import pytest

from unidex.cli import processor

WIDE = "fpu avx2 avx512f avx512dq avx512cd avx512bw avx512vl sha_ni"


def about(vendor, flags):
    core = f"processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: a: b\nflags\t\t: {flags}\npower management:\n"
    return f"{core}\n{core.replace(flags, '')}"


@pytest.mark.parametrize(
    ("content", "chosen"),
    [
        (about("AuthenticAMD", WIDE), "SkylakeX"),
        (about("AuthenticAMD", "fpu avx2"), None),
        (about("AuthenticAMD", WIDE.replace("avx512vl", "")), None),
        # OpenBLAS knows them.
        (about("GenuineIntel", WIDE), None),
        ("Features : neon\n", None),
        ("", None),
        (None, None),
    ],
)
def test_wide_vectors_of_amd_are_named(content, chosen, monkeypatch, tmp_path):
    monkeypatch.setattr(processor, "_PROCESSORS", tmp_path / "cpuinfo")
    if content is not None:
        (tmp_path / "cpuinfo").write_text(content)
    environment = {}
    processor.choose_kernels(environment)
    assert environment.get("OPENBLAS_CORETYPE") == chosen
    processor.choose_kernels(environment := {"OPENBLAS_CORETYPE": "Zen"})
    assert environment == {"OPENBLAS_CORETYPE": "Zen"}


def test_numpy_multiplies_with_what_is_chosen_here():
    processor.choose_kernels(environment := dict(os.environ))
    program = "import numpy as np; a = np.ones((64, 64), dtype=np.float32); print(float((a @ a).sum()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == str(64.0**3)
