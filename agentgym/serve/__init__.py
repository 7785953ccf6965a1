"""Environments over the network: a server of sessions and a client that reconnects.

The wire is that of OpenEnv (JSON messages over one WebSocket a session), with two additions that
its clients need not know: a ``request_id`` comes back with its reply, and a session outlives its
connection for a while, so that a client can come back for the reply it has missed.
"""
