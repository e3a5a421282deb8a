"""The fields of OpenAI's and vLLM's requests that this server does not serve.

A field that would change the response is refused by name. It is never ignored. An engine that
declares a field gets it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from .problems import Problem

# Fields that would change the response, and their values that change nothing. Null does neither.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    # OpenAI's
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "moderation": (),
    "prediction": (),
    "presence_penalty": (0,),
    "reasoning_effort": (),
    "response_format": ({"type": "text"},),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "verbosity": ("medium",),
    "web_search_options": (),
    # vLLM's
    "allowed_token_ids": (),
    "bad_words": ([],),
    "cache_salt": (),
    "chat_template": (),
    "documents": ([],),
    "early_stopping": (False,),
    "ec_transfer_params": ({},),
    "guided_choice": ([],),
    "guided_decoding_backend": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_whitespace_pattern": (),
    "include_reasoning": (True,),
    "kv_transfer_params": ({},),
    "length_penalty": (1,),
    "logits_processors": ([],),
    "logprob_token_ids": (),
    "lora_name": (),
    "lora_path": (),
    "media_io_kwargs": ({},),
    "mm_processor_kwargs": ({},),
    "priority": (0,),
    "prompt_embeds": (),
    "repetition_detection": (),
    "repetition_penalty": (1,),
    "return_prompt_text": (False,),
    "routed_experts_prompt_start": (0,),
    "structural_tag": (),
    "structured_outputs": (),
    "thinking_token_budget": (-1,),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
    "vllm_xargs": ({},),
    "watermarking": (False,),
    # SGLang's
    "custom_logit_processor": (),
    "ebnf": (),
    "json_schema": (),
    "no_stop_trim": (False,),
    "regex": (),
    "return_hidden_states": (False,),
}

WITHOUT_EFFECT = frozenset(
    {
        "metadata",
        "parallel_tool_calls",  # without tools
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "return_mm_kwargs",
        "return_token_offsets",
        "safety_identifier",
        "service_tier",
        "session_id",
        "store",
        "truncation_side",  # without truncate_prompt_tokens
        "user",
    }
)
"""Known fields that change no response of this server. They are ignored, as unknown fields are."""


def refuse_unserved(
    more: Mapping[str, Any], declared: Collection[str], of_others: Collection[str]
) -> None:
    """Raise Problem, a 400 that names the field, for a field that would change the response.

    Args:
        more: the fields of the body that its endpoint does not have.
        declared: the fields that the engine accepts.
        of_others: the fields that another endpoint has.
    """
    for name, value in more.items():
        if value is None or name in declared:
            continue
        if name in of_others:
            what = f"{name}: not a field of this endpoint"
        elif name in NEUTRAL and value not in NEUTRAL[name]:
            what = f"{name}: not supported"
        else:
            continue
        raise Problem(400, what, param=name, code="unsupported")
