"""Files of agents on the command line and over HTTP."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import yaml

from tests.features.manifests.office_files import DICE, OFFICE, write_office
from tests.server.routed import new_agent, routed
from tests.support.programs import perdure

PLAIN = OFFICE.replace("test/scripted", "perdure/extractive")


def test_the_command_shows_a_plan_asks_and_applies(tmp_path: Path) -> None:
    file = str(write_office(tmp_path / "office", PLAIN))
    differs = perdure(tmp_path, "diff", "-f", file)
    asked = perdure(tmp_path, "apply", "-f", file)
    done = perdure(tmp_path, "apply", "-f", str(tmp_path / "office"), "--yes")
    again = perdure(tmp_path, "apply", "-f", file, "--json")
    equal = perdure(tmp_path, "diff", "-f", file)
    shown = perdure(tmp_path, "agent", "show", "ada", "--yaml")
    plain = perdure(tmp_path, "agent", "show", "ada")

    assert differs.returncode == 2 and "+ agent 'ada' is made" in differs.stdout
    assert asked.returncode == 1 and "--yes" in asked.stderr
    assert done.returncode == 0 and "10 made" in done.stdout, done.stderr
    assert json.loads(again.stdout)["changes"] == []
    assert equal.returncode == 0 and "Nothing to change" in equal.stdout
    assert yaml.safe_load(shown.stdout)["agents"]["ada"]["blocks"]["persona"]["seed"] == "I am Ada."
    assert "Model: perdure/extractive" in plain.stdout


def test_the_schema_takes_the_files_and_refuses_unknown_fields(tmp_path: Path) -> None:
    schema = json.loads(perdure(tmp_path, "apply", "--schema").stdout)
    validator = jsonschema_rs.validator_for(schema)

    assert validator.is_valid(yaml.safe_load(OFFICE))
    assert not validator.is_valid({"agents": {"ada": {"modle": "x"}}})
    assert perdure(tmp_path, "apply").returncode == 1


async def test_files_are_applied_over_http(tmp_path: Path) -> None:
    files = {"agents.yaml": PLAIN, "tools/dice.py": DICE}
    async with routed() as server:
        dry = await server.post("/v1/manifests", {"files": files, "dry_run": True})
        nothing = await server.library.agents()
        other = await server.refused("POST", "/v1/manifests", {"files": files, "digest": "0" * 64})
        done = await server.post("/v1/manifests", {"files": files, "digest": dry["digest"]})
        again = await server.post("/v1/manifests", {"files": files})
        schema = await server.get("/v1/manifests/schema")
        refused = await server.refused("POST", "/v1/manifests", {"files": {"a.yaml": "agents: {ada: {modle: x}}"}})
        program = {"files": {"a.yaml": "mcp_servers: {local: {command: ls}}"}}
        stdio = await server.refused("POST", "/v1/manifests", program)
        agent = await new_agent(server)
        shown = await server.http.get(f"/v1/agents/{agent['id']}/manifest")

    assert nothing == [] and dry["digest"] == done["digest"] and len(done["changes"]) == 10
    assert again["changes"] == [] and other[0] == 409
    assert schema["title"] == "Perdure agents as files"
    assert refused[0] == 422 or refused[0] == 400
    assert "a.yaml:1" in json.dumps(refused[1]) and "did you mean 'model'" in json.dumps(refused[1])
    assert stdio[0] in (400, 403)
    assert agent["name"] in shown.text
