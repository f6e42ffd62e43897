"""SLURM tests run only where their folder is named (`make test-slurm`): they start daemons, may install packages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, NoCluster, install

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave these tests out of a run that does not name them."""
    named = [(config.invocation_params.dir / name.split("::")[0]).resolve() for name in config.args]
    return None if any(path == HERE or HERE in path.parents for path in named) else True


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running SLURM of one node, stopped whatever happens."""
    cluster = Cluster(tmp_path_factory.mktemp("slurm") / "cluster")
    try:
        install()
        cluster.start()
    except NoCluster as reason:
        pytest.skip(f"SLURM tests not run: {reason}")
    except BaseException:
        cluster.stop()
        raise
    try:
        yield cluster
    finally:
        cluster.stop()
