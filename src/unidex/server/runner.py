"""Running the service: its socket, its signals, its processes.

SIGTERM lets requests finish, SIGHUP reads the model folder again. With several workers, the process that started them
passes signals on and starts another for one that is lost.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.synchronize import Semaphore
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from unidex.errors import ConfigError, UnidexError
from unidex.server.gate import Gate
from unidex.server.problems import ProblemError
from unidex.server.protocol import Connection
from unidex.server.settings import Settings

if TYPE_CHECKING:
    from unidex.server.service import Service

logger = logging.getLogger(__name__)

_BACKLOG = 2048
_KEEP_ALIVE_SECONDS = 30
_HEALTH_SECONDS = 60  # a worker that does not answer its supervisor for so long is lost
_OPEN_FILES = 65_536
# Where the workers keep their counts; prometheus_client reads the name when it is imported.
_COUNTS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"


class Server(uvicorn.Server):
    """A server that goes on answering for a while after SIGTERM, and leaves with 0."""

    _exit_at: float | None = None

    @property
    def gate(self) -> Gate:
        """The application."""
        app: Gate = self.config.loaded_app
        return app

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, for signals too."""
        await super().startup(sockets)
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop: after SIGTERM others shall hear of it first; a second signal leaves at once."""
        if self.should_exit:
            self.force_exit = True
        elif sig == signal.SIGTERM and self._exit_at is None and self.started:
            service = self.gate.service
            service.is_draining = True
            self._exit_at = time.monotonic() + service.settings.drain_seconds
        else:
            self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: whether to stop."""
        if self._exit_at is not None and time.monotonic() >= self._exit_at:
            self.should_exit = True
        if self.gate.service.failure is not None:
            self.should_exit = True
        self.gate.measure()
        return await super().on_tick(counter)

    def _reload(self) -> None:
        async def reload() -> None:
            try:
                await self.gate.service.reload(
                    only_if_new=bool(self.gate.service.settings.supervisor), tell_others=False
                )
            except ProblemError as problem:
                # One that was met in reading the folder is in the log already.
                logger.debug("SIGHUP: %s", problem)

        self._reloading = asyncio.get_running_loop().create_task(reload())


