"""Processes that are threads: each call waits for the others."""

import threading

import torch

from helpers.waits import PATIENCE


class Threads:
    """So many processes with labels of their own."""

    def __init__(self, size):
        self.size, self.barrier, self.slots = size, threading.Barrier(size, timeout=PATIENCE), [None] * size

    def run(self, work):
        """The results of ``work(rank, ranks)``."""
        results, failures = [None] * self.size, []

        def one(rank):
            try:
                results[rank] = work(rank, Member(self, rank))
            except BaseException as failure:
                failures.append(failure)
                self.barrier.abort()

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return results


class Member:
    """One of them, as `unidex.distributed.Processes`; it remembers its calls."""

    def __init__(self, threads, rank):
        self.threads, self.rank, self.calls = threads, rank, []

    def exchange(self, values):
        self.threads.slots[self.rank] = values.clone()
        self.threads.barrier.wait()
        slots = list(self.threads.slots)
        self.threads.barrier.wait()
        return slots

    def sum_(self, values):
        self.calls.append(("sum", tuple(values.shape)))
        return values.copy_(torch.stack(self.exchange(values)).sum(0))

    def max_(self, values):
        self.calls.append(("max", tuple(values.shape)))
        return values.copy_(torch.stack(self.exchange(values)).amax(0))

    def gather(self, rows):
        self.calls.append(("gather", tuple(rows.shape[1:])))
        return torch.cat(self.exchange(rows))
