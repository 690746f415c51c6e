"""What plays the shares of an evaluation: this process, several processes of this machine, or a Ray cluster.

    with open_engine("processes", workers=2) as engine:
        result = evaluate("value", "PatiencePoker-v0", named_deals("test"), engine=engine)

A share whose worker dies is played again by another one, and whatever comes of a share is told once, so nothing is
counted twice; the results are those of the local engine to the last digit.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from patience_env.training.shares import Played, Share, play_share

ENGINES = ("local", "processes", "ray")
TRIES = 3
RAY_MISSING = "this needs Ray, pip install 'patience-env[ray]'"
CONNECT_SECONDS = 5.0  # for an address to answer at all
ANSWER_SECONDS = 60.0  # for a Ray cluster to be found behind it
# Nothing is reported to anybody, whether the cluster is started here or the variable reaches its workers.
RAY_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
# What makes Ray bind its servers to the loopback interface, whatever the system is.
LOOPBACK = "127.0.0.1"
RAY_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


# Prints at which address each machine of a cluster is known.
_PROBE = """
import sys
from ray._raylet import GcsClient
for node in GcsClient(address=sys.argv[1]).get_all_node_info().values():
    print(node.node_manager_address)
"""
_PROBE_ELSE = "import sys, ray; ray.init(sys.argv[1], logging_level='ERROR', log_to_driver=False)"


class WorkerError(RuntimeError):
    """Workers died again and again, or a cluster could not be started."""


class Engine(ABC):
    """Plays shares."""

    @abstractmethod
    def play(self, shares: Sequence[Share]) -> Iterator[tuple[Share, Played]]:
        """Yield every share once with how it was played, in any order.

        Raises:
            ValueError: a policy cannot be made by a worker.
            IllegalChoiceError: a policy chose an illegal action.
            WorkerError: the worker of one share died `TRIES` times.
        """

    def close(self) -> None:  # noqa: B027  nothing to end unless an engine says so
        """End the workers."""


class LocalEngine(Engine):
    """Plays one share after the other in this process."""

    def play(self, shares: Sequence[Share]) -> Iterator[tuple[Share, Played]]:
        for share in shares:
            yield share, play_share(share)


def outcome(share: Share) -> Played | Exception:
    """Return how a share was played, or what went wrong with its policy: for workers, which tell it to their engine."""
    try:
        return play_share(share)
    except Exception as error:
        return error


def _unwrapped(result: Played | Exception) -> Played:
    if isinstance(result, Exception):
        raise result
    return result


# -- processes of this machine -----------------------------------------------------------------------------------


def _serve(connection: Connection) -> None:
    """Play shares as they come until the engine hangs up (or is killed)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the engine, which then ends its workers
    with suppress(EOFError, OSError):
        while True:
            share = connection.recv()
            connection.send(outcome(share))


class _Worker:
    def __init__(self) -> None:
        # Spawned, not forked: a forked process inherits threads' locks, and torch's threads do not survive.
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other,), daemon=True)
        self.process.start()
        other.close()
        self.share: Share | None = None

    def give(self, share: Share) -> None:
        """Hand out a share (that the worker is dead shows when its answer is waited for)."""
        self.share = share
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(share)

    def end(self) -> None:
        self.connection.close()
        if self.share is not None:
            self.process.terminate()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class ProcessEngine(Engine):
    """Plays shares in so many processes of this machine; each makes the policies itself.

    As everywhere with `multiprocessing`, a script that uses it does its work under `if __name__ == "__main__":`.
    """

    def __init__(self, workers: int) -> None:
        self._count = workers
        self._workers: list[_Worker] = []

    def play(self, shares: Sequence[Share]) -> Iterator[tuple[Share, Played]]:
        waiting, died = deque(shares), Counter[int]()
        self._start(min(self._count, len(shares)))
        while waiting or any(worker.share for worker in self._workers):
            for worker in self._workers:
                if worker.share is None and waiting:
                    worker.give(waiting.popleft())
            ready = wait([worker.connection for worker in self._workers if worker.share])
            for worker in [worker for worker in self._workers if worker.connection in ready]:
                share = worker.share
                assert share is not None
                try:
                    result = worker.connection.recv()
                except (EOFError, OSError):
                    self._replace(worker)
                    died[id(share)] += 1
                    if died[id(share)] == TRIES:
                        raise WorkerError(f"{TRIES} workers died while they played {share}") from None
                    waiting.appendleft(share)
                    continue
                worker.share = None
                yield share, _unwrapped(result)

    def _start(self, count: int) -> None:
        while len(self._workers) < count:
            self._workers.append(_Worker())

    def _replace(self, worker: _Worker) -> None:
        worker.end()
        self._workers.remove(worker)
        self._workers.append(_Worker())

    def close(self) -> None:
        for worker in self._workers:
            worker.connection.close()  # all at once, so that they end at the same time
        for worker in self._workers:
            worker.end()
        self._workers.clear()


