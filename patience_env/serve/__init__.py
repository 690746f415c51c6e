"""The games in a web page: `patience serve`.

The rules run in the server only. `moves` tells which places of the table an action concerns, `sessions` plays games
and matches, `store` keeps them in a SQLite file, `guard` refuses what a page of our own never sends, `server` is the
FastAPI application, and `command` the command line. FastAPI and uvicorn (the extra `serve`) are imported when the
server is made, never by importing this package.
"""
