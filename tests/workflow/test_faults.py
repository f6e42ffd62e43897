"""What may happen to a run: kills, a full disk, damaged files, a second run, a folder that cannot be written."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from poise.plan import Plan
from tests.conftest import Workplace
from tests.workflow.kills import FLUSH_SECONDS, Killed, results, run_with_kills

pytestmark = pytest.mark.slow
TABLE = "results/faults/tables/position_table2.csv"
N_KILLS = 5


def test_killed_at_random_moments_it_gives_the_same_bytes(
    demo_plan: Plan, workplace: Workplace, tmp_path: Path
) -> None:
    started = time.monotonic()
    undisturbed = Killed(workplace)
    assert undisturbed.run() is None
    seconds = time.monotonic() - started
    expected, n_asked = results(workplace.folder), sum(n for _, n in undisturbed.asked())
    assert len(expected) > 20
    moments, n_kills = random.Random(3), 0
    for number in range(N_KILLS):  # a study that ends before all kills is begun again elsewhere
        killed = Killed(Workplace(tmp_path / f"killed-{number}"))
        kills = run_with_kills(killed, moments, N_KILLS - n_kills, 0.6 * seconds)
        n_kills += len(kills)
        assert results(killed.place.folder) == expected
        assert sum(n for _, n in killed.asked()) == n_asked + sum(kill.lost for kill in kills)
        assert all(kill.lost_seconds < FLUSH_SECONDS for kill in kills), kills
        if n_kills == N_KILLS:
            break
    assert n_kills == N_KILLS
