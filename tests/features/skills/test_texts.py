"""Which texts the rules refuse: what is temporary, or a credential. A table in English and Chinese."""

from __future__ import annotations

import time

import pytest

from perdure.features.skills.admission import AdmissionRefused, NewEntry, admit
from perdure.features.skills.values import Evidence
from tests.support.cases import for_each

CREDENTIALS = (
    "Run curl -u bob:hunter2 https://api.example.com/deploy.",
    "curl --user 'bob:hunter2' https://api.example.com",
    "curl -sS -X POST -u bob:hunter2 https://api.example.com",
    "curl -ubob:hunter2 https://api.example.com",
    "wget --user=bob --password=hunter2 https://example.com/a.zip",
    "http -a bob:hunter2 https://api.example.com",
    "mysql -u root -phunter2 shop < dump.sql",
    "mysqldump -uroot --password=hunter2 shop",
    "sshpass -p hunter2 ssh bob@host",
    "docker login -u bob -p hunter2 registry.example.com",
    "redis-cli -h cache -a hunter2 ping",
    "PGPASSWORD=hunter2 psql -h db shop",
    "psql postgres://bob:hunter2@db/shop",
    "git clone https://bob:hunter2@git.example.com/shop.git",
    "Login: admin / s3cret",
    "Login: admin/s3cret",
    "Credentials: admin / s3cret",
    "Log in as admin / s3cret.",
    "Log in with admin:s3cret.",
    "user admin, pass s3cret",
    "User: admin Pass: s3cret",
    "username=admin password=s3cret",
    "The admin login is admin / s3cret",
    "The password is hunter2.",
    "API_KEY=abcdEFGH1234",
    "Authorization: Basic Ym9iOmh1bnRlcjI=",
    "Authorization: Bearer 8a7b6c5d4e3f2a1b0c9d",
    "Use the token ghp_abcdefghijklmnopqrstuvwxyz0123456789.",
    "用户名 admin，密码 s3cret",
    "账号：admin 密码：s3cret",
    "登录：admin / s3cret",
    "账号密码：admin/s3cret",
    "口令是 blue77horse",
    "用 admin:s3cret 登录",
    "ｐａｓｓｗｏｒｄ: hunter2x",
    "pass\u200bword: hunter2x",
)
TEMPORARY = (
    "PID of the server is 4123.",
    "The server's PID is 4123.",
    "P\u200bID 4123",
    "Kill the process, pid 4711.",
    "The server runs as process 4123.",
    "kill -9 4123",
    "kill 4123 ends it.",
    "The process id was 88412",
    "x = 42 in loop 3",
    "i = 7 after 3 iterations",
    "In iteration 5 the counter is 17.",
    "At step 12 the variable total is 88.",
    "The dev server listens on port 54327 this time.",
    "The server started on port 49833.",
    "Listening on http://127.0.0.1:38211",
    "Open http://localhost:51873/ in the browser.",
    "session id: 8f3a9c",
    "The session id is abc-77",
    "sessionid=9f8a7c6b",
    "JSESSIONID=9F8A7C6B5D",
    "The run id was run-17.",
    "job id 88123",
    "Job 88123 is running.",
    "container id: 3f2a1b",
    "docker exec -it 3f2a1b9c8d7e sh",
    "The build is in /tmp/build-83jd2.",
    "Output went to /var/folders/x1/abc9/T/out.txt",
    "It began at 2026-11-29T07:10:00.",
    "The request 3b241101-e2bb-4255-8caf-4136c566a962 failed.",
    "The timestamp was 1764400000.",
    "Open tab 3 of window 88321.",
    "服务器的 PID 是 4123",
    "进程号是 4123",
    "进程 4123 是服务器",
    "会话 ID 是 abc77",
    "会话号：8f3a9c",
    "端口这次是 54327",
    "第 3 次循环时 x = 42",
    "任务编号 88123 正在运行",
    "临时文件在 /tmp/build-83jd2",
    "开始于 2026-11-29 07:10",
)
FACTS = (
    "The server is currently down.",
    "The build fails right now.",
    "Ada is on holiday today.",
    "In this session the tests passed.",
    "For now use the old key store.",
    "服务器现在坏了",
    "目前磁盘满了",
    "今天不能部署",
    "在这次对话里用户是 Ada",
    "暂时使用旧服务器",
)
"""Refused as facts (L2)."""
ORDINARY = (
    "# Deploy the shop\n1. Run `make build`.\n2. Copy `dist` to the server.\n3. The page answers with 200.",
    "Find the process with `pgrep -f server`, then `kill $(pgrep -f server)`.",
    "Write the PID to server.pid, and stop the server with `kill $(cat server.pid)`.",
    "kill -9 only as a last resort.",
    "Use `kill -15 $PID`, wait 10 seconds, then `kill -9 $PID`.",
    "PIDs are unique for a machine.",
    "The database listens on port 5432, the web server on 443.",
    "Start the server on port 8080, and open http://localhost:8080/.",
    "Open http://127.0.0.1:3000/health; it answers with 200.",
    "Set x = 42 in config.toml.",
    "retries = 3\ntimeout = 30",
    "for i in range(10):\n    total = total + i",
    "Repeat step 3 until the tests pass.",
    "Loop over the files: for f in *.csv; do ./load.sh $f; done",
    "Step 12: check the total.",
    'curl -u "$USER:$PASSWORD" https://api.example.com',
    "curl -u ${API_USER}:${API_PASSWORD} https://api.example.com",
    "curl -u <user>:<password> https://api.example.com",
    "curl -u bob https://api.example.com asks for the password.",
    'curl -H "Authorization: Bearer $TOKEN" https://api.example.com',
    "Export API_KEY from secret:deploy_token.",
    "export DB_PASSWORD=$(pass show db)",
    "mysql -u root -p shop < dump.sql",
    'mysql --host=db --user=app -p"$DB_PASSWORD" shop',
    "docker run -p 8080:80 -u 1000:1000 shop",
    "ssh -p 2222 bob@host",
    "chown -R app:app /srv/shop",
    "rsync -a dist/ bob@host:/srv/shop/",
    "Log in with your own account, then open the settings.",
    "Log in as the deploy user.",
    "Login: open /login and press the button.",
    "Login / logout are in auth.py.",
    "The login page is at /admin/login.",
    "The password is kept in secret:shop_admin.",
    "Never write a password into a skill.",
    "Use the session id of the cookie.",
    "A run id is shown by `perdure run list`.",
    "Each job has a job id: list them with `jobs`.",
    "The ratio is 3:2, the time 10:30.",
    "Use mktemp -d for temporary files, below /tmp.",
    "Version 3.11 of Python; the wheel is built for 3.12, too.",
    "Docker 24 is installed in /usr/local/bin.",
    "Python 3.11.7 was released in 2023.",
    "The office is open 9:00-17:00.",
    "Bake it for 40 minutes at 230 °C.",
    "The invoice number has 8 digits, such as 12345678.",
    "Tasks are run every 30 minutes by cron: */30 * * * *",
    "Pass --verbose to see more. The pass rate has to be 95 %.",
    "The user passes a file name: pass it on as it is.",
    "The token count is at most 4096.",
    "GET /users/42 returns the user; POST /users creates one.",
    "Use HTTP basic authentication, with the name and password of secret:registry.",
    "数据库监听 5432 端口。",
    "先运行 make build，再把 dist 复制到服务器。",
    "进程用 pgrep 查找，再结束它。",
    "密码保存在 secret:shop_admin 里。",
    "登录后打开设置页面。",
    "用自己的账号登录。",
    "循环处理每个文件，直到没有剩下的文件。",
    "第 3 步：检查总数。",
    "会话 ID 在 cookie 里。",
    "每天 9 点运行一次任务。",
    "端口由 PORT 环境变量决定。",
)


