// The JSON object of `generate --json` and of each line of `batch`:
//
//   prompt_ids       token ids of the prompt
//   prompt           its text, with --echo
//   prompt_logprobs  with --prompt-logprobs: null for the first token, then one object for each
//   token_ids, text, finish_reason ("stop" | "length"), stop_reason (the stop string or stop token
//   of the request's that ended it, else null) logprobs         with --logprobs: one object for
//   each token usage            {prompt_tokens, completion_tokens} timing           {queue_ms,
//   ttft_ms, total_ms, preemptions}, measured by the server
//
// An object of logprobs is {token_id, token, logprob, top: [{token_id, token, logprob}, ...]}. A
// token that is not whole characters has U+FFFD in `token` and its bytes, as numbers, in `bytes`.
// With several choices, token_ids to logprobs stand in a list "choices", each with its "index".
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <string>
#include <string_view>

#include "cli/completion.h"

namespace stagecoach::cli {

boost::json::object ToJson(const Completion& completion, const v1::SamplingParams& sampling);

// What of the request's stop strings and stop tokens `reason` is; else null, as for EOS.
boost::json::value StopReasonJson(const v1::SamplingParams& sampling, const std::string& reason);

// `bytes` with U+FFFD for each byte that is not part of a whole UTF-8 character.
std::string ToValidUtf8(std::string_view bytes);

}  // namespace stagecoach::cli
