"""A whole Countersign on one machine: embedded PostgreSQL and Redis, a dev inbox, `make run`, `make demo`.

Nothing here is deployed. Modules run as `python -m dev.NAME` (never `python dev/NAME.py`, whose folder would
hide the real `redis` package); only `dev/bootstrap.py` is run by path, as it comes before everything else.
"""
