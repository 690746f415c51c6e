"""Settings of the whole suite: what is skipped without compilation, and how Hypothesis draws its examples."""

from __future__ import annotations

import os

# Before anything loads pygame: tests open no window and play no sound.
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ.setdefault("SDL_AUDIODRIVER", "dummy")

import pytest
from hypothesis import HealthCheck, settings

from patience_env import jit

settings.register_profile(
    "patience",
    deadline=None,  # the first example compiles
    derandomize=True,  # the same examples in every run: a failure is repeated by running the test again
    max_examples=20 if jit.JIT else 4,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("patience")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what only compiled rules can show, where there are none."""
    if not jit.JIT:
        for item in items:
            if item.get_closest_marker("compiled"):
                item.add_marker(pytest.mark.skip(reason="meaningful only with compiled rules"))