# -- Ray ---------------------------------------------------------------------------------------------------------


def import_ray(loopback: bool) -> Any:
    """Return the module `ray`, set up to report nothing to anybody and, with `loopback`, to use that interface alone.

    Raises:
        ValueError: Ray is not installed.
    """
    for name, value in RAY_QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
        from ray._private import ray_constants
    except ImportError as error:
        raise ValueError(f"{RAY_MISSING} ({error})") from error
    if not ray.is_initialized():
        # Read by Ray's processes when they start, and by this one when Ray was imported, maybe long ago.
        if loopback:
            os.environ[RAY_LOOPBACK] = "0"
        elif os.environ.get(RAY_LOOPBACK) == "0":
            del os.environ[RAY_LOOPBACK]
        ray_constants.ENABLE_RAY_CLUSTER = not loopback
    return ray


@contextmanager
def ray_cluster(workers: int | None, address: str | None) -> Iterator[tuple[Any, int]]:
    """Start Ray on this machine, or connect to a cluster; yield the module and how many workers to use.

    A cluster that is started here binds to the loopback interface alone, without dashboard, and ends with this block.
    One that was started before (`ray start --head`) is left running. Where this process is connected to one already
    (`ray.init`), that one is used and left as it is.

    Args:
        workers: how many; None takes all cores of the machine or the cluster.
        address: of the cluster, `HOST:PORT` or `ray://HOST:PORT` (or `auto`: the one on this machine).

    Raises:
        ValueError: Ray is not installed, or no cluster answers there.
        WorkerError: Ray cannot be started here.
    """
    loopback = address is None or LOOPBACK in _expect_answer(address)
    ray = import_ray(loopback)
    quiet = {"logging_level": "ERROR", "log_to_driver": False}
    if ray.is_initialized():
        mine = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", mine):
            raise ValueError(f"this process is connected to the Ray at {mine!r} already, not to {address!r}")
        yield ray, workers or int(ray.cluster_resources().get("CPU", 1))
        return
    if address is None:
        _start_ray(ray, {"num_cpus": workers or os.cpu_count() or 1, "include_dashboard": False, **quiet})
    else:
        try:
            ray.init(address=address, **quiet)
        except Exception as error:
            raise ValueError(f"no Ray cluster at {address!r}: {error}") from error
    try:
        yield ray, workers or int(ray.cluster_resources().get("CPU", 1))
    finally:
        ray.shutdown()


def _start_ray(ray: Any, settings: dict[str, Any]) -> None:
    """Start Ray on this machine; a busy one may need several tries, since Ray waits half a minute for its parts."""
    for number in range(TRIES):
        try:
            ray.init(address="local", **settings)
            return
        except Exception as error:
            ray.shutdown()
            if number == TRIES - 1:
                raise WorkerError(f"Ray cannot be started on this machine: {error}") from error


