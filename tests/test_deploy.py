"""The recipes under deploy/ hold together: shells parse, fields exist, commands are ours."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

import run
from benchmarks.suite import load_suite

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
SCRIPTS = sorted(DEPLOY.glob("*.sh"))

RAY_JOB = {
    "entrypoint", "submissionMode", "backoffLimit", "shutdownAfterJobFinishes",
    "ttlSecondsAfterFinished", "rayClusterSpec",
}  # fmt: skip
"""The fields of a RayJob's spec (ray.io/v1) that the manifest may use."""
HEAD = {"rayStartParams", "template"}
WORKERS = HEAD | {"groupName", "replicas", "minReplicas", "maxReplicas"}
CONTAINER = {"name", "image", "env", "ports", "resources", "volumeMounts"}


def stub(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.write_text(f"#!/usr/bin/env bash\n{text}\n")
    file.chmod(0o755)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_parses_stops_at_errors_and_quotes_its_arguments(script: Path) -> None:
    text = script.read_text()
    subprocess.run(["bash", "-n", script], check=True)
    assert "\nset -euo pipefail\n" in text
    assert os.access(script, os.X_OK)
    bare = [
        line
        for line in text.splitlines()
        if not line.startswith("#") and re.search(r"(?<!\")\$@", line)
    ]
    assert not bare, "$@ without quotes splits names"
    done = subprocess.run([script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "usage" in done.stderr or "sbatch" in done.stderr


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A repository with the scripts and a Python that writes down how it was called."""
    (tmp_path / "deploy").mkdir()
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for script in SCRIPTS:
        (tmp_path / "deploy" / script.name).write_bytes(script.read_bytes())
    (tmp_path / "scripts" / "setup.sh").write_text("true\n")
    stub(
        tmp_path / ".venv" / "bin",
        "python",
        'case "$1" in -c) echo token ;; *) echo "python $*" >> calls; '
        '[ "$2" != sweep ] || exit "$(cat status)" ;; esac',
    )
    (tmp_path / "status").write_text("0")
    return tmp_path


def called(copy: Path, script: str, *arguments: str, **env: str) -> tuple[int, list[str]]:
    (copy / "calls").unlink(missing_ok=True)
    done = subprocess.run(
        ["bash", f"deploy/{script}", *arguments],
        cwd=copy,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    calls = (copy / "calls").read_text().splitlines() if (copy / "calls").exists() else []
    return done.returncode, calls


def parses(line: str) -> None:
    """The command line is one that run.py takes."""
    words = shlex.split(line)
    run._parser().parse_args(words[words.index("run.py") + 1 :])


def test_one_node_sweeps_and_reports(copy: Path) -> None:
    status, calls = called(copy, "one-node.sh", "pocket", "--samples", "1")
    assert status == 0
    assert calls == [
        "python run.py sweep pocket --samples 1 --out results/pocket",
        "python run.py report results/pocket",
    ]
    for line in calls:
        parses(line)


def test_one_node_begins_again_while_samples_are_owed_and_not_after_a_wrong_use(copy: Path) -> None:
    (copy / "status").write_text("1")
    status, calls = called(copy, "one-node.sh", "pocket", ATTEMPTS="2")
    assert (status, [line.split()[2] for line in calls]) == (1, ["sweep", "sweep", "report"])
    (copy / "status").write_text("2")
    status, calls = called(copy, "one-node.sh", "pocket")
    assert (status, len(calls)) == (2, 1)


SLURM = {
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_JOB_NODELIST": "node[1-2]",
    "SLURM_JOB_ID": "123456",
}


def test_slurm_starts_one_cluster_and_sweeps_on_its_head(copy: Path) -> None:
    """A dry run: srun, scontrol and ray are stubs that write down how they are called."""
    tools = copy / ".venv" / "bin"
    (tools / "activate").write_text(f"export PATH={tools}:$PATH\n")
    stub(tools, "scontrol", '[ "$*" = "show hostnames node[1-2]" ] && printf "node1\\nnode2\\n"')
    stub(
        tools, "srun", 'echo "srun $*" >> calls; while [ "${1#--}" != "$1" ]; do shift; done; "$@"'
    )
    stub(
        tools,
        "ray",
        'echo "ray $* $RAY_AUTH_MODE" >> calls; while [ "$1" != -- ]; do shift; done; shift; "$@"',
    )
    env = SLURM | {"SLURM_SUBMIT_DIR": str(copy)}
    status, calls = called(copy, "slurm.sh", "pocket", "--samples", "1", **env)
    assert status == 0
    plan, srun, ray, sweep = calls
    assert plan == "python run.py plan pocket --samples 1"
    assert srun.startswith("srun --nodes=2 --ntasks=2 ")
    assert ray.startswith("ray symmetric-run --address node1:23456 --min-nodes 2 ")
    assert ray.endswith(" token")
    assert sweep == "python run.py sweep pocket --samples 1 --ray-address node1:23456"
    parses(plan)
    parses(sweep)
    (copy / "status").write_text("2")
    assert called(copy, "slurm.sh", "pocket", **env)[0] == 2


def test_rays_own_command_takes_what_slurm_gives_it() -> None:
    from ray.scripts.symmetric_run import curate_and_validate_ray_start_args

    text = (DEPLOY / "slurm.sh").read_text()
    given = re.search(r"ray symmetric-run (.*?) -- ", text, re.DOTALL)
    assert given is not None
    words = given[1].replace("$head:$port", "h:1").replace("$nodes", "2")
    assert curate_and_validate_ray_start_args(shlex.split(words)) == ["--disable-usage-stats"]


def manifest() -> Any:
    return yaml.safe_load((DEPLOY / "kuberay.yaml").read_text())


def test_the_manifests_fields_are_a_rayjobs() -> None:
    job = manifest()
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert job["spec"].keys() <= RAY_JOB
    assert job["spec"]["submissionMode"] in ("K8sJobMode", "HTTPMode", "SidecarMode")
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster.keys() == {"rayVersion", "headGroupSpec", "workerGroupSpecs"}
    assert cluster["headGroupSpec"].keys() == HEAD
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for group in groups[1:]:
        assert group.keys() == WORKERS
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for group in groups:
        assert all(type(value) is str for value in group["rayStartParams"].values())
        pod = group["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        (container,) = pod["containers"]
        assert container.keys() <= CONTAINER
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        assert container["resources"]["requests"] == container["resources"]["limits"]
    # SQLite: one pod alone opens the store.
    assert "results" not in str(groups[1])


def test_the_manifest_runs_our_command_with_our_ray() -> None:
    job = manifest()["spec"]
    assert job["rayClusterSpec"]["rayVersion"] == version("ray")
    (script,) = shlex.split(job["entrypoint"])[2:]
    command = script.partition(" && ")[2]
    parses(command)
    suite = load_suite(command.split()[3])
    assert {model for block in suite.products for model in block.models} >= {"rl-memagent-7b"}
