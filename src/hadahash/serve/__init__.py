"""The web service and its page.

`hadahash serve` starts it. For other servers, `hadahash.serve.http.app.create_app` returns the
ASGI application.

    settings.py   every limit of the service
    http/         routes, request bodies, tokens, middleware, errors
    core/         one live index and its writer, search batches, encoder, images, overview
    static/       the page
    server.py     socket, uvicorn and signals

Nothing is imported here, so that the decoder processes start quickly.
"""
