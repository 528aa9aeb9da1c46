// A client's grammar, compiled and ready for the last stage.
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

// A step may register all choices of a request at once, each with the grammar.
inline constexpr size_t kMaxGrammarBytesOfChoices = 8 << 20;

// What an error of GrammarUse::or_calls begins with.
inline constexpr std::string_view kCallsField = "tools: ";

// What a request's grammar is besides its source; no client says it.
struct GrammarUse {
  std::string_view begins_after = {};  // as in text::GrammarSource
  // Made here, of tools, some of which may not be strict.
  bool may_be_lenient = false;
  // Calls of tools, in Lark, which the text may be in place of what the client's grammar says.
  std::string or_calls = {};
};

// Fills in slot.grammar and adds what ends it to slot.stop_ids. Compiles, which takes up to some
// seconds: not for a thread that others wait for. INVALID_ARGUMENT names the field, as in
// "sampling.grammar.json_schema: ..."; UNAVAILABLE when the last stage cannot be asked.
absl::Status ResolveGrammar(const ServedModel& model, const v1::SamplingParams& params,
                            const GrammarUse& use, v1::SlotSampling& slot);

v1::SlotGrammar ToProto(const text::GrammarSource& source);
v1::TokenTable ToProto(const text::TokenTable& table);

}  // namespace stagecoach::router
