"""POST /v1/verifications with the broker well, stopped, frozen and black-holed: requests must not notice.

    .venv/bin/python -m bench.post_latency [--rounds 5] [--requests 1000] [--json FILE]

Rounds are interleaved, so that a noisy machine disturbs every case alike. The web processes are the Procfile's, on a real
PostgreSQL; Redis is reached through a proxy that changes its manners. Printed: medians over the rounds of each case's
latency divided by that of the same round with the broker well.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import os
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from urllib.parse import urlsplit

from bench.broker_proxy import BrokerProxy
from dev.children import Printer
from dev.redis import Redis
from dev.stack import Stack

CALLERS = 4
SETTLE_SECONDS = 1.0  # for the first kick of a case to meet the broker as it is now
BOUND = 1.2
Case = Callable[[], AbstractContextManager[None]]


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o711)
        with Redis(folder / "redis") as redis:
            password = urlsplit(redis.url()).password
            proxy = BrokerProxy(redis.port)
            stack = _stack(folder / "run", f"redis://:{password}@127.0.0.1:{proxy.port}/0")
            try:
                stack.start()
                key = stack.create_key("bench")
                rounds = _measure(proxy, urlsplit(stack.urls["API_URL"]).port or 80, key, options)
            finally:
                stack.stop()
    _report(rounds, options.json)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=1000, help="per case and round")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    return parser.parse_args()


def _stack(folder: Path, redis_url: str) -> Stack:
    given = {
        **os.environ,
        "REDIS_URL": redis_url,
        "CREATE_LIMIT": "client=0,caller=0",
        "CLIENT_MAX_WAITING": "0",
        "LOG_FORMAT": "json",
    }
    for other in ("DATABASE_URL", "MAIL_URL"):
        given.pop(other, None)
    return Stack(
        folder, given, printer=Printer(io.StringIO()), stop_asked=threading.Event(), processes=("web",)
    )


def _measure(
    proxy: BrokerProxy, port: int, key: str, options: argparse.Namespace
) -> list[dict[str, dict[str, float]]]:
    cases: dict[str, Case] = {
        "well": nullcontext,
        "stopped": proxy.stopped,
        "frozen": proxy.frozen,
        "black-holed": proxy.black_holed,
    }
    _post_many(port, key, options.requests // 4)  # imports, pools, plans
    rounds = []
    for _ in range(options.rounds):
        seen = {}
        for name, case in cases.items():
            with case():
                _post_many(port, key, CALLERS * 4)
                time.sleep(SETTLE_SECONDS)
                seen[name] = _figures(_post_many(port, key, options.requests))
        rounds.append(seen)
    return rounds


def _post_many(port: int, key: str, count: int) -> list[float]:
    """Milliseconds of each of `count` requests by a few callers, each one after the other."""
    taken: list[float] = []
    callers = [
        threading.Thread(target=_post, args=(port, key, count // CALLERS, taken)) for _ in range(CALLERS)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    if len(taken) < count // CALLERS * CALLERS:
        raise SystemExit("a caller was not answered with 202")
    return taken


def _post(port: int, key: str, count: int, taken: list[float]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for _ in range(count):
        who = uuid.uuid4().hex
        body = json.dumps({"account_id": who, "email": f"{who}@example.com"})
        headers = {
            "Authorization": f"Bearer {key}",
            "Content-Type": "application/json",
            "Idempotency-Key": who,
        }
        started = time.perf_counter()
        connection.request("POST", "/v1/verifications", body, headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 202:
            return
        taken.append((time.perf_counter() - started) * 1000)


def _figures(taken: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(taken, n=100)
    return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98], "max": max(taken)}


def _report(rounds: list[dict[str, dict[str, float]]], path: Path | None) -> None:
    print(
        f"{'broker':12} {'p50':>8} {'p95':>8} {'p99':>8} {'p99 ms':>8} {'max ms':>8}   ratios to the same round's `well`"
    )
    for case in rounds[0]:
        ratios = {
            q: statistics.median(seen[case][q] / seen["well"][q] for seen in rounds)
            for q in ("p50", "p95", "p99")
        }
        p99 = statistics.median(seen[case]["p99"] for seen in rounds)
        worst = max(seen[case]["max"] for seen in rounds)
        verdict = "" if ratios["p99"] <= BOUND else f"   p99 above {BOUND} x"
        print(
            f"{case:12} {ratios['p50']:8.2f} {ratios['p95']:8.2f} {ratios['p99']:8.2f} {p99:8.1f} {worst:8.1f}{verdict}"
        )
    if path is not None:
        path.write_text(json.dumps(rounds, indent=1))


if __name__ == "__main__":
    main()