def run(settings: Settings, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve until a signal ends it.

    Args:
        settings: how.
        host: the address to listen at.
        port: 0 takes a free one.
        say: told the address, once, when requests are answered.
    """
    listening = _listen(host, port)
    address = _address(listening)
    _allow_many_files()
    try:
        if settings.num_workers == 1:
            _run_alone(settings, listening, lambda what: say(f"serving {what} at {address}"))
        else:
            _run_workers(settings, listening, lambda what: say(f"serving {what} at {address}"))
    finally:
        listening.close()


def _run_alone(settings: Settings, listening: socket.socket, say: Callable[[str], None]) -> None:
    from unidex.server.app import create_app

    def ready(service: Service) -> None:
        say(f"{service.live.title} ({service.live.num_labels:,} labels)")

    _quieten()
    server = Server(_config(settings, functools.partial(create_app, settings, ready)))
    server.run([listening])
    failure = server.gate.service.failure
    if failure is not None:
        raise failure


def _run_workers(settings: Settings, listening: socket.socket, say: Callable[[str], None]) -> None:
    from uvicorn._subprocess import spawn

    folder = tempfile.mkdtemp(prefix="unidex-metrics-")
    os.environ[_COUNTS_FOLDER] = folder
    # Torch and faiss of the workers read it when they start.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // settings.num_workers)))
    ready = spawn.Semaphore(0)
    level = logging.getLogger("unidex").getEffectiveLevel()
    settings = replace(settings, supervisor=os.getpid())
    try:
        supervisor = Supervisor(_config(settings, functools.partial(_worker_app, settings, ready, level)), [listening])
        supervisor.when_ready(
            ready, lambda: say(f"{settings.folder.resolve().name} with {settings.num_workers} workers")
        )
        supervisor.run()
        if supervisor.has_failed:
            raise UnidexError("the workers of the service could not start; the line before says why")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        del os.environ[_COUNTS_FOLDER]


def _worker_app(settings: Settings, ready: Semaphore, level: int) -> Gate:
    """The application of one worker; runs in its process, which has no log yet."""
    from unidex.server.app import create_app

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    log = logging.getLogger("unidex")
    log.handlers[:] = [handler]
    log.setLevel(level)
    _quieten()
    return create_app(settings, lambda service: ready.release())


class Worker(Process):
    """One process that serves."""

    @property
    def server(self) -> Server:
        """Its server, made in its own process."""
        if self._server is None:
            self._server = Server(config=self.config)
        assert isinstance(self._server, Server)
        return self._server

    def target(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve; a model that cannot be read ends all workers, as none of the others could either."""
        super().target(sockets)
        failure = self.server.gate.service.failure
        if failure is not None:
            logger.error("%s", failure)
            sys.exit(STARTUP_FAILURE)


class Supervisor(Multiprocess):
    """Starts the workers and keeps their number."""

    has_failed = False

    def when_ready(self, ready: Semaphore, do: Callable[[], None]) -> None:
        """Do something when so many workers as there are have said that they are ready."""
        self._ready, self._do, self._num_ready = ready, do, 0

    def init_processes(self) -> None:
        """Start the workers."""
        for _ in range(self.processes_num):
            self.processes.append(self._started())

    def keep_subprocess_alive(self) -> None:
        """Start another worker for each that is lost."""
        while self._num_ready < self.processes_num and self._ready.acquire(block=False):
            self._num_ready += 1
            if self._num_ready == self.processes_num:
                self._do()
        for number, process in enumerate(self.processes):
            if self.should_exit.is_set() or process.is_alive(timeout=self.config.timeout_worker_healthcheck or 0):
                continue
            process.kill()
            process.join()
            _forget_worker(process.pid)
            if process.exitcode == STARTUP_FAILURE:
                self.has_failed = True
                self.should_exit.set()
                return
            logger.warning("worker %s was lost (exit code %s); another starts", process.pid, process.exitcode)
            self.processes[number] = self._started()

    def handle_hup(self) -> None:
        """Let every worker read the folder again."""
        for process in self.processes:
            if process.pid is not None and process.exitcode is None:
                os.kill(process.pid, signal.SIGHUP)

    def _started(self) -> Worker:
        process = Worker(self.config, self.sockets)
        process.start()
        return process


def _forget_worker(pid: int | None) -> None:
    from prometheus_client import multiprocess

    if pid is not None:
        multiprocess.mark_process_dead(pid)  # type: ignore[no-untyped-call]


def _config(settings: Settings, factory: Callable[[], Gate]) -> uvicorn.Config:
    return uvicorn.Config(
        factory,
        factory=True,
        interface="asgi3",
        lifespan="on",
        http=functools.partial(Connection, settings.limits),  # type: ignore[arg-type]
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        workers=settings.num_workers,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(settings.finish_seconds),
        timeout_worker_healthcheck=_HEALTH_SECONDS,
    )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, number, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, number)
    except OSError as error:
        raise ConfigError(f"--host must be an address of this machine, but {host!r} is not: {error.strerror}") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"--host and --port must be free to listen at, but {host}:{port} is not ({error.strerror}); take another"
        ) from None
    listening.set_inheritable(True)
    return listening


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _allow_many_files() -> None:
    """A connection is an open file, and the usual number is made for programs that serve nobody."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _quieten() -> None:
    """Uvicorn speaks of its processes and of every connection that is no HTTP: only its errors are ours."""
    log = logging.getLogger("uvicorn")
    log.handlers[:] = logging.getLogger("unidex").handlers
    log.setLevel(logging.ERROR)
    log.propagate = False
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
