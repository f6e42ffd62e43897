"""A SLURM of one node with two GPUs that are none, in a folder of its own: started for tests, stopped after them."""

from __future__ import annotations

import getpass
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

PACKAGES = ("slurm-wlm", "munge")
COMMANDS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol")
DEVICES = ("/dev/null", "/dev/zero")  # SLURM wants devices, and counts them; no job opens them as GPUs
_WAIT_S = 60

CONFIGURATION = """
ClusterName=poise
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=bf_interval=1,sched_min_interval=10000
MpiDefault=none
SlurmdParameters=config_overrides
ReturnToService=2
MinJobAge=600
KillWait=10
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=16 Boards=1 SocketsPerBoard=1 CoresPerSocket=16 ThreadsPerCore=1 \
RealMemory=64000 Gres=gpu:fake:2 State=UNKNOWN
PartitionName=cpu Nodes={host} Default=YES MaxTime=INFINITE State=UP
PartitionName=gpu Nodes={host} MaxTime=INFINITE State=UP
"""


class NoCluster(Exception):  # noqa: N818
    """There can be no SLURM here; says why."""


def install() -> None:
    """Install Debian's packages if a command is missing."""
    if platform.system() != "Linux":
        raise NoCluster("SLURM runs on Linux only")
    if all(map(shutil.which, COMMANDS)):
        return
    what = f"{' and '.join(PACKAGES)} are not installed"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise NoCluster(f"{what}, and only root can install them, with apt-get")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
        done = subprocess.run(
            ["apt-get", "-qq", *command], env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["it does not say why"])[-1]
            raise NoCluster(f"{what}, and apt-get cannot install them: {reason}")
    if not all(map(shutil.which, COMMANDS)):
        raise NoCluster(f"{', '.join(PACKAGES)} do not bring all of {', '.join(COMMANDS)}")


class Cluster:
    """The daemons, their folder, and the environment in which commands speak with them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": path}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start the daemons and wait until the node is idle."""
        running = [name for name in ("slurmctld", "slurmd") if _runs(name)]
        if running:
            raise NoCluster(f"{' and '.join(running)} already run here, and tests must not disturb them")
        self._configure()
        munge = self.folder / "munge"
        self._daemon(
            "munged", "--foreground", f"--socket={munge}/socket", f"--key-file={munge}/key", f"--pid-file={munge}/pid",
            f"--log-file={munge}/log", f"--seed-file={munge}/seed", *(["--force"] if os.geteuid() == 0 else []),
        )  # fmt: skip
        _wait("munged", lambda: (munge / "socket").exists(), self)
        self._daemon("slurmctld", "-D", "-f", str(self.folder / "slurm.conf"))
        self._daemon("slurmd", "-D", "-f", str(self.folder / "slurm.conf"))
        _wait("the node", lambda: set(self.ask("sinfo", "--noheader", "--format=%T").split()) == {"idle"}, self)

    def stop(self) -> None:
        """Cancel what still runs and stop the daemons, the last first; their folder goes with the test's."""
        if self._daemons:
            self.ask("scancel", "--full", f"--user={getpass.getuser()}")
            _wait("the last jobs", lambda: not self.ask("squeue", "--noheader"), self, quiet=True)
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._daemons.clear()

    def ask(self, *command: str) -> str:
        """Output of a SLURM command; nothing if it fails."""
        environment = {**os.environ, **self.environment}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        return done.stdout if done.returncode == 0 else ""

    def jobs(self) -> list[dict[str, str]]:
        """All jobs that SLURM still remembers, with what it says of each: JobId, Partition, Comment, TresPerJob …"""
        found = []
        for line in self.ask("scontrol", "--oneliner", "show", "job").splitlines():
            fields = re.findall(r"(\S+?)=(.*?)(?= \S+?=|$)", line)
            if fields:
                found.append({key: value.strip() for key, value in fields})
        return found

    def _configure(self) -> None:
        for name in ("munge", "state", "spool", "bin"):
            (self.folder / name).mkdir(mode=0o755, parents=True)
        srun = self.folder / "bin/srun"  # Snakemake's job steps drop all variables of SLURM, this one too
        srun.write_text(f'#!/bin/sh\nSLURM_CONF={self.folder}/slurm.conf exec {shutil.which("srun")} "$@"\n')
        srun.chmod(0o755)
        key = self.folder / "munge/key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        host = socket.gethostname().split(".")[0]
        ports = _free_ports(2)
        (self.folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                host=host, user=getpass.getuser(), folder=self.folder, controller_port=ports[0], node_port=ports[1]
            )
        )
        gpus = "".join(f"NodeName={host} Name=gpu Type=fake File={file}\n" for file in DEVICES)
        (self.folder / "gres.conf").write_text(f"AutoDetect=off\n{gpus}")
        version = subprocess.run(["slurmd", "-V"], capture_output=True, text=True, check=True).stdout
        if tuple(map(int, re.findall(r"\d+", version)[:2])) >= (23, 11):  # older ones know no such word, and need none
            (self.folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")

    def _daemon(self, *command: str) -> None:
        log = self.folder / f"{command[0]}.out"
        with log.open("wb") as stream:
            self._daemons.append(
                subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True)
            )

    def why(self) -> str:
        """Last lines of all logs."""
        logs = [*self.folder.glob("*.log"), *self.folder.glob("*.out"), *self.folder.glob("munge/log")]
        return "\n".join(f"{log.name}: {_tail(log)}" for log in logs)


def _wait(what: str, is_there: Callable[[], bool], cluster: Cluster, quiet: bool = False) -> None:
    started = time.monotonic()
    while not is_there():
        if time.monotonic() - started > _WAIT_S:
            if quiet:
                return
            raise RuntimeError(f"{what} did not come within {_WAIT_S} s\n{cluster.why()}")
        time.sleep(0.2)


def _tail(log: Path) -> str:
    return " / ".join(log.read_text(errors="replace").splitlines()[-6:])


def _free_ports(n: int) -> Sequence[int]:
    sockets = [socket.socket() for _ in range(n)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _runs(name: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text().strip() == name:
                return True
        except OSError:
            continue  # it ended meanwhile
    return False
