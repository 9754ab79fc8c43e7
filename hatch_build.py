"""The build of the package: compiles the kernels of `unidex.native` where a C compiler and Python's headers are.

`pip install` runs it, also for an editable installation. Without a compiler, or with UNIDEX_NATIVE=0, the package is
built without kernels and computes the same numbers by NumPy. By hand, into the source tree: python hatch_build.py
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parent / "src" / "unidex" / "native"
NAME = "_kernels.abi3.so"
# Products are rounded before they are added, as NumPy does it.
FLAGS = ("-O3", "-std=c11", "-ffp-contract=off", "-fPIC", "-shared", "-fvisibility=hidden")


def compile_kernels(place: Path) -> str | None:
    """Compile the kernels into a file; the reason if it cannot be done, else None."""
    if os.environ.get("UNIDEX_NATIVE") == "0":
        return "UNIDEX_NATIVE is 0"
    if sys.platform == "win32" or sys.implementation.name != "cpython":
        return f"there is no recipe for {sys.platform} and {sys.implementation.name}"
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    undefined = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    files = [str(file) for file in sorted(SOURCES.glob("*.c"))]
    new = place.with_name(f".{place.name}.{os.getpid()}")
    command = [*compiler, *FLAGS, *undefined, f"-I{sysconfig.get_path('include')}", *files, "-o", str(new), "-lm"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        if found.returncode:
            return (found.stderr.strip().splitlines() or [f"{compiler[0]} ended with {found.returncode}"])[0]
        # A process that has the old file open keeps it.
        new.replace(place)
    except OSError as error:
        return str(error)
    finally:
        new.unlink(missing_ok=True)
    return None


def wheel_tag() -> str:
    """Any Python from 3.11 on, on this platform."""
    return f"cp311-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:
    BuildHookInterface = object  # type: ignore[assignment, misc]


class KernelHook(BuildHookInterface):  # type: ignore[misc]
    """Compiles before the files of a wheel are collected."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the compiled file to a wheel, or say why there is none."""
        if self.target_name != "wheel":
            return
        reason = compile_kernels(SOURCES / NAME)
        if reason is not None:
            self.app.display_warning(f"The kernels are not compiled ({reason}); NumPy takes their place.")
            return
        build_data["artifacts"].append(f"src/unidex/native/{NAME}")
        build_data["pure_python"] = False
        build_data["tag"] = wheel_tag()


if __name__ == "__main__":
    sys.exit(compile_kernels(SOURCES / NAME))
