"""All services of one open store."""

from __future__ import annotations

from perdure.app import App
from perdure.library.services.identities import IdentityService
from perdure.library.services.prompts import PromptService
from perdure.library.services.providers import ModelService, ProviderService
from perdure.library.services.transfer import TransferService
from perdure.library.services.upkeep import UpkeepService


class Services:
    """All services of one open store."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.identities = IdentityService(app)
        self.models = ModelService(app)
        self.prompts = PromptService(app, self.models)
        self.providers = ProviderService(app)
        self.transfer = TransferService(app)
        self.upkeep = UpkeepService(app)
