"""The games in a SQLite file: each is a row of facts from which it is replayed, so it survives a restart."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

FORMAT = 1
BUSY_SECONDS = 0.5
_TABLE = """
CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY,
    facts TEXT NOT NULL,  -- JSON: what was dealt and played
    used REAL NOT NULL    -- when it was last asked for, seconds since 1970
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_use ON sessions (used);
"""
# How the facts of a game and of a match look as JSON before the first move.
_UNPLAYED = ('%"actions": []%', '%"played": [[[], %')


class StoreError(Exception):
    """The data file cannot be used, or a row of it is damaged."""


class FullError(Exception):
    """No further game can be stored: all that there are were in use lately."""


def default_path() -> Path:
    """Return where the games are kept unless a file is named: in the user's data folder."""
    home = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return Path(home) / "patience-env" / "games.sqlite3"


class Store:
    """The rows of one file, which belongs to this store alone until it is closed. For one thread.

    Args:
        path: the file, made where there is none.
        most: how many sessions are kept; when there are more, the one unused for longest makes way.
        max_age: sessions unused for so many seconds are forgotten.
        keep: sessions in which something was played, and which were used within so many seconds, never make way for
            new ones.

    Raises:
        StoreError: it cannot be opened, another program uses it, or it is no file of this format.
    """

    def __init__(self, path: str | Path, most: int, max_age: float, keep: float) -> None:
        self.path, self.most, self.max_age, self.keep = str(path), most, max_age, keep
        try:
            self._file = self._open()
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"the data file {self.path!r} cannot be used: {_reason(error)}") from error

    def _open(self) -> sqlite3.Connection:
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        file = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            # Exclusive: a second server on the same file would play the same games from other memories.
            file.execute("PRAGMA locking_mode = EXCLUSIVE")
            file.execute("PRAGMA journal_mode = WAL")
            file.execute("PRAGMA synchronous = NORMAL")
            version = file.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, FORMAT) or (version == 0 and file.execute("SELECT * FROM sqlite_master").fetchone()):
                raise StoreError(f"the data file {self.path!r} holds something else (format {version}): name another")
            file.executescript(_TABLE)
            file.execute(f"PRAGMA user_version = {FORMAT}")
            file.execute("UPDATE sessions SET used = used WHERE 0")
        except BaseException:
            file.close()
            raise
        return file

    def add(self, name: str, facts: dict[str, Any]) -> list[str]:
        """Store a new session under an unused name; return the names of those that made way for it.

        Raises:
            FullError: there are `most` sessions, all played in and used within the last `keep` seconds.
            StoreError: the file cannot be written.
        """
        now = time.time()
        try:
            gone = [
                str(row[0])
                for row in self._file.execute("SELECT id FROM sessions WHERE used < ?", (now - self.max_age,))
            ]
            count = self._file.execute("SELECT COUNT(*) FROM sessions").fetchone()[0] - len(gone)
            if count >= self.most:
                gone.append(self._least_missed(now))
            with self._file:
                self._file.execute("BEGIN")
                self._file.executemany("DELETE FROM sessions WHERE id = ?", [(one,) for one in gone])
                self._file.execute("INSERT INTO sessions VALUES (?, ?, ?)", (name, json.dumps(facts), now))
        except sqlite3.Error as error:
            raise StoreError(f"the data file cannot be written: {_reason(error)}") from error
        return gone

    def _least_missed(self, now: float) -> str:
        """Return the session that makes way: the one unused for longest, or else the oldest that nobody has played in.

        Else a flood of games that are only begun would keep all others out for as long as `keep`.
        """
        fresh = "SELECT id, used FROM sessions WHERE used >= ?"
        oldest, used = self._file.execute(f"{fresh} ORDER BY used LIMIT 1", (now - self.max_age,)).fetchone()
        if used <= now - self.keep:
            return str(oldest)
        unplayed = self._file.execute(
            f"{fresh} AND (facts LIKE ? OR facts LIKE ?) ORDER BY used LIMIT 1", (now - self.max_age, *_UNPLAYED)
        ).fetchone()
        if unplayed is None:
            raise FullError(f"{self.most} games are in progress here, all played lately: try again in some minutes")
        return str(unplayed[0])

    def change(self, name: str, facts: dict[str, Any]) -> None:
        """Store the new facts of a session.

        Raises:
            StoreError: the file cannot be written, or the session is gone; nothing changes.
        """
        try:
            done = self._file.execute(
                "UPDATE sessions SET facts = ?, used = ? WHERE id = ?", (json.dumps(facts), time.time(), name)
            )
        except sqlite3.Error as error:
            raise StoreError(f"the data file cannot be written: {_reason(error)}") from error
        if done.rowcount != 1:
            raise StoreError("this game is no longer in the data file")

    def find(self, name: str) -> dict[str, Any] | None:
        """Return the facts of a session that is not too old, or None.

        Raises:
            StoreError: its row, or the file, is damaged.
        """
        try:
            row = self._file.execute("SELECT facts, used FROM sessions WHERE id = ?", (name,)).fetchone()
            if row is None or not isinstance(row[1], float) or row[1] < time.time() - self.max_age:
                return None
            facts = json.loads(row[0])
        except (sqlite3.Error, ValueError, TypeError, RecursionError) as error:
            raise StoreError("the record of this game in the data file is damaged; other games are not") from error
        if not isinstance(facts, dict):
            raise StoreError("the record of this game in the data file is damaged; other games are not")
        return facts

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._file.close()


def _reason(error: Exception) -> str:
    if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
        return "another server uses it: stop that one, or name another file with --data"
    return str(error.strerror if isinstance(error, OSError) and error.strerror else error)
