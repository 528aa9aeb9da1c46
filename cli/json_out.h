// The JSON object of `generate --json` and of each line of `batch`:
//
//   request_id       if the server sent one
//   prompt_ids       token ids of the prompt
//   prompt           text of the prompt, with --echo
//   prompt_logprobs  with --prompt-logprobs: null for the first token, then one object per token
//   token_ids, text
//   finish_reason    "stop" | "length" | "tool_calls"
//   stop_reason      the stop string or stop token of the request that ended it, else null
//   logprobs         with --logprobs: one object per token
//   usage            {prompt_tokens, completion_tokens, cached_tokens, stored_tokens: {host, disk,
//                    store}}; the last are the part of cached_tokens that came from host memory,
//                    disk and store, over gRPC only
//   timing           {queue_ms, ttft_ms, total_ms, preemptions}, measured by the server
//
// An object of logprobs is {token_id, token, logprob, top: [{token_id, token, logprob}, ...]}. If a
// token is not whole UTF-8 characters, `token` contains U+FFFD and `bytes` has its bytes as
// numbers. With several choices, the fields from token_ids to logprobs are in a list "choices", one
// object per choice, each with its "index".
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <string>
#include <string_view>

#include "cli/completion.h"

namespace stagecoach::cli {

boost::json::object ToJson(const Completion& completion, const v1::SamplingParams& sampling);

// The stop string or stop token of the request that equals `reason`; null if there is none, as for
// EOS.
boost::json::value StopReasonJson(const v1::SamplingParams& sampling, const std::string& reason);

// Replaces each byte that is not part of a whole UTF-8 character with U+FFFD.
std::string ToValidUtf8(std::string_view bytes);

}  // namespace stagecoach::cli
