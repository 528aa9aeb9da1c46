// Compiles a client's grammar for the last stage.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/text/grammar.h"
#include "router/text/served_model.h"
#include "stagecoach/v1/inference.pb.h"
#include "stagecoach/v1/stage.pb.h"
#include "stagecoach/v1/step.pb.h"

namespace stagecoach::router {

// Limit of the grammar bytes of all choices of a request: one step may register all of them, each
// with its own copy.
inline constexpr size_t kMaxGrammarBytesOfChoices = 8 << 20;

// Prefix of errors about GrammarUse::or_calls.
inline constexpr std::string_view kCallsField = "tools: ";

// Properties of a request's grammar that the router sets, not the client.
struct GrammarUse {
  std::string_view begins_after = {};  // as in text::GrammarSource
  // The grammar was made from tools, some of which may not be strict.
  bool may_be_lenient = false;
  // Lark grammar of tool calls. The text may match it instead of the client's grammar.
  std::string or_calls = {};
};

// Fills in slot.grammar, and adds its end ids to slot.stop_ids. Compiles the grammar, which may
// take seconds, so do not call it on a thread that others wait for. INVALID_ARGUMENT names the
// field, as in "sampling.grammar.json_schema: ..."; UNAVAILABLE if the last stage cannot be
// reached.
absl::Status ResolveGrammar(const ServedModel& model, const v1::SamplingParams& params,
                            const GrammarUse& use, v1::SlotSampling& slot);

v1::SlotGrammar ToProto(const text::GrammarSource& source);
v1::TokenTable ToProto(const text::TokenTable& table);

}  // namespace stagecoach::router
