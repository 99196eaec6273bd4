"""The files in `deploy`: what they set, run and ask exists. No container or cluster runs here."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from perdure.cli.root import verbs
from perdure.providers.provider import PROVIDERS
from perdure.server.config import ServerConfig
from perdure.server.serving.app import create_app
from perdure.settings import Settings
from perdure.testing import ScriptedModel
from tests.support.servers import open_library

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose.yaml"
KUBERNETES = DEPLOY / "kubernetes" / "perdure.yaml"
UNIT = DEPLOY / "perdure.service"
KNOWN = {
    *(f"PERDURE_{field.name.upper()}" for kind in (Settings, ServerConfig) for field in fields(kind)),
    "PERDURE_PROBE_LOCAL",
    *(key for provider in PROVIDERS.values() for key in provider.keys),
}
INSTRUCTIONS = {
    *("FROM", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE"),
    *("STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD", "WORKDIR"),
}


def load(path: Path) -> list[dict[str, Any]]:
    """The documents of a YAML file; a key that stands twice is an error."""

    class Strict(yaml.SafeLoader):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            assert len(keys) == len(set(keys)), f"{path.name}: {keys}"
            return super().construct_mapping(node, deep)

    return list(yaml.load_all(path.read_text(), Strict))


def dockerfile() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with their arguments."""
    lines = [line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
    text = "\n".join(lines).replace("\\\n", " ")
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in text.splitlines())]


