"""Celery's settings, each with its reason. A message is a hint without content: losing, repeating or delaying one
changes nothing but latency, so everything here favours speed and a quick end over keeping messages.
"""

from __future__ import annotations

import ssl

from environs import Env, EnvError
from kombu import Exchange, Queue

from db.config import named
from db.errors import ConfigurationError
from tasks.config import sweep_interval

_SOCKET_SECONDS = 2.0


def _redis_url() -> str:
    try:
        url: str = Env().str("REDIS_URL")
    except EnvError as error:
        raise named(error) from None
    if not url.startswith(("redis://", "rediss://")):
        raise ConfigurationError("REDIS_URL must start with redis:// or rediss://")
    return url


broker_url = _redis_url()
if broker_url.startswith("rediss://"):
    # Platforms give a self-signed certificate for a name that is not the host's.
    broker_use_ssl = {"ssl_cert_reqs": ssl.CERT_NONE, "ssl_check_hostname": False}

# kombu passes no time-out of its own on: a frozen Redis would hang its caller for ever.
broker_connection_timeout = _SOCKET_SECONDS
broker_transport_options = {
    "socket_timeout": _SOCKET_SECONDS,
    "socket_connect_timeout": _SOCKET_SECONDS,
    "socket_keepalive": True,
    "health_check_interval": 10,
    "max_retries": 1,
}
# A worker waits for Redis as long as it takes; its own timer sweeps meanwhile.
broker_connection_retry_on_startup = True
broker_connection_max_retries = None
# Sends in flight go on when the broker is lost: the lease protects them, not the message.
worker_cancel_long_running_tasks_on_connection_loss = False
# Celery's own consumer ends the worker when a lost connection cannot be put away in good order.
worker_consumer = "tasks.consumer:SteadyConsumer"

# JSON only, both ways: a pickle in the broker would run code.
task_serializer = "json"
accept_content = ["json"]
# Results live in PostgreSQL.
result_backend = None
task_ignore_result = True
# A kick is done when it was heard; the lease says who works.
task_acks_late = False
worker_prefetch_multiplier = 1
# No ETA, countdown, retry or `expires`: time is PostgreSQL's (G10), and those compare the clocks of two machines.
enable_utc = True
timezone = "UTC"
task_publish_retry = False

# Queues of their own, so that a pile of kicks never delays a sweep.
task_queues = [Queue(name, Exchange(name, type="direct"), routing_key=name) for name in ("sweeps", "kicks")]
task_default_queue = "kicks"
task_default_exchange = "kicks"
task_default_routing_key = "kicks"
task_routes = {"countersign.sweep": {"queue": "sweeps"}, "countersign.deliver": {"queue": "kicks"}}
task_create_missing_queues = False

# Flower shows tasks by these events; a kick has no arguments, so they tell nothing.
worker_send_task_events = True
task_send_sent_event = False
# Logs are ours: structured and redacted (tasks/celery_app.py).
worker_hijack_root_logger = False
worker_redirect_stdouts = False

# The schedule is one entry and lives in memory: no file to corrupt, to lose with a dyno, or to share by mistake.
beat_scheduler = "tasks.beat:OneWaitingSweep"
beat_schedule = {"sweep": {"task": "countersign.sweep", "schedule": sweep_interval()}}
beat_max_loop_interval = min(5.0, sweep_interval())
