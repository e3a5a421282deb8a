"""Act as one API server: submit requests on time and check each token that comes back.

`python -m tokenpipe.bench.client --requests FILE --report FILE` is one client of a bench run. With
`--consume columns` it reads whole frames, with `streams` each request has an async consumer.
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
    parser.add_argument("--endpoint", help="instance directory (default: $TOKENPIPE_ENDPOINT)")
    parser.add_argument("--name", default="bench", help="name of this client")
    parser.add_argument("--requests", type=Path, required=True, help="JSON file with the requests")
    parser.add_argument("--report", type=Path, required=True, help="JSON file to write at the end")
    parser.add_argument("--consume", choices=("columns", "streams"), default="columns")
    parser.add_argument("--token-count", type=Path, help="file for the number of tokens so far")
    parser.add_argument("--logprobs", type=int, help="number of top logprobs to ask for")
    parser.add_argument("--bits", type=int, default=VOCAB_BITS, help="bits of the oracle's tokens")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for a row")
    parser.add_argument("--text", action="store_true", help="ask for text, and check it")
    parser.add_argument("--pin", type=int, help="CPU to run on")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run one client. Wrong tokens are in the report; the exit status says nothing about them."""
    args = parse(argv)
    if args.pin is not None:
        pin(args.pin)
    requests = [PlannedRequest(*request) for request in json.loads(args.requests.read_text())]
    counter = TokenCounter(args.token_count)
    results = ClientResults(requests, args.logprobs, args.bits, args.text, counter)
    gc.collect()
    gc.freeze()
    meter = UsageMeter.start()
    if args.consume == "columns":
        with Client(args.endpoint, name=args.name) as client:
            meter = UsageMeter.start()
            ColumnReader(client, results, args.patience).run()
    else:
        asyncio.run(_read_streams(args, results))
    args.report.write_text(json.dumps({**results.report(), **meter.spent()}))
    return 0


async def _read_streams(args: argparse.Namespace, results: ClientResults) -> None:
    async with AsyncClient(args.endpoint, name=args.name) as client:
        await StreamReader(client, results, args.patience).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