def container() -> dict[str, Any]:
    """The container of the Deployment."""
    (one,) = _of_kind("Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(one)


def _of_kind(kind: str) -> dict[str, Any]:
    (one,) = [document for document in load(KUBERNETES) if document["kind"] == kind]
    return one


def variables() -> Iterator[tuple[str, str]]:
    """(File, variable) of everything that is set for the server."""
    for name in load(COMPOSE)[0]["services"]["perdure"]["environment"]:
        yield "compose.yaml", name
    for kind, key in (("Secret", "stringData"), ("ConfigMap", "data")):
        for name in _of_kind(kind)[key]:
            yield "perdure.yaml", name
    for name in re.findall(r"^Environment=(\w+)=", UNIT.read_text(), re.MULTILINE):
        yield "perdure.service", name
    for word, rest in dockerfile():
        if word == "ENV":
            for name in re.findall(r"(\w+)=", rest):
                yield "Dockerfile", name


def test_every_variable_is_a_setting() -> None:
    """A name that nobody reads would be a wish that is not heard."""
    unknown = [(file, name) for file, name in variables() if name not in KNOWN and name != "PATH"]

    assert unknown == []


def test_the_values_make_a_configuration() -> None:
    """What the files give the server is accepted by it."""
    config = {name: str(value) for name, value in _of_kind("ConfigMap")["data"].items()}
    secret = _of_kind("Secret")["stringData"]
    compose = load(COMPOSE)[0]["services"]["perdure"]["environment"]
    plain = {name: re.sub(r"\$\{\w+(?::-)?([^}?]*)[^}]*\}", r"\1", str(value)) for name, value in compose.items()}

    for values in ({**config, **secret}, {**plain, "PERDURE_API_KEY": "a key of the tests"}):
        Settings.from_environment(values)
        assert ServerConfig.from_environment({"PERDURE_HOST": "0.0.0.0", **values}).api_key


def test_every_command_exists() -> None:
    """`perdure serve` is what they all run."""
    steps = dict(dockerfile())
    start = re.search(r"^ExecStart=(.+)$", UNIT.read_text(), re.MULTILINE)
    assert start is not None
    words = [
        [*json.loads(steps["ENTRYPOINT"]), *json.loads(steps["CMD"])],
        ["perdure", *container()["args"]],
        [Path(word).name if place == 0 else word for place, word in enumerate(shlex.split(start[1]))],
    ]

    assert all(program == "perdure" and command in verbs() for program, command in words)


async def test_probes_are_answered(tmp_path: Path) -> None:
    """A probe that is refused would keep every pod from being ready: its path is a route, and its Host is allowed."""
    values = {**_of_kind("ConfigMap")["data"], **_of_kind("Secret")["stringData"], "PERDURE_HOST": "0.0.0.0"}
    del values["PERDURE_STORE"]
    probes = [container()[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")]
    asked = [(probe["path"], {one["name"]: one["value"] for one in probe["httpHeaders"]}) for probe in probes]
    caddy = (DEPLOY / "Caddyfile").read_text()
    asked.append((re.findall(r"health_uri (\S+)", caddy)[0], {"Host": re.findall(r"Host (\S+)", caddy)[0]}))
    check = next(rest for word, rest in dockerfile() if word == "HEALTHCHECK")
    asked.append((re.findall(r"http://127\.0\.0\.1:8283(/[^']+)", check)[0], {"Host": "127.0.0.1:8283"}))
    async with open_library(tmp_path, ScriptedModel(), ()) as perdure:
        app = create_app(perdure, ServerConfig.from_environment(values))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://10.1.2.3:8283") as client:
            refused = await client.get("/v1/ready/")
            answers = [await client.get(path, headers=headers) for path, headers in asked]

    assert refused.status_code == 403  # what the Host of the probes is for
    assert [answer.status_code for answer in answers] == [200] * 5
    assert asked[1][0] == "/v1/ready/"
    assert {asked[0][0], asked[2][0]} == {"/v1/health/"}


def test_a_stop_is_long_enough() -> None:
    """What waits for the server waits for its drain, and for its last answers."""
    config = ServerConfig()
    least = config.drain_s + config.shutdown_s
    pod = _of_kind("Deployment")["spec"]["template"]["spec"]
    (grace,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)
    pause = int(container()["lifecycle"]["preStop"]["exec"]["command"][1])

    assert int(load(COMPOSE)[0]["services"]["perdure"]["stop_grace_period"].removesuffix("s")) > least
    assert pod["terminationGracePeriodSeconds"] > least + pause
    assert int(grace) > least


def test_no_variable_of_a_service_reaches_the_server() -> None:
    """Kubernetes sets `NAME_PORT` for each Service, and `PERDURE_PORT` is a setting."""
    assert _of_kind("Deployment")["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_the_objects_of_kubernetes_fit_together() -> None:
    """Service, budget and Deployment name the same pods and ports; the mounted volumes are there."""
    deployment = _of_kind("Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    volumes = {volume["name"] for volume in deployment["template"]["spec"]["volumes"]}
    names = {next(iter(one.values()))["name"] for one in container()["envFrom"]}
    (port,) = _of_kind("Service")["spec"]["ports"]

    for selector in (deployment["selector"]["matchLabels"], _of_kind("Service")["spec"]["selector"]):
        assert selector == labels
    assert _of_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    assert _of_kind("PodDisruptionBudget")["spec"]["minAvailable"] < deployment["replicas"]
    assert port["targetPort"] in {one["name"] for one in container()["ports"]}
    assert {mount["name"] for mount in container()["volumeMounts"]} == volumes
    assert names == {_of_kind("Secret")["metadata"]["name"], _of_kind("ConfigMap")["metadata"]["name"]}


def test_compose_starts_the_server_after_its_database() -> None:
    """The services and volumes that are named are there, and no secret has a value in the file."""
    compose = load(COMPOSE)[0]
    server = compose["services"]["perdure"]
    mounted = {mount.partition(":")[0] for service in compose["services"].values() for mount in service["volumes"]}

    assert {*server["depends_on"]} < {*compose["services"]}
    assert mounted == {*compose["volumes"]}
    assert (COMPOSE.parent / server["build"]["dockerfile"].removeprefix("deploy/")).is_file()
    for name in ("PERDURE_API_KEY", "PERDURE_SECRET_KEY"):
        assert server["environment"][name].startswith(f"${{{name}:?")
    asked = set(re.findall(r"\$\{(\w+):\?", COMPOSE.read_text()))
    assert asked <= set(re.findall(r"^(\w+)=$", (DEPLOY / "env.example").read_text(), re.MULTILINE))


def test_the_image_is_built_from_what_is_there() -> None:
    """Known instructions; every copied file exists and is let in; the server is nobody's root."""
    steps = dockerfile()
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [source for word, rest in steps if word == "COPY" and "--from" not in rest for source in rest.split()[:-1]]

    assert {word for word, _ in steps} <= INSTRUCTIONS
    assert {source.removesuffix("/") for source in copied} == let_in
    assert all((ROOT / source).exists() for source in copied)
    assert dict(steps)["USER"].isdigit()
    assert steps[-1][0] == "CMD"


def test_the_proxies_pass_streams_on() -> None:
    """Nothing is held back, compressed or cut while a model thinks; files of the allowed size get through."""
    nginx, caddy = (DEPLOY / "nginx.conf").read_text(), (DEPLOY / "Caddyfile").read_text()
    limit = Settings().file_limit_bytes / 1_000_000

    for line in ("proxy_buffering off;", "gzip off;", "proxy_set_header Host $host;", "proxy_read_timeout 1h;"):
        assert line in nginx
    assert nginx.count("{") == nginx.count("}") and caddy.count("{") == caddy.count("}")
    assert "flush_interval -1" in caddy
    assert int(re.findall(r"client_max_body_size (\d+)m", nginx)[0]) > limit
    assert int(re.findall(r"max_size (\d+)MB", caddy)[0]) > limit


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """`systemd-analyze verify` finds no fault in it."""
    program = tmp_path / "perdure"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "perdure.service"
    unit.write_text(UNIT.read_text().replace("/opt/perdure/bin/perdure", str(program)))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )

    assert [line for line in checked.stderr.splitlines() if "perdure" in line] == []
    assert checked.returncode == 0, checked.stderr
