"""The models that can be used."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from perdure.server.http import Library, json_answer
from perdure.server.wire.fields import Items
from perdure.server.wire.models import embedding_model_shape, facts_of, handles_of, model_shape

router = APIRouter(tags=["models"])


@router.get("/v1/models/")
async def list_models(
    library: Library,
    provider_name: str | None = None,
    provider_type: str | None = None,
    provider_category: Annotated[Items[str] | None, Query()] = None,
) -> Response:
    """List the models that can be used now, the server's default first."""
    app = library.app
    await library.services.models.reload()
    models = [model_shape(handle, facts_of(app, handle)) for handle in handles_of(app)]
    selected = [
        model
        for model in models
        if (provider_name is None or model["provider_name"] == provider_name)
        and (provider_type is None or model["provider_type"] == provider_type)
        and (not provider_category or model["provider_category"] in provider_category)
    ]
    return json_answer(selected)


@router.get("/v1/models/embedding")
async def list_embedding_models(library: Library) -> Response:
    """List the server's own embedding model, if it has one. It makes all vectors, whatever clients choose."""
    embedder = library.app.embedder
    return json_answer([] if embedder is None else [embedding_model_shape(embedder)])