def refused_by(text: str, layer: str = "L3") -> str:
    """The rule that refuses a text of an agent; empty: none."""
    new = NewEntry(layer=layer, name="a", text=text, evidence=Evidence(kind="tool"), written_by="agent", count=0)  # type: ignore[arg-type]
    try:
        admit(new)
    except AdmissionRefused as error:
        return error.rule
    return ""


@for_each(CREDENTIALS)
def test_a_credential_is_refused(text: str) -> None:
    assert refused_by(text) == "no_credential"


@for_each(TEMPORARY)
def test_what_is_temporary_is_refused(text: str) -> None:
    assert refused_by(text) == "lasting"


@pytest.mark.parametrize("text", FACTS)
def test_a_fact_that_holds_only_now_is_refused(text: str) -> None:
    assert refused_by(text, "L2") == "lasting_fact"
    assert refused_by(text) == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        *(
            "pid ",
            "pid of ",
            "a=",
            "x = ",
            "in loop 3 ",
            "kill ",
            "job ",
            "docker exec ",
            "/tmp/",
            "localhost:",
            "a ",
            " ",
        ),
        *(
            "curl -u ",
            "curl -",
            "mysql ",
            "login: ",
            "login ",
            "user a ",
            "--pass",
            "用 ",
            "登录",
            "A",
            "a/",
            "进程 ",
            "a1",
        ),
        *("session id ", "第 3 次循环", "0a1b-", "1 ", "password ", "log in with ", "port "),
    ],
)
def test_a_hostile_text_is_checked_at_once(text: str) -> None:
    """A text is checked while others wait to write."""
    began = time.process_time()
    refused_by((text * 30_000)[:30_000])
    refused_by(text + " " * 15_000 + text * 1_000)

    assert time.process_time() - began < 4


@for_each(ORDINARY)
def test_an_ordinary_procedure_is_taken(text: str) -> None:
    assert refused_by(text) == ""
    assert refused_by(text, "L2") == ""
