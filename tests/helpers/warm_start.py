"""Processes that start warm: forked from one that has imported everything, instead of importing it again.

A process imports torch, scipy and the rest for about 3 CPU seconds before it does anything. These processes are as
separate as others: they have their own memory, standard streams, environment, folder and exit code, and can be killed.
They differ in what Python and the libraries read at their own start alone: use `subprocess` where a test is about that.
"""

import atexit
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from contextlib import ExitStack, suppress
from pathlib import Path

PIPE = subprocess.PIPE
IMPORTED = (
    *("unidex.cli.main", "unidex.verbs.train", "unidex.verbs.predict", "unidex.verbs.labels", "unidex.verbs.tune"),
    *("unidex.encoders.bag", "unidex.server.app", "uvicorn", "uvloop", "httptools", "lightgbm", "faiss", "optuna"),
)


class WarmProcess:
    """A running process, with as much of `subprocess.Popen` as tests use."""

    def __init__(self, request, streams):
        self.returncode = self.stdout = self.stderr = None
        self._waiting = threading.Lock()
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.connect(_server())
        socket.send_fds(self._connection, [json.dumps(request).encode()], streams)
        self.pid = json.loads(self._connection.recv(1024))

    def poll(self):
        return self.returncode if self._received(0) else None

    def wait(self, timeout=None):
        if not self._received(timeout):
            raise subprocess.TimeoutExpired("a warm process", timeout)
        return self.returncode

    def _received(self, timeout):
        with self._waiting:
            if self.returncode is None:
                # Zero would mean a socket that does not block, with another error.
                self._connection.settimeout(0.0001 if timeout == 0 else timeout)
                try:
                    told = self._connection.recv(1024)
                except TimeoutError:
                    return False
                self._connection.close()
                self.returncode = json.loads(told)
            return True

    def communicate(self, timeout=None):
        """What it has written to its pipes until it ended."""
        told = [None, None]

        def read(number, stream):
            with stream:
                told[number] = stream.read()

        pipes = [(number, pipe) for number, pipe in enumerate((self.stdout, self.stderr)) if pipe is not None]
        readers = [threading.Thread(target=read, args=pipe, daemon=True) for pipe in pipes]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
        return tuple(told)

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def terminate(self):
        self.send_signal(signal.SIGTERM)


def start(*arguments, program=None, stdin=None, stdout=None, stderr=None, cwd=None, env=None):
    """Start ``unidex ARGUMENTS``, or a Python program with these arguments.

    A stream is a file, its number, or None for that of the tests; standard input is empty unless given. Output goes to
    the pipes ``stdout`` and ``stderr`` of the process by `subprocess.PIPE`, both to one by `subprocess.STDOUT`.
    """
    request = {
        "arguments": list(map(str, arguments)),
        "program": program,
        "cwd": os.fspath(cwd or Path.cwd()),
        "environment": dict(os.environ if env is None else env),
    }
    pipes = {}
    with ExitStack() as stack:
        given = [stack.enter_context(Path(os.devnull).open("rb")) if stdin is None else stdin]
        for name, stream, usual in (("stdout", stdout, sys.__stdout__), ("stderr", stderr, sys.__stderr__)):
            if stream == subprocess.PIPE:
                reading, writing = os.pipe()
                pipes[name] = open(reading, encoding="utf-8", errors="surrogateescape")  # noqa: SIM115, PTH123
                stream = stack.enter_context(open(writing, "wb"))  # noqa: PTH123
            given.append(given[1] if stream == subprocess.STDOUT else usual if stream is None else stream)
        process = WarmProcess(request, [one if isinstance(one, int) else one.fileno() for one in given])
    vars(process).update(pipes)
    return process


def run(*arguments, program=None, text="", cwd=None, env=None):
    """Run it to its end, as ``subprocess.run`` with captured output does."""
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        stdin.write(text.encode())
        stdin.seek(0)
        process = start(*arguments, program=program, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, env=env)
        process.wait()
        told = []
        for stream in (stdout, stderr):
            stream.seek(0)
            told.append(stream.read().decode("utf-8", "surrogateescape"))
        return subprocess.CompletedProcess(list(arguments), process.returncode, *told)


_started = {}
_starting = threading.Lock()


def _server():
    """The address of the process that forks; one per process of the tests, started by the first call."""
    with _starting:
        if os.getpid() not in _started:
            folder = tempfile.mkdtemp(prefix="unidex-warm-")
            address = f"{folder}/socket"
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            listener.bind(address)
            listener.listen(64)
            # Its standard input is a pipe from here: the server ends when this process does.
            server = subprocess.Popen(
                [sys.executable, __file__, str(listener.fileno())], pass_fds=[listener.fileno()], stdin=subprocess.PIPE
            )
            listener.close()
            _started[os.getpid()] = address, server
            atexit.register(_stop, os.getpid(), folder)
        return _started[os.getpid()][0]


def _stop(owner, folder):
    if os.getpid() == owner:
        _, server = _started[owner]
        server.stdin.close()
        server.wait()
        Path(folder, "socket").unlink(missing_ok=True)
        Path(folder).rmdir()


def _serve(listener):
    """Fork a process per connection, until standard input ends; return in each of them, with its request."""
    import select

    for name in IMPORTED:
        with suppress(ImportError):  # an optional package: the test that needs it says so
            importlib.import_module(name)
    gc.freeze()  # a collection would copy every page that it touches
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks for their exit codes but those who wait below
    while True:
        ready, _, _ = select.select([listener, 0], [], [])
        if 0 in ready:
            os._exit(0)
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        message, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
        process = os.fork()
        if process:
            for stream in (0, 1, 2, *streams):
                os.close(stream)
            connection.send(json.dumps(process).encode())
            code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            connection.send(json.dumps(code).encode())
            os._exit(0)
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        return json.loads(message)


def _become(request):
    """Take the place of a process that was started with this request; the result is its exit code."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["unidex" if request["program"] is None else "-c", *request["arguments"]]
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    program = request["program"] or "from unidex.cli.main import main\nmain()"
    try:
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as ended:
        return ended.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _leave(code):
    """End as the interpreter does, but without deleting every module: that costs 0.4 CPU seconds."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    # The folder of the helpers is first on the path and has names, such as served, that nothing else may find.
    del sys.path[0]
    _leave(_become(_serve(socket.socket(fileno=int(sys.argv[1])))))
