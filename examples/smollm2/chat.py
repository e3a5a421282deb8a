"""Chat in the terminal: `python -m examples.smollm2.chat`, or `make demo`.

The engine runs in a thread of this process, its workers in processes of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
from collections import Counter

from tokenpipe import AsyncClient, SamplingParams

from .engine import Engine, Options
from .tokenizer import Chat

MAX_TOKENS = 256


class EngineThread(threading.Thread):
    """Make an engine and serve until `end` is called. `error` has what ended it before."""

    def __init__(self, options: Options) -> None:
        super().__init__(name="engine")
        self._options = options
        self._stopping = threading.Event()
        self.up = threading.Event()
        self.endpoint = ""
        self.counts = Counter[str]()
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Make the engine and serve."""
        try:
            with Engine(self._options) as engine:
                self.endpoint = engine.pipe.endpoint
                self.counts = engine.scheduler.counts
                self.up.set()
                engine.serve(self._stopping.is_set)
        except BaseException as error:
            self.error = error
        finally:
            self.up.set()

    def wait_up(self) -> str:
        """Wait until the engine serves and return its endpoint. Raises what ended the engine."""
        self.up.wait()
        if self.error is not None:
            raise self.error
        return self.endpoint

    def end(self) -> None:
        """Stop serving."""
        self._stopping.set()
        self.join()


async def answer(
    client: AsyncClient, chat: Chat, messages: list[dict[str, str]], temperature: float
) -> str:
    """Stream one answer to the terminal and return it."""
    prompt = chat.prompt(messages)
    params = SamplingParams(max_tokens=MAX_TOKENS, temperature=temperature, top_p=0.9)
    texts = list[str]()
    async for output in client.generate(prompt, params):
        texts.append(output.text)
        print(output.text, end="", flush=True)
        if output.error:
            print(f"[{output.error}]", end="")
    print(flush=True)
    return "".join(texts)


async def talk(endpoint: str, chat: Chat, questions: list[str], temperature: float) -> None:
    """Answer the questions of the command line, or else those that are typed."""
    messages: list[dict[str, str]] = []
    async with AsyncClient(endpoint, name="chat") as client:
        while True:
            if questions:
                question = questions.pop(0)
                print(f"> {question}")
            elif messages and not sys.stdin.isatty():
                return
            else:
                question = await asyncio.to_thread(_typed)
            if not question:
                return
            messages.append({"role": "user", "content": question})
            said = await answer(client, chat, messages, temperature)
            messages.append({"role": "assistant", "content": said})
            while len(chat.prompt(messages)) > Options.room - MAX_TOKENS - 64:
                del messages[:2]  # drop the oldest question and answer


def _typed() -> str:
    try:
        return input("> ").strip()
    except EOFError:
        return ""


def main() -> int:
    """Start the engine, chat, end the engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "question", nargs="*", help="ask this and end; without it, type questions; Ctrl-D ends"
    )
    parser.add_argument("--dp", type=int, default=1, help="data-parallel ranks")
    parser.add_argument("--temperature", type=float, default=0.2, help="0 is greedy")
    args = parser.parse_args()
    print("Starting the engine. The first start unpacks the weights ...", flush=True)
    engine = EngineThread(Options(dp=args.dp))
    try:
        asyncio.run(talk(engine.wait_up(), Chat(), args.question, args.temperature))
    except KeyboardInterrupt:
        print()
    finally:
        engine.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
