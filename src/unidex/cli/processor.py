"""The kernels of NumPy's library for products of matrices: those of the vector units that the processor has.

OpenBLAS chooses them by a processor's name, and takes AMD's processors with vectors of 512 bits for older ones:
products then take twice as long. It reads the environment when it is loaded, so it is set before. What a user has set
stays.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path

_PROCESSORS = Path("/proc/cpuinfo")
# The instructions of OpenBLAS's kernels for vectors of 512 bits.
_KERNELS, _NEEDED = "SkylakeX", {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}


def choose_kernels(environment: MutableMapping[str, str]) -> None:
    """Name the kernels where OpenBLAS would choose others."""
    try:
        # Of the first core alone: a machine may have hundreds.
        lines = _PROCESSORS.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0].splitlines()
    except OSError:
        return
    about = {name.strip(): value.split() for name, _, value in (line.partition(":") for line in lines)}
    if about.get("vendor_id") == ["AuthenticAMD"] and set(about.get("flags", ())) >= _NEEDED:
        environment.setdefault("OPENBLAS_CORETYPE", _KERNELS)
