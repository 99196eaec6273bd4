"""The REST API of Letta, over Perdure's agents. Started by `perdure serve`."""
