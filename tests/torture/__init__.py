"""What must not break, tried until it might: steps, fuzzing, processes, kills, files, the server, numbers, training.

`python tests/torture/run.py` (or `make torture`) runs all sections within a time and writes `docs/reliability.md`. Each
section is a module with `NAME`, `TITLE`, `SHARE` (of the time) and `run(budget) -> Section`; `test_torture.py` runs a
short form of each.
"""
