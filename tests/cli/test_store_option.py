"""The store of a command: a file or a PostgreSQL database, named by --store or PERDURE_STORE."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.postgres_server import address_of_a_new_schema, address_of_an_empty_store, run_sql
from tests.support.programs import environment, run_inside

PASSWORD = "hunter22hunter22"


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "elsewhere.db")
    return address_of_an_empty_store().replace("postgres:@", f"postgres:{PASSWORD}@")


@pytest.mark.slow
def test_the_option_stands_before_or_after_the_command(tmp_path: Path, address: str) -> None:
    """Both, and the variable, name one store; the home folder has none, and the variable is as it was."""
    home, more = tmp_path / "home", {"PERDURE_EMBEDDING": "none"}

    made = run_inside(home, "--store", address, "agent", "create", "ada", **more)
    listed = run_inside(home, "agent", "list", "--json", "--store", address, **more)
    in_noun = run_inside(home, "agent", f"--store={address}", "list", PERDURE_STORE="/nowhere/x.db", **more)
    by_variable = run_inside(home, "history", "ada", PERDURE_STORE=address, **more)

    assert [one.returncode for one in (made, listed, in_noun, by_variable)] == [0, 0, 0, 0], made.stderr
    assert '"name":"ada"' in listed.stdout.replace('": "', '":"') and "ada" in in_noun.stdout
    assert not home.exists() and "PERDURE_STORE" not in os.environ


@pytest.mark.slow
def test_doctor_looks_at_the_database(tmp_path: Path) -> None:
    """It says which, without the password, and whether it can be written."""
    address = address_of_an_empty_store().replace("postgres:@", f"postgres:{PASSWORD}@")
    more = {"PERDURE_EMBEDDING": "none", "PERDURE_PROBE_LOCAL": "0"}

    done = run_inside(tmp_path, "doctor", "--store", address, **more)

    assert "PostgreSQL 1" in done.stdout and "0 agents" in done.stdout and "can be written" in done.stdout
    assert PASSWORD not in done.stdout + done.stderr


def test_doctor_tells_a_copy_that_is_not_whole(tmp_path: Path) -> None:
    """With the command that ends it, as every other command does; a newer version is another thing."""
    address = address_of_a_new_schema()
    assert run_inside(tmp_path, "agent", "list", "--store", address).returncode == 0
    run_sql(address, "INSERT INTO schema_migrations (number, name) VALUES (1000000, 'perdure migrate-db a b')")
    incomplete = run_inside(tmp_path, "doctor", "--store", address)
    run_sql(address, "UPDATE schema_migrations SET number = 999 WHERE number = 1000000")
    newer = run_inside(tmp_path, "doctor", "--store", address)

    assert "not whole: go on with it by `perdure migrate-db a b`" in " ".join(incomplete.stdout.split())
    assert "run that command again" in incomplete.stdout and incomplete.returncode == newer.returncode == 1
    said = " ".join(newer.stdout.split())
    assert "newer Perdure" in said and "upgrade Perdure" in said


@pytest.mark.parametrize(
    ("address", "says"),
    [
        (f"postgresql://ada:{PASSWORD}@127.0.0.1:1/x", "can't be reached"),
        (f"postgresql://ada:{PASSWORD}@x@127.0.0.1:1/x", "%40"),
        (f"postgresql://ada:{PASSWORD}@127.0.0.1:1/x?nonsense=1", "wrong form"),
        (f"mysql://ada:{PASSWORD}@127.0.0.1/x", "mysql://"),
        (f"postgresql+psycopg://ada:{PASSWORD}@127.0.0.1/x", "postgresql+psycopg://"),
        (f"postgres:ada:{PASSWORD}@127.0.0.1/x", "postgresql://..."),
        (f"host=127.0.0.1 dbname=x password={PASSWORD}", "write postgresql://user@host:5432/database"),
    ],
)
def test_an_address_that_does_not_open_is_one_line_without_its_password(
    tmp_path: Path, address: str, says: str
) -> None:
    """The error says what is wrong with it."""
    done = run_inside(tmp_path, "agent", "list", "--store", address)

    assert done.returncode == 1 and says in done.stderr and done.stderr.count("\n") == 1
    assert PASSWORD not in done.stdout + done.stderr


@pytest.mark.parametrize("address", [f"mysql://x:{PASSWORD}@y/z", "postgres:foo", f"dbname=x password={PASSWORD}"])
@pytest.mark.parametrize("place", ["FROM", "TO"])
@pytest.mark.uses("copies")
def test_migrate_db_takes_no_address_for_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, place: str
) -> None:
    """Neither side; nothing is made."""
    monkeypatch.chdir(tmp_path)
    run_inside(tmp_path, "agent", "create", "ada", "--store", "agents.db")
    before = sorted(path.name for path in tmp_path.iterdir())
    sides = (address, "agents.db") if place == "FROM" else ("agents.db", address)

    done = run_inside(tmp_path, "migrate-db", *sides)

    assert done.returncode == 1 and f"{place} begins with" in done.stderr and PASSWORD not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_what_is_for_files_only_says_so(tmp_path: Path) -> None:
    """In one line, and before the database is reached."""
    done = run_inside(tmp_path, "store", "verify", "--accept-loss", PERDURE_STORE="postgresql://127.0.0.1:1/x")

    assert done.returncode == 1 and "for a store in a file" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.slow
def test_without_psycopg_the_error_names_the_extra(tmp_path: Path) -> None:
    """It is one line with the command that installs it."""
    program = "import sys; sys.modules['psycopg'] = None; from perdure.cli import main; main()"
    env = environment(tmp_path, PERDURE_STORE="postgresql://127.0.0.1:1/x")
    done = subprocess.run([sys.executable, "-c", program, "agent", "list"], env=env, capture_output=True, text=True)

    assert done.returncode == 1 and "perdure[postgres]" in done.stderr and done.stderr.count("\n") == 1
