"""Kill a small real study at random moments, again and again: the same bytes in the end, and what was asked twice.

    python benchmarks/kill_runs.py --kills 20

Every process of a run is killed with SIGKILL at a random moment, then the same command runs again. A study that ends
before its kills are used up is begun anew. Prints each kill, what it cost, and whether all results equal those of an
undisturbed run, byte for byte.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.conftest import Workplace  # noqa: E402
from tests.workflow.kills import FLUSH_SECONDS, Killed, results, run_with_kills  # noqa: E402


def main():
    """Kill, restart, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        undisturbed = Killed(Workplace(Path(folder) / "undisturbed"))
        assert undisturbed.run() is None
        seconds = time.monotonic() - started
        expected = results(undisturbed.place.folder)
        n_asked = sum(n for _, n in undisturbed.asked())
        print(
            f"undisturbed: {seconds:.1f} s, {n_asked} answers, {len(expected)} files; flushed every {FLUSH_SECONDS} s"
        )
        moments, kills, differing, n_studies = random.Random(options.seed), [], 0, 0
        while len(kills) < options.kills:
            killed = Killed(Workplace(Path(folder) / f"killed-{n_studies}"))
            these = run_with_kills(killed, moments, min(5, options.kills - len(kills)), 0.6 * seconds)
            kills += these
            n_studies += 1
            same = results(killed.place.folder) == expected
            differing += not same
            for kill in these:
                print(
                    f"killed after {kill.seconds:5.1f} s with {kill.kept + kill.answered - kill.lost:3d} answers kept, "
                    f"{kill.lost:2d} asked again ({kill.lost_seconds:.2f} s of asking)"
                )
            print(f"study {n_studies}: {'the same bytes' if same else 'OTHER BYTES'}", flush=True)
    lost = [kill.lost for kill in kills]
    longest = max(kill.lost_seconds for kill in kills)
    print(
        f"{len(kills)} kills, {n_studies} studies, {differing} with other bytes; asked again: {sum(lost)} in all, "
        f"{max(lost)} at most, {longest:.2f} s of asking at most"
    )
    sys.exit(bool(differing))


if __name__ == "__main__":
    main()
