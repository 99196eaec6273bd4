"""`perdure telegram`: an agent in Telegram."""

from __future__ import annotations

from typing import Annotated

from perdure.cli.commands.run import LastAgent, command, for_work, option

if for_work(__name__):
    import os

    from perdure.cli.views.view import Output, plural
    from perdure.core.errors import InvalidInput
    from perdure.library.perdure import AsyncPerdure

TOKEN = "PERDURE_TELEGRAM_TOKEN"


@command("telegram", json=False)
async def serve_telegram(
    view: Output,
    perdure: AsyncPerdure,
    agent: LastAgent,
    allow: Annotated[list[str] | None, option("Id or @name of a user who may talk to it; repeat it.", "USER")] = None,
    api: Annotated[str, option("The server of the Bot API.", "URL")] = "https://api.telegram.org",
) -> None:
    """Let people talk to an agent in Telegram.

    Each chat is a conversation of its own. Ctrl-C ends it. The token of the bot is in PERDURE_TELEGRAM_TOKEN;
    @BotFather gives one. Nobody may talk to it but those you allow: start it, write to the bot, and it tells you your
    id.
    """
    if not (token := os.environ.get(TOKEN, "").strip()):
        raise InvalidInput(f"{TOKEN} is not set: ask @BotFather in Telegram for a token, and put it there")
    try:
        import telegram
    except ImportError as error:
        raise InvalidInput("the package python-telegram-bot is missing: pip install 'perdure[telegram]'") from error
    from perdure.features.interfaces.telegram.bot import TelegramBot, client
    from perdure.features.interfaces.telegram.deliveries import DeliveryLog

    bot = client(token, api.rstrip("/"))
    try:
        await bot.initialize()
    except telegram.error.InvalidToken as error:
        raise InvalidInput(f"{TOKEN} is not the token of a bot: ask @BotFather for one") from error
    except telegram.error.NetworkError as error:
        raise InvalidInput(f"Telegram can't be reached: {error}") from error
    async with bot:
        log = DeliveryLog.load(perdure.app.settings.folder / "telegram" / f"{bot.id}-{agent.id}.json")
        who = plural(len(allow or ()), "user") if allow else "nobody: write to it, and it says the id for --allow"
        view.hint(f"@{bot.username} answers as {agent.name!r}. It talks to {who}. Ctrl-C ends it.")
        await TelegramBot(perdure, agent, bot, log, allowed=allow or (), note=view.note).run()
