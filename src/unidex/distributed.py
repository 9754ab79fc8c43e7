"""The processes of a run: who I am, what is mine, and what we tell each other.

Started by ``torchrun``, a run has several processes. Texts are split evenly among them; labels are split into shards of
neighbouring rows. Every method is a no-op on one process, so that callers need not ask how many there are.

Every process makes the same random choices from the same seed and therefore knows batch, pool and targets without being
told; only vectors, gradients and a few numbers a text are exchanged.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from unidex.errors import UnidexError

# A process that says nothing for so long is given up; the first may build an index while the others wait. One that
# dies is noticed at once, by its closed connection.
_PATIENCE = timedelta(hours=6)
# All start together, before any work: whoever is not here after so long will not come.
_JOINING = timedelta(minutes=10)
# What the back ends say when a process on the other side is gone.
_LOST = ("closed by peer", "reset by peer", "broken pipe", "timed out", "gloo", "nccl", "remote process", "socket")


class ProcessLostError(UnidexError):
    """Another process of the run has ended.

    Attributes:
        is_first: whether no other process has said so before; one message is enough.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.is_first = _is_first_to_say("lost")


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
        """My part of ``count`` things, of sizes that differ by at most one.

        >>> [Processes(rank, 3).part(7) for rank in range(3)]
        [slice(0, 3, None), slice(3, 5, None), slice(5, 7, None)]
        """
        return self._part_of(self.rank, count)

    def shard(self, count: int) -> slice:
        """My rows of a table of ``count`` rows: torch's own way of cutting (DTensor, ``Shard(0)``), ceil(count / size).

        >>> [Processes(rank, 3).shard(7) for rank in range(3)]
        [slice(0, 3, None), slice(3, 6, None), slice(6, 7, None)]
        """
        rows = -(-count // self.size)
        return slice(min(self.rank * rows, count), min((self.rank + 1) * rows, count))

    def sum_(self, values: Tensor) -> Tensor:
        """The sum over processes, in place."""
        return self._reduce(values, dist.ReduceOp.SUM)

    def max_(self, values: Tensor) -> Tensor:
        """The highest over processes, in place."""
        return self._reduce(values, dist.ReduceOp.MAX)

    def min_(self, values: Tensor) -> Tensor:
        """The lowest over processes, in place."""
        return self._reduce(values, dist.ReduceOp.MIN)

    def any(self, said: bool) -> bool:
        """Whether any process says so."""
        if self.size == 1:
            return said
        return bool(self.max_(torch.tensor(float(said), device=_device())))

    def gather(self, rows: Tensor) -> Tensor:
        """The rows of all processes, one after the other; each may have another number of them."""
        if self.size == 1:
            return rows
        sizes = self._sizes(rows)
        padded = rows.new_zeros(max(sizes), *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    def gather_on_first(self, rows: Tensor) -> Tensor | None:
        """The rows of all processes on the first one; None on the others, which keep no more than they had."""
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

    def sum_of_mine(self, rows: Tensor) -> Tensor:
        """The sum over processes of a tensor with one row for each of the things that `part` splits; my part of it."""
        if self.size == 1:
            return rows
        most = -(-len(rows) // self.size)
        padded = rows.new_zeros(self.size, most, *rows.shape[1:])
        for rank in range(self.size):
            part = self._part_of(rank, len(rows))
            padded[rank, : part.stop - part.start] = rows[part]
        mine = torch.empty_like(padded[0])
        _reduce_scatter(mine, padded.flatten(0, 1))
        own = self.part(len(rows))
        return mine[: own.stop - own.start]

    def barrier(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            dist.barrier()

    def _sizes(self, rows: Tensor) -> list[int]:
        counts = torch.zeros(self.size, dtype=torch.int64, device=rows.device)
        counts[self.rank] = len(rows)
        sizes: list[int] = self.sum_(counts).tolist()
        return sizes

    def _part_of(self, rank: int, count: int) -> slice:
        small, larger = divmod(count, self.size)
        start = rank * small + min(rank, larger)
        return slice(start, start + small + (rank < larger))

    def _reduce(self, values: Tensor, how: dist.ReduceOp.RedOpType) -> Tensor:
        if self.size > 1 and values.numel():
            dist.all_reduce(values, how)
        return values


ALONE = Processes()


def wanted() -> bool:
    """Whether torchrun (or a launcher that sets the same variables) has started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def restarted() -> bool:
    """Whether torchrun has started this process again after one had died."""
    return _restart() > 0


def local_device(name: str) -> str:
    """The device of this process: with several on a machine that has GPUs, each takes its own."""
    if name in ("auto", "cuda") and wanted() and torch.cuda.is_available():
        return f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"
    return name


@contextmanager
def joined(device: torch.device) -> Iterator[Processes]:
    """The processes of this run while inside; one alone where torchrun has not started several.

    When one of the others ends, the rest stop with one message: the first of them to notice says it.
    """
    if not wanted():
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
    store, rank, size = next(rendezvous("env://", timeout=_JOINING))
    # Some versions of torch (pytorch/pytorch#135712) put the restart count of the own torchrun before all keys.
    while isinstance(store, dist.PrefixStore):  # type: ignore[attr-defined]
        store = store.underlying_store
    named = dist.PrefixStore(_agreed_name(store, rank, size), store)  # type: ignore[attr-defined]
    named.set_timeout(_PATIENCE)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=named, rank=rank, world_size=size, timeout=_PATIENCE)


def _agreed_name(
    store: dist.Store,  # type: ignore[name-defined]
    rank: int,
    size: int,
    patience: timedelta = _JOINING,
) -> str:
    """A name in the store that the processes of this start share with none before them.

    torchrun keeps one store over restarts: without a new name, a process could take the address that a dead one has
    left there. No variable tells the starts apart, since each torchrun counts only the restarts that it began itself.
    So the first process proposes a name, all put their ids under it, and the first lists them when all are there. A
    name that a dead first process has left may be read too, but its list, if any, lacks the id of whoever reads it now.
    """
    mine, name = f"unidex/{secrets.token_hex(8)}", ""
    if rank == 0:
        store.set("unidex/name", mine)
    end = time.monotonic() + patience.total_seconds()
    while time.monotonic() < end:
        # Read again each time: what was found first may be the name of the start before, until the first process comes.
        if store.check(["unidex/name"]) and (found := store.get("unidex/name").decode()) != name:
            name = found
            store.set(f"{name}/here/{rank}", mine)
        here = [f"{name}/here/{other}" for other in range(size)]
        if rank == 0 and store.check(here):
            store.set(f"{name}/all", " ".join(store.get(key).decode() for key in here))
        if name and store.check([f"{name}/all"]) and mine in store.get(f"{name}/all").decode().split():
            return name
        time.sleep(0.1)
    # Those under an old name are dead, so this is the least that are missing; under none it is at least the first.
    missing = max(1, sum(not store.check([key]) for key in here)) if name else 1
    raise ProcessLostError(
        f"all {size} processes of a run must start within {patience.total_seconds() / 60:g} minutes of each other, but "
        f"at least {missing} had not come when process {rank} gave up; see that the same command runs on every machine "
        "and that the machines reach each other, then start again with --resume"
    )


def _restart() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def _is_first_to_say(what: str) -> bool:
    """Whether no other process has said this yet in this run; so that one message is said once."""
    if not dist.is_initialized():
        return True
    try:
        store = dist.distributed_c10d._get_default_store()
        return int(store.add(f"said/{what}", 1)) == 1
    except RuntimeError:
        # The store may be gone with the process that kept it. Twice is better than never.
        return True


def _device() -> torch.device:
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


def _reduce_scatter(mine: Tensor, rows: Tensor) -> None:
    # Renamed in torch 2.13.
    reduce = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    reduce(mine, rows.contiguous())
