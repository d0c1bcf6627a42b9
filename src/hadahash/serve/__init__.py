"""The service and its page. `hadahash serve` starts it; `create_app` gives the ASGI application to other servers.

Nothing is imported here: the processes that decode images (worker.py) must start quickly.
"""
