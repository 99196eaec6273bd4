"""The HTTP application: every route behind one guard, every error in the wire's shape."""

from __future__ import annotations

import asyncio
import base64
import functools
import hashlib
import logging
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from perdure.app.metrics import Metrics
from perdure.library.perdure import AsyncPerdure
from perdure.library.services.access.organisations import Organisations
from perdure.server.absent import absent_routes, unknown_path_detail
from perdure.server.access.gate import Gate
from perdure.server.access.keys import KeyRing
from perdure.server.access.limits import Limiter
from perdure.server.config import ServerConfig
from perdure.server.errors import add_error_handlers, method_not_allowed_routes
from perdure.server.guards import Guard
from perdure.server.http import json_answer
from perdure.server.meter import Meter, metrics_route
from perdure.server.routes import (
    agents,
    archives,
    blocks,
    conversations,
    corrections,
    fact_views,
    facts,
    folders,
    groups,
    health,
    identities,
    jobs,
    mcp_servers,
    messages,
    models,
    passages,
    prompts,
    providers,
    runs,
    sandbox,
    search,
    steps,
    tools,
    why,
)
from perdure.server.routes.access import access
