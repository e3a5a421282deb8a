"""Run the process of the API server: `python -m tokenpipe.api --fd N`. `serve` starts it.

$TOKENPIPE_TOPOLOGY is the topology as JSON, $TOKENPIPE_ENDPOINT the instance's directory. The exit
status is 0 after a signal, and 3 if the server did not start.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Sequence

from tokenpipe.errors import TokenpipeError
from tokenpipe.instance import ENDPOINT_VARIABLE
from tokenpipe.logs import set_up_logs
from tokenpipe.notify import Notifier, set_title
from tokenpipe.topology import Topology

from .settings import ApiSettings
from .start import run_api

ERROR_LOGGERS = ("uvicorn", "uvicorn.error", "gunicorn.error")
ACCESS_LOGGERS = ("uvicorn.access",)
_log = logging.getLogger("tokenpipe.api")


def main(argv: Sequence[str]) -> int:
    """Serve the socket; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tokenpipe.api", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="the listening socket")
    parser.add_argument(
        "--plain-text", action="store_true", help="prompts may be text without a tokenizer"
    )
    parser.add_argument(
        "--deadline", type=float, help="monotonic time at which the start must be over"
    )
    args = parser.parse_args(argv)
    set_title("tp:api 0")
    topology = Topology.from_json_dict(json.loads(os.environ.pop("TOKENPIPE_TOPOLOGY", "{}")))
    name, log = topology.name or "", topology.log
    also = ERROR_LOGGERS + ACCESS_LOGGERS * topology.api.access_log
    set_up_logs("api", "0", instance=name, also=also, form=log.format, level=log.level)
    notifier = Notifier.inherited()
    settings = ApiSettings(
        topology=topology,
        endpoint=os.environ[ENDPOINT_VARIABLE],
        fd=args.fd,
        plain_text=args.plain_text,
        deadline=args.deadline or time.monotonic() + topology.timeouts.startup_s,
        notifier=notifier,
    )
    try:
        return run_api(settings)
    except TokenpipeError as error:
        _log.error("%s: %s", type(error).__name__, error)
        notifier.failed(f"{type(error).__name__}: {error}")
        return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
