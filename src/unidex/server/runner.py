"""Running the service: its socket, its signals, its processes.

SIGTERM drains and exits, SIGHUP reads the model folder again. With several workers, their parent process passes signals
on and replaces a worker that ends.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Semaphore
from typing import TYPE_CHECKING

import uvicorn

from unidex.errors import ConfigError, UnidexError
from unidex.server.problems import ProblemError
from unidex.server.security import HEADERS
from unidex.server.settings import Settings

if TYPE_CHECKING:
    from unidex.server.service import Service

logger = logging.getLogger(__name__)

_BACKLOG = 2048
_KEEP_ALIVE_SECONDS = 30
_OPEN_FILES = 65_536
_TICK_SECONDS = 0.1
_STARTUP_FAILURE = 3  # exit code of a worker that cannot load its model
# The folder in which workers share their metrics; prometheus_client reads the name when it is imported.
_METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"


def run(settings: Settings, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve until a signal ends it; ``announce`` is called once, with the address, when requests are answered."""
    listener = _listen(host, port)
    name, number = listener.getsockname()[:2]
    address = f"http://[{name}]:{number}" if ":" in name else f"http://{name}:{number}"
    _raise_file_limit()
    with listener:
        if settings.num_workers == 1:
            _serve(settings, listener, lambda service: announce(f"serving {service.live.about} at {address}"))
        else:
            title = f"{settings.folder.resolve().name} with {settings.num_workers} workers"
            _serve_with_workers(settings, listener, lambda: announce(f"serving {title} at {address}"))


def _serve(settings: Settings, listener: socket.socket, on_ready: Callable[[Service], None]) -> None:
    """Serve in this process; raises the error of a model that cannot be loaded."""
    server, service = make_server(settings, on_ready)
    server.run([listener])
    if service.failure is not None:
        raise service.failure
    logger.info("The service has stopped.")


def make_server(settings: Settings, on_ready: Callable[[Service], None]) -> tuple[uvicorn.Server, Service]:
    """Make a server that drains on SIGTERM and loads its model again on SIGHUP."""
    from unidex.server.app import create_app
    from unidex.server.plain_requests import PlainPredictions

    def on_start() -> None:
        # Within the startup of uvicorn, which has installed its own handlers before.
        if threading.current_thread() is threading.main_thread():
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, drain)
            loop.add_signal_handler(signal.SIGINT, stop)
            loop.add_signal_handler(signal.SIGHUP, lambda: tasks.add(loop.create_task(_reload(service))))

    def drain() -> None:
        if service.is_draining:
            stop()
            return
        service.is_draining = True
        logger.info(
            "SIGTERM: answering for %g s more, then finishing the running requests within %g s.",
            settings.drain_seconds,
            settings.finish_seconds,
        )
        asyncio.get_running_loop().call_later(settings.drain_seconds, end)

    def stop() -> None:
        # A further signal does not wait for the requests.
        server.force_exit = server.should_exit
        logger.info("Stopping %s.", "at once" if server.force_exit else "when the running requests are finished")
        server.should_exit = True

    def end() -> None:
        server.should_exit = True

    tasks: set[asyncio.Task[None]] = set()
    app = create_app(settings, on_start=on_start, on_ready=on_ready, on_failure=end)
    service = app.service
    config = uvicorn.Config(
        app,
        http=PlainPredictions,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",  # uvicorn logs its processes and every invalid request too
        access_log=False,
        proxy_headers=False,
        server_header=False,
        headers=HEADERS,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(settings.finish_seconds),
    )
    server = uvicorn.Server(config)
    return server, service


async def _reload(service: Service) -> None:
    try:
        await service.reload(only_if_new=bool(service.settings.supervisor), tell_others=False)
    except ProblemError as problem:
        # An error in reading the folder is in the log already.
        logger.debug("SIGHUP: %s", problem)


def _serve_with_workers(settings: Settings, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    folder = tempfile.mkdtemp(prefix="unidex-metrics-")
    os.environ[_METRICS_FOLDER] = folder
    # Torch and faiss of the workers read it when they start.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // settings.num_workers)))
    try:
        Supervisor(replace(settings, supervisor=os.getpid()), listener, on_ready).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        del os.environ[_METRICS_FOLDER]


class Supervisor:
    """Starts the workers, replaces one that ends, and passes signals on to them."""

    def __init__(self, settings: Settings, listener: socket.socket, on_ready: Callable[[], None]) -> None:
        self._settings, self._listener, self._on_ready = settings, listener, on_ready
        self._context = multiprocessing.get_context("spawn")
        self._ready = self._context.Semaphore(0)
        self._workers: list[SpawnProcess] = []
        self._should_exit = False

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT; a worker that cannot load its model ends all."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, self._signal_workers)
        self._workers = [self._start() for _ in range(self._settings.num_workers)]
        num_ready, has_failed = 0, False
        try:
            while not self._should_exit:
                wait([worker.sentinel for worker in self._workers], timeout=_TICK_SECONDS)
                while num_ready < len(self._workers) and self._ready.acquire(block=False):
                    num_ready += 1
                    if num_ready == len(self._workers):
                        self._on_ready()
                has_failed = self._replace_lost()
        finally:
            self._signal_workers(signal.SIGTERM)
            for worker in self._workers:
                worker.join()
        if has_failed:
            raise UnidexError("the workers of the service could not start; the line before has the reason")

    def _start(self) -> SpawnProcess:
        level = logging.getLogger("unidex").getEffectiveLevel()
        worker = self._context.Process(target=_work, args=(self._settings, self._listener, self._ready, level))
        worker.start()
        return worker

    def _stop(self, number: int, frame: object) -> None:
        if not self._should_exit:
            logger.info("%s: stopping %d workers.", signal.Signals(number).name, len(self._workers))
        self._should_exit = True

    def _signal_workers(self, number: int, frame: object = None) -> None:
        for worker in self._workers:
            if worker.pid is not None and worker.exitcode is None:
                os.kill(worker.pid, number)

    def _replace_lost(self) -> bool:
        """Start another worker for each that ended; True if one could not start."""
        from prometheus_client import multiprocess

        for place, worker in enumerate(self._workers):
            if worker.exitcode is None or self._should_exit:
                continue
            multiprocess.mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]
            if worker.exitcode == _STARTUP_FAILURE:
                self._should_exit = True
                return True
            logger.warning("Worker %s ended (exit code %s); starting another.", worker.pid, worker.exitcode)
            self._workers[place] = self._start()
        return False


def _work(settings: Settings, listener: socket.socket, ready: Semaphore, level: int) -> None:
    """Serve in a worker process, which has no log yet."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("unidex").setLevel(level)
    # A terminal sends SIGINT to all processes; the supervisor then sends SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _serve(settings, listener, lambda service: ready.release())
    except UnidexError as error:
        logger.error("%s", error)
        sys.exit(_STARTUP_FAILURE)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
    except OSError as error:
        raise ConfigError(f"--host must be an address of this machine, but {host!r} is not: {error.strerror}") from None
    is_dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=is_dual)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise ConfigError(
            f"--host and --port must be free to listen at, but {host}:{port} is not ({reason}); take another"
        ) from None


def _raise_file_limit() -> None:
    """Allow many open files: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
