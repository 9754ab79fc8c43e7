"""The processes of a run: ranks, how work is split among them, and the collectives they call.

Started by ``torchrun``, a run has several processes. Texts are split evenly among them; labels are split into shards of
adjacent rows. Every method is a no-op on one process, so that callers need not ask how many there are.

Every process makes the same random choices from the same seed and so has the same batch, pool and targets; only
vectors, gradients and a few numbers per text are exchanged.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from unidex.errors import UnidexError

# Timeout of a collective: rank 0 may build an index while the others wait. A dead process is noticed at once, by its
# closed connection.
_COLLECTIVE_TIMEOUT = timedelta(hours=6)
# All processes start together, before any work.
_START_TIMEOUT = timedelta(minutes=10)
# Words in the errors of the back ends when another process is gone.
_LOST = ("closed by peer", "reset by peer", "broken pipe", "timed out", "gloo", "nccl", "remote process", "socket")


class ProcessLostError(UnidexError):
    """Another process of the run has ended.

    Attributes:
        is_first: whether no other process has reported it before; one message is enough.
        leaves_threads: threads of the process group still wait for the lost process.
    """

    leaves_threads = True

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.is_first = _is_first_to_report("lost")


class Processes:
    """The processes of this run.

    >>> alone = Processes()
    >>> alone.size, alone.is_first, alone.part(5), alone.shard(5)
    (1, True, slice(0, 5, None), slice(0, 5, None))
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes and prints."""
        return self.rank == 0

    def part(self, count: int) -> slice:
        """The part of this rank of ``count`` things; sizes of parts differ by at most one.

        >>> [Processes(rank, 3).part(7) for rank in range(3)]
        [slice(0, 3, None), slice(3, 5, None), slice(5, 7, None)]
        """
        return self._part_of(self.rank, count)

    def shard(self, count: int) -> slice:
        """The rows of this rank of a table of ``count`` rows: ceil(count / size), as DTensor's ``Shard(0)`` cuts it.

        >>> [Processes(rank, 3).shard(7) for rank in range(3)]
        [slice(0, 3, None), slice(3, 6, None), slice(6, 7, None)]
        """
        rows = -(-count // self.size)
        return slice(min(self.rank * rows, count), min((self.rank + 1) * rows, count))

    def own_rows(self, table: Any) -> Any:
        """The rows of this rank of a table; alone the table itself, because the rows of a sparse one are a copy.

        >>> rows = [1, 2]
        >>> ALONE.own_rows(rows) is rows, Processes(1, 2).own_rows(torch.tensor(rows)).tolist()
        (True, [2])
        """
        return table if self.size == 1 else table[self.shard(table.shape[0])]

    def sum_(self, values: Tensor) -> Tensor:
        """The sum over processes, in place."""
        return self._reduce(values, dist.ReduceOp.SUM)

    def max_(self, values: Tensor) -> Tensor:
        """The maximum over processes, in place."""
        return self._reduce(values, dist.ReduceOp.MAX)

    def any(self, value: bool) -> bool:
        """Whether the value is true on any process."""
        if self.size == 1:
            return value
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        return bool(self.max_(torch.tensor(float(value), device=device)))

    def gather(self, rows: Tensor) -> Tensor:
        """The rows of all processes by rank; each rank may have another number of rows."""
        if self.size == 1:
            return rows
        sizes = self._sizes(rows)
        padded = rows.new_zeros(max(sizes), *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    def gather_on_first(self, rows: Tensor) -> Tensor | None:
        """The rows of all processes on rank 0; None on the others, which need no further memory."""
        if self.size == 1:
            return rows
        sizes = self._sizes(rows)
        if not self.is_first:
            dist.send(rows.contiguous(), 0)
            return None
        found = rows.new_empty(sum(sizes), *rows.shape[1:])
        found[: sizes[0]] = rows
        start = sizes[0]
        for rank in range(1, self.size):
            dist.recv(found[start : start + sizes[rank]], rank)
            start += sizes[rank]
        return found

    def reduce_scatter(self, rows: Tensor) -> Tensor:
        """The sum over processes of a tensor with one row per thing that `part` splits; the part of this rank of it."""
        if self.size == 1:
            return rows
        max_rows = -(-len(rows) // self.size)
        padded = rows.new_zeros(self.size, max_rows, *rows.shape[1:])
        for rank in range(self.size):
            part = self._part_of(rank, len(rows))
            padded[rank, : part.stop - part.start] = rows[part]
        total = torch.empty_like(padded[0])
        # Renamed in torch 2.13.
        reduce = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        reduce(total, padded.flatten(0, 1))
        own = self.part(len(rows))
        return total[: own.stop - own.start]

    def barrier(self) -> None:
        """Wait until all processes have called this."""
        if self.size > 1:
            dist.barrier()

    def _sizes(self, rows: Tensor) -> list[int]:
        counts = torch.zeros(self.size, dtype=torch.int64, device=rows.device)
        counts[self.rank] = len(rows)
        return self.sum_(counts).tolist()

    def _part_of(self, rank: int, count: int) -> slice:
        small, larger = divmod(count, self.size)
        start = rank * small + min(rank, larger)
        return slice(start, start + small + (rank < larger))

    def _reduce(self, values: Tensor, how: dist.ReduceOp.RedOpType) -> Tensor:
        if self.size > 1 and values.numel():
            dist.all_reduce(values, how)
        return values


ALONE = Processes()


def is_distributed() -> bool:
    """Whether torchrun (or a launcher that sets the same variables) has started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def was_restarted() -> bool:
    """Whether torchrun has started this process again after one had ended."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def local_device(name: str) -> str:
    """The device of this process: with several on a machine that has GPUs, each takes its own."""
    if name in ("auto", "cuda") and is_distributed() and torch.cuda.is_available():
        return f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"
    return name


@contextmanager
def process_group(device: torch.device) -> Iterator[Processes]:
    """Yield the processes of this run; one process where torchrun has not started several.

    When a process ends early, the others stop with one message from the first that notices.
    """
    if not is_distributed():
        yield ALONE
        return
    processes = Processes(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    try:
        _join(device)
        yield processes
        processes.barrier()
        dist.destroy_process_group()
    except (RuntimeError, ValueError) as error:
        if isinstance(error, UnidexError) or not any(word in str(error).lower() for word in _LOST):
            raise
        raise ProcessLostError(
            f"all {processes.size} processes of a run must live, but one has ended or cannot be reached (process "
            f"{processes.rank} noticed: {str(error).splitlines()[0][:120]}); continue with --resume, or let torchrun "
            "do so with --max-restarts"
        ) from error


def _join(device: torch.device) -> None:
    if dist.is_initialized():
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store, rank, size = next(rendezvous("env://", timeout=_START_TIMEOUT))
    # Some versions of torch (pytorch/pytorch#135712) put the restart count of the own torchrun before all keys.
    while isinstance(store, dist.PrefixStore):  # type: ignore[attr-defined]
        store = store.underlying_store
    named = dist.PrefixStore(_agreed_name(store, rank, size), store)  # type: ignore[attr-defined]
    named.set_timeout(_COLLECTIVE_TIMEOUT)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=named, rank=rank, world_size=size, timeout=_COLLECTIVE_TIMEOUT)


def _agreed_name(
    store: dist.Store,  # type: ignore[name-defined]
    rank: int,
    size: int,
    timeout: timedelta = _START_TIMEOUT,
) -> str:
    """A name in the store that only the processes of this start share.

    torchrun keeps one store over restarts: without a new name, a process could read the address of a dead one.
    No variable tells the starts apart, since each torchrun counts only its own restarts. So rank 0 proposes a name,
    all ranks write their ids under it, and rank 0 lists the ids when all are there. A process may read the name of a
    dead rank 0 too, but the list under it, if any, lacks the id of that process.
    """
    own_id, name = f"unidex/{secrets.token_hex(8)}", ""
    if rank == 0:
        store.set("unidex/name", own_id)
    end = time.monotonic() + timeout.total_seconds()
    while time.monotonic() < end:
        # Read again each time: the first value may be the name of the previous start, until rank 0 writes.
        if store.check(["unidex/name"]) and (found := store.get("unidex/name").decode()) != name:
            name = found
            store.set(f"{name}/here/{rank}", own_id)
        here = [f"{name}/here/{other}" for other in range(size)]
        if rank == 0 and store.check(here):
            store.set(f"{name}/all", " ".join(store.get(key).decode() for key in here))
        if name and store.check([f"{name}/all"]) and own_id in store.get(f"{name}/all").decode().split():
            return name
        time.sleep(0.1)
    # Processes under an old name are dead, so this is a lower bound; without a name at least rank 0 is missing.
    missing = max(1, sum(not store.check([key]) for key in here)) if name else 1
    raise ProcessLostError(
        f"all {size} processes of a run must start within {timeout.total_seconds() / 60:g} minutes of each other, but "
        f"at least {missing} had not started when process {rank} gave up; check that the same command runs on every "
        "machine and that the machines reach each other, then start again with --resume"
    )


def _is_first_to_report(what: str) -> bool:
    """Whether no other process of this run has reported this yet, so that a user sees one message."""
    if not dist.is_initialized():
        return True
    try:
        store = dist.distributed_c10d._get_default_store()
        return int(store.add(f"reported/{what}", 1)) == 1
    except RuntimeError:
        # The store may be gone with its process. Two messages are better than none.
        return True
