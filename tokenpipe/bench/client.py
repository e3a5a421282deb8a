"""Play one API server: submit a share of the trace, check every token that comes back.

`python -m tokenpipe.bench.client --work FILE --report FILE` is what the bench starts, one process a
client. `--consume columns` reads whole frames, `streams` gives each request an async consumer.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
from pathlib import Path

from tokenpipe.client import AsyncClient, Client

from .client_results import ClientResults, PlannedRequest
from .column_reader import ColumnReader
from .oracle import VOCAB_BITS
from .process_usage import UsageMeter, pin
from .progress import TokenCounter
from .stream_reader import StreamReader


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line of a client."""
    parser = argparse.ArgumentParser(prog="python -m tokenpipe.bench.client", description=__doc__)
    parser.add_argument("--endpoint", help="instance directory; default $TOKENPIPE_ENDPOINT")
    parser.add_argument("--name", default="bench")
    parser.add_argument("--work", type=Path, required=True, help="requests, as JSON")
    parser.add_argument("--report", type=Path, required=True, help="file for what came, as JSON")
    parser.add_argument("--consume", choices=("columns", "streams"), default="columns")
    parser.add_argument("--tally", type=Path, help="file for how many tokens came so far")
    parser.add_argument("--logprobs", type=int, help="top-k logprobs to ask for")
    parser.add_argument("--bits", type=int, default=VOCAB_BITS, help="of the oracle's tokens")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds of silence")
    parser.add_argument("--text", action="store_true", help="want text, and check it")
    parser.add_argument("--pin", type=int, help="CPU to run on")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run one client; the exit status says nothing about tokens, the report does."""
    args = parse(argv)
    if args.pin is not None:
        pin(args.pin)
    work = [PlannedRequest(*request) for request in json.loads(args.work.read_text())]
    me = ClientResults(work, args.logprobs, args.bits, args.text, TokenCounter(args.tally))
    gc.collect()
    gc.freeze()
    meter = UsageMeter.start()
    if args.consume == "columns":
        with Client(args.endpoint, name=args.name) as client:
            meter = UsageMeter.start()
            ColumnReader(client, me, args.patience).run()
    else:
        asyncio.run(_all_streams(args, me))
    args.report.write_text(json.dumps({**me.report(), **meter.spent()}))
    return 0


async def _all_streams(args: argparse.Namespace, me: ClientResults) -> None:
    async with AsyncClient(args.endpoint, name=args.name) as client:
        await StreamReader(client, me, args.patience).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
