"""The one place that calls Numba.

Two decorators:

* `rule` for the small hot functions (rules, encoders): inlined into their callers, no reference counting.
* `kernel` for the loops that Python calls: compiled once for each game's record type, cached on disk.

Numba does not notice an edit in a module that a cached function calls, so the cache folder is named after a
hash of the sources; another version of the package, or an edited checkout, never runs old rules. The cache lies in
`$NUMBA_CACHE_DIR`, `$XDG_CACHE_HOME/patience-env` or `~/.cache/patience-env`; where none can be written, functions are
compiled anew in each process and nothing else changes.
"""

from __future__ import annotations

import gc
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import config as _config
from numba import njit as _njit
from numba.extending import overload

# Numba's annotations know neither its settings nor the semi-private `_nrt`.
config: Any = _config
njit: Any = _njit

JIT = not config.DISABLE_JIT
KEPT_CACHES = 8
_HERE = Path(__file__).resolve().parent


_EXTRA_SOURCES: set[Path] = set()
_KERNELS: list[Any] = []


def _sources(core: bool = False) -> list[Path]:
    """Return the source files that compiled code comes from; with `core`, those of the environments alone.

    The environments' loops call nothing of agents and training, so an edit there need not compile the games anew. What
    has no part in compiled code (rendering, the scripts of training that compile nothing) counts for neither.
    """
    found = {*_HERE.glob("*.py"), *(_HERE / "games").glob("*.py"), *_EXTRA_SOURCES}
    if core:
        return sorted(found)
    for home in (_HERE, _HERE.parent):  # installed, or in a checkout that maps both into the namespace
        found.update((home / "agents").glob("*.py"))
        found.update(path for path in (home / "training").glob("*.py") if b"patience_env.jit" in path.read_bytes())
    return sorted(found)


def source_hash(core: bool = False) -> str:
    """Return 16 hexadecimal digits that change with any source file that compiled code comes from."""
    digest = hashlib.sha256()
    for path in _sources(core):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _base_folder() -> Path:
    if config.CACHE_DIR:
        return Path(config.CACHE_DIR)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path(os.path.expanduser("~")) / ".cache") / "patience-env"


def _prune(base: Path, keep: Path) -> None:
    """Remove all but the newest caches of other source versions."""
    others = [path for path in base.glob("patience-*") if path.is_dir() and path != keep]
    others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in others[KEPT_CACHES - 1 :]:
        shutil.rmtree(path, ignore_errors=True)


@cache
def cache_folder(core: bool = False) -> Path | None:
    """Return the folder of compiled code, made if need be, or None where none can be written.

    With `core` it is the folder of the environments' loops, else that of agents and training.
    """
    try:
        base = _base_folder()
        folder = base / f"patience-{source_hash(core)}"
        fresh = not folder.is_dir()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        if fresh:
            _prune(base, folder)
    except (OSError, RuntimeError):
        return None
    return folder


def _compile(function: Callable[..., Any], inner: bool, **options: Any) -> Any:
    """Compile a function: one that Python calls, or an `inner` one, which Python calls as plain Python.

    Compilation takes most of its time in Numba's own Python code, so it is spared what is not needed: entries for calls
    from C, and from Python for inner functions (a fifth of the time); Numba's rewriting of array expressions;
    inlining in Numba's own terms, which copies the inner function's code at every call (LLVM inlines as well); and
    searches for garbage among millions of short-lived objects.
    """
    if not JIT:
        return function
    compiled = njit(function, _nrt=False, no_rewrites=True, no_cfunc_wrapper=True, no_cpython_wrapper=inner, **options)
    kind: Any = type(compiled)
    compiled.__class__ = _dispatcher_class(kind, inner)
    return compiled


