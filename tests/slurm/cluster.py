"""A SLURM of two nodes on this one machine: real daemons on loopback, in a folder of their own."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo")
NODES = 2
CPUS = 2

CONFIGURATION = """\
ClusterName=loop
SlurmctldHost=localhost
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
# Credentials that expire soon let a requeued job start again after seconds instead of two minutes.
AuthInfo=socket={root}/munge.sock,cred_expire=5
SlurmctldPort={port}
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd-%n.log
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_interval=2
KillWait=5
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
NodeName=n[1-{nodes}] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs={cpus} RealMemory=8000
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=30
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


def missing() -> list[str]:
    return [program for program in PROGRAMS if shutil.which(program, path=_path()) is None]


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


@dataclass
class LoopbackCluster:
    """Two nodes, ``n1`` and ``n2``, of two CPUs each; partitions ``main`` and, with precedence, ``urgent``."""

    root: Path  #: folder of configuration, logs and state; a short path, because sockets lie there

    @property
    def environment(self) -> dict[str, str]:
        """Variables that make SLURM's commands talk to this cluster."""
        # Node names do not resolve, so that ranks must be told where the first one listens.
        return {"SLURM_CONF": str(self.root / "slurm.conf"), "PATH": _path(), "MASTER_ADDR": "127.0.0.1"}

    def up(self) -> None:
        """Start munge, the controller and the nodes; returns when they are idle."""
        (self.root / "state").mkdir(parents=True)
        ports, user = free_ports(NODES + 1), os.environ.get("USER") or "root"
        configuration = CONFIGURATION.format(
            root=self.root, user=user, port=ports, first=ports + 1, last=ports + NODES, nodes=NODES, cpus=CPUS
        )
        (self.root / "slurm.conf").write_text(configuration)
        key = self.root / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        files = {"socket": "munge.sock", "pid-file": "munged.pid", "log-file": "munged.log", "seed-file": "munged.seed"}
        self._call("munged", f"--key-file={key}", *(f"--{k}={self.root / v}" for k, v in files.items()))
        self._call("slurmctld")
        for number in range(1, NODES + 1):
            self._call("slurmd", "-N", f"n{number}")
        self._wait_until_idle()

    def _wait_until_idle(self) -> None:
        self._wait_until(lambda: self._call("sinfo", "-h", "-p", "main", "-o", "%T %D").strip() == f"idle {NODES}")

    def down(self) -> None:
        for pid_file in sorted(self.root.glob("*.pid"), key=lambda path: path.name == "munged.pid"):
            try:
                os.kill(int(pid_file.read_text()), signal.SIGTERM)
            except (ProcessLookupError, ValueError):
                continue

    def state(self, job: str) -> str:
        return self.show(job).get("JobState", "")

    def show(self, job: str) -> dict[str, str]:
        words = self._call("scontrol", "show", "job", "--oneliner", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def signal(self, job: str, name: str) -> None:
        self._call("scancel", f"--signal={name}", job)

    @contextmanager
    def lost(self, node: str) -> Iterator[None]:
        """Within it, the controller has given up a node, while the processes of its jobs live on."""
        os.kill(int((self.root / f"slurmd-{node}.pid").read_text()), signal.SIGKILL)
        self._call("scontrol", "update", f"nodename={node}", "state=down", "reason=lost")
        try:
            yield
        finally:
            self._call("slurmd", "-N", node)
        self._wait_until_idle()

    def wait(self, job: str, *states: str, seconds: float = 240) -> str:
        self._wait_until(lambda: self.state(job) in states, seconds)
        return self.state(job)

    def _call(self, *command: str, cwd: Path | None = None) -> str:
        environment = {**os.environ, **self.environment}
        done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True)
        assert done.returncode == 0, (command, done.stderr, done.stdout)
        return done.stdout

    def _wait_until(self, holds, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, self.logs()
            time.sleep(0.2)

    def logs(self) -> str:
        return "\n".join(f"{path.name}:\n{path.read_text()[-1500:]}" for path in self.root.glob("*.log"))


def free_ports(count: int) -> int:
    """Return the first of ``count`` successive ports that nobody listens on."""
    for first in range(17_001, 60_000, count):
        sockets = [socket.socket() for _ in range(count)]
        try:
            for offset, one in enumerate(sockets):
                one.bind(("127.0.0.1", first + offset))
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
        return first
    raise RuntimeError("no free ports")