def _expect_answer(address: str) -> list[str]:
    """Return what is told of the Ray cluster at an address: at which addresses its machines are known.

    Raises:
        ValueError: Ray is not installed, or no cluster answers there within a bounded time.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if address != "auto":
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"address {address!r} is not allowed: give HOST:PORT, ray://HOST:PORT or auto")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        except OSError as error:
            raise ValueError(f"nothing answers at address {address!r}: {error.strerror or error}") from error
    import_ray(loopback=False)
    # Something does, but Ray waits long for what is no cluster: a process with a limit finds out whether it is one.
    by_port = address != "auto" and not address.startswith("ray://")
    probe = _PROBE if by_port else _PROBE_ELSE
    try:
        run = subprocess.run(
            [sys.executable, "-c", probe, address], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"no Ray cluster answers at address {address!r} within {ANSWER_SECONDS:g} seconds") from None
    if run.returncode:
        said = run.stderr.strip().splitlines() or ["no reason given"]
        raise ValueError(f"no Ray cluster at address {address!r}: {said[-1]}")
    return run.stdout.split()


def _ray_task() -> Callable[[bytes, str, list[str]], Any]:
    """Return what a Ray worker runs: a function that needs nothing of this package before it knows where to find it."""

    def play(share: bytes, folder: str, paths: list[str]) -> Any:
        import os
        import pickle
        import sys

        # As where the command was given: relative paths lead to models, and modules are found in the same order.
        if os.path.isdir(folder):
            os.chdir(folder)
        known = [path for path in paths if os.path.exists(path)]
        sys.path[:] = known + [path for path in sys.path if path not in known and path != folder]
        from patience_env.training.engines import outcome

        return outcome(pickle.loads(share))

    return play


class RayEngine(Engine):
    """Plays shares as tasks of a Ray cluster, `workers` at a time, one core each.

    The package must be installed on every machine of the cluster, and models must lie there under the same paths.
    """

    def __init__(self, ray: Any, workers: int) -> None:
        self._ray, self._workers = ray, workers
        self._task = ray.remote(num_cpus=1, max_retries=TRIES - 1)(_ray_task())

    def play(self, shares: Sequence[Share]) -> Iterator[tuple[Share, Played]]:
        waiting, pending = deque(shares), dict[Any, Share]()
        try:
            while waiting or pending:
                while waiting and len(pending) < self._workers:
                    share = waiting.popleft()
                    pending[self._task.remote(pickle.dumps(share), os.getcwd(), sys.path)] = share
                done, _ = self._ray.wait(list(pending))
                for reference in done:
                    share = pending.pop(reference)
                    yield share, _unwrapped(self._get(reference, share))
        finally:
            for reference in pending:
                self._ray.cancel(reference, force=True)

    def _get(self, reference: Any, share: Share) -> Played | Exception:
        exceptions = self._ray.exceptions
        try:
            result: Played | Exception = self._ray.get(reference)
        except (exceptions.WorkerCrashedError, exceptions.OutOfMemoryError, exceptions.NodeDiedError) as error:
            raise WorkerError(f"{TRIES} workers died while they played {share}: {error}") from error
        except exceptions.RayError as error:
            raise WorkerError(f"Ray could not play {share}: {error}") from error
        return result


@contextmanager
def open_engine(name: str, workers: int | None = None, address: str | None = None) -> Iterator[Engine]:
    """Give an engine for as long as the block lasts.

    Args:
        name: "local" (this process), "processes" or "ray".
        workers: how many workers; None takes as many as there are cores. For "local" there is but one.
        address: of a Ray cluster (see `ray_cluster`); None starts Ray on this machine.

    Raises:
        ValueError: what is not allowed, an address at which no cluster answers, or Ray is not installed.
        WorkerError: Ray cannot be started here.
    """
    check_engine(name, workers, address)
    if name == "ray":
        with ray_cluster(workers, address) as (ray, count):
            yield RayEngine(ray, count)
        return
    engine = LocalEngine() if name == "local" else ProcessEngine(workers or os.cpu_count() or 1)
    try:
        yield engine
    finally:
        engine.close()


def check_engine(name: str, workers: int | None, address: str | None, names: Sequence[str] = ENGINES) -> None:
    """Raise ValueError where an engine, a number of workers and an address do not go together."""
    if name not in names:
        raise ValueError(f"there is no engine {name!r}: choose one of {', '.join(names)}")
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= 10**6):
        raise ValueError(f"workers={workers!r} is not allowed: give a whole number from 1 on")
    if name == names[0] and workers not in (None, 1):
        raise ValueError(f"engine {name!r} has no workers: choose {' or '.join(names[1:])} for --workers {workers}")
    if address is not None and name not in ("ray", "rllib"):
        raise ValueError(f"engine {name!r} has no address: choose {names[-1]} for --address {address}")