@cache
def _dispatcher_class(kind: Any, inner: bool) -> Any:
    class Dispatcher(kind):  # type: ignore[misc]
        def _compile_for_args(self, *args: Any, **keywords: Any) -> Any:
            collecting = gc.isenabled()
            gc.disable()
            try:
                return super()._compile_for_args(*args, **keywords)
            finally:
                if collecting:
                    gc.enable()

    class Inner(kind):  # type: ignore[misc]
        def __call__(self, *args: Any) -> Any:
            if any(isinstance(value, np.void) and not isinstance(value, np.record) for value in args):
                raise TypeError(
                    f"{self.py_func.__name__} has no entry for Python, which runs it as plain Python: give it a row of "
                    "a record array (states.view(np.recarray)[0]), or call it in a kernel"
                )
            return self.py_func(*args)

    return Inner if inner else Dispatcher


def rule(function: Callable[..., Any]) -> Any:
    """Compile a small function that never allocates, raises or prints, and inline it into its callers."""
    return _compile(function, inner=True, forceinline=True)


def helper(function: Callable[..., Any]) -> Any:
    """Compile a larger function that never allocates; called, not inlined (keeps compile times low)."""
    return _compile(function, inner=True)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a loop that Python calls: it releases the interpreter lock and is cached across processes."""
    compiled = _compile(function, inner=False, nogil=True)
    if JIT:
        _KERNELS.append(compiled)
        _enable_cache(compiled)
    return compiled


def _enable_cache(compiled: Any) -> None:
    part = compiled.py_func.__module__.partition("patience_env.")[2].partition(".")[0]
    folder = cache_folder(core=part not in ("agents", "training", ""))
    if folder is None:
        return
    before = config.CACHE_DIR
    config.CACHE_DIR = str(folder)
    try:
        compiled.enable_caching()
        _distrust(compiled._cache)
    except (OSError, RuntimeError):
        pass
    finally:
        config.CACHE_DIR = before


def _distrust(cache: Any) -> None:
    """Let compiled code on disk that is damaged, that cannot be written, or that belongs to another game count as none.

    A power cut or a full disk may spoil a file. And Numba numbers the files of one function without a lock: two
    processes that compile it at the same moment for two games may give both files one name, so that the code of the
    one game comes to lie under the key of the other.
    """
    load, save = cache.load_overload, cache.save_overload

    def load_overload(signature: Any, target_context: Any) -> Any:
        try:
            found = load(signature, target_context)
        except Exception:
            with suppress(Exception):
                cache.flush()
            return None
        wanted = getattr(signature, "args", signature)
        return found if found is not None and tuple(found.signature.args) == tuple(wanted) else None

    def save_overload(signature: Any, code: Any) -> None:
        with suppress(Exception):
            save(signature, code)

    cache.load_overload, cache.save_overload = load_overload, save_overload


def add_source(path: str | os.PathLike[str]) -> None:
    """Let the cache depend on a source file outside the package too (the module of a game registered by a user)."""
    source = Path(path).resolve()
    if not JIT or source in _sources(core=True):
        return
    _EXTRA_SOURCES.add(source)
    cache_folder.cache_clear()
    for compiled in _KERNELS:
        _enable_cache(compiled)


def dispatch(verb: Callable[..., Any], choose: Callable[[Any], Callable[..., Any] | None]) -> None:
    """Let compiled code call `verb(state, ...)`; `choose(record_type)` gives the compiled function to call.

    Numba asks that an overload and its implementation name their arguments alike, so both are written out from the
    verb's own argument names.
    """
    names = ", ".join(verb.__code__.co_varnames[: verb.__code__.co_argcount])
    source = (
        f"def typer({names}):\n"
        f"    rules = choose(state)\n"
        f"    if rules is None:\n"
        f"        return None\n"
        f"    def implementation({names}):\n"
        f"        return rules({names})\n"
        f"    return implementation\n"
    )
    scope: dict[str, Any] = {"choose": choose}
    exec(source, scope)
    options: Any = {"_nrt": False}
    overload(verb, inline="always", jit_options=options)(scope["typer"])
