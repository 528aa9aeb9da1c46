#include "router/text/chat_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"
#include "common/text/grammar.h"
#include "router/text/grammar_params.h"
#include "router/text/schema_check.h"
#include "router/text/schema_words.h"
#include "router/text/tool_call_ids.h"
#include "router/text/tool_grammar.h"

namespace stagecoach::router {
namespace {

constexpr std::string_view kLarkField = "sampling.grammar.lark: ";
constexpr std::string_view kHarmonyBegin = "<|start|>assistant";

absl::Status ReadJsonEvents(const v1::JsonEvents& events, const v1::SamplingParams& sampling,
                            OutputFormat* format) {
  const std::vector<std::string> paths(events.paths().begin(), events.paths().end());
  auto parsed = JsonPaths::Parse(paths);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        fmt::format("json_events.{}", std::string(parsed.status().message())));
  }
  format->json_events = *std::move(parsed);
  const bool all_is_json =
      format->separate_reasoning || format->reasoning_place != ReasoningPlace::kInside;
  if (all_is_json &&
      (sampling.grammar().has_json_schema() || sampling.grammar().has_json_object())) {
    format->json_source = JsonEventParser::Source::kConstrained;
  }
  return absl::OkStatus();
}

ReasoningPlace EndOf(std::string_view prompt, const ReasoningMarks& marks) {
  prompt = prompt.substr(0, prompt.find_last_not_of(" \t\r\n") + 1);
  if (prompt.ends_with(marks.begin)) return ReasoningPlace::kInside;
  return prompt.ends_with(marks.end) ? ReasoningPlace::kBehind : ReasoningPlace::kBefore;
}

// What follows the last `mark`; "" if there is none.
std::string BehindLast(std::string_view text, std::string_view mark) {
  const size_t at = text.rfind(mark);
  return at == std::string_view::npos ? "" : std::string(text.substr(at + mark.size()));
}

uint32_t NextCallNumber(ToolFamily family, const v1::ChatRequest& request) {
  ToolCallIds ids(family);
  for (const v1::ChatMessage& message : request.messages()) {
    for (const v1::ToolCall& call : message.tool_calls()) ids.OfCall(call.id(), call.name());
  }
  return ids.next_number();
}

}  // namespace

absl::StatusOr<ToolUse> ReadToolUse(const ServedModel& model, const v1::ChatRequest& request,
                                    const ChatPrompt& prompt) {
  const v1::ToolChoice& choice = request.tool_choice();
  if (!v1::ToolChoice::Mode_IsValid(choice.mode())) {
    return absl::InvalidArgumentError("tool_choice.mode: is unknown");
  }
  const bool named = choice.mode() == v1::ToolChoice::NAMED;
  ToolUse use{.tools = prompt.tools};
  use.calls_alone = named || choice.mode() == v1::ToolChoice::REQUIRED;
  if (use.calls_alone && use.tools.empty()) {
    return absl::InvalidArgumentError("tool_choice: the request has no tools");
  }
  if (named) {
    std::erase_if(use.tools, [&](const ToolSpec& tool) { return tool.name != choice.name(); });
    if (use.tools.empty()) {
      return absl::InvalidArgumentError(
          fmt::format("tool_choice.name: the request has no tool '{}'", choice.name()));
    }
  }
  if (use.tools.empty() || (!use.calls_alone && !request.sampling().has_grammar())) return use;
  // Optional calls follow a schema strictly only if the tool says so.
  for (ToolSpec& tool : use.tools) tool.strict = tool.strict.value_or(use.calls_alone);
  const bool parallel = !request.has_parallel_tool_calls() || request.parallel_tool_calls();
  SC_ASSIGN_OR_RETURN(const std::string grammar,
                      ToolGrammar(prompt.family, use.tools, parallel && !named, *model.tokenizer));
  use.calls = std::string(text::kOwnGrammarMark) + grammar;
  return use;
}

absl::Status InTermsOfTools(const ServedModel& model, const ToolUse& use,
                            const absl::Status& status) {
  std::string_view message(status.message().data(), status.message().size());
  const std::string_view field = use.calls_alone ? kLarkField : kCallsField;
  if (!message.starts_with(field) || !model.grammars.ok()) return status;
  message.remove_prefix(field.size());
  for (const ToolSpec& tool : use.tools) {
    const text::GrammarSource alone{.kind = text::GrammarKind::kLark,
                                    .text = ArgumentsGrammar(tool)};
    absl::Status wrong = CheckSchemas(alone, /*may_be_lenient=*/true);
    if (wrong.ok()) wrong = (*model.grammars)->Get(alone).status();
    if (wrong.ok()) continue;
    const std::string_view words(wrong.message().data(), wrong.message().size());
    return absl::Status(wrong.code(), fmt::format("{}.function.parameters: {}", tool.place,
                                                  InSchemaTerms(tool.parameters, words)));
  }
  return absl::Status(status.code(), fmt::format("{}{}", kCallsField, message));
}

absl::StatusOr<OutputFormat> ChatOutput(const ServedModel& model, const v1::ChatRequest& request,
                                        const ChatPrompt& prompt) {
  OutputFormat format;
  const bool is_harmony = prompt.family == ToolFamily::kHarmony;
  format.separate_reasoning = (model.has_reasoning || is_harmony) &&
                              (!request.has_separate_reasoning() || request.separate_reasoning());
  format.reasoning_marks = model.reasoning_marks;
  if (is_harmony) {
    format.harmony = BehindLast(prompt.text, kHarmonyBegin);
  } else if (model.has_reasoning) {
    format.reasoning_place = EndOf(prompt.text, model.reasoning_marks);
  }
  if (!prompt.tools.empty()) {
    ToolCallParser::Options& tools = format.tools.emplace();
    tools.family = prompt.family;
    auto schemas = std::make_shared<ToolSchemaList>();
    for (const ToolSpec& tool : prompt.tools) schemas->emplace_back(tool.name, tool.parameters);
    tools.tools = std::move(schemas);
    tools.parallel = !request.has_parallel_tool_calls() || request.parallel_tool_calls();
    tools.first_number = NextCallNumber(prompt.family, request);
  }
  if (format.separate_reasoning || format.tools || is_harmony) {
    format.shown_specials = SpelledSpecials(prompt.family, *model.tokenizer);
  }
  if (request.has_json_events()) {
    SC_RETURN_IF_ERROR(ReadJsonEvents(request.json_events(), request.sampling(), &format));
  }
  return format;
}

absl::StatusOr<OutputFormat> PlainOutput(const v1::GenerateRequest& request) {
  OutputFormat format;
  if (request.has_json_events()) {
    SC_RETURN_IF_ERROR(ReadJsonEvents(request.json_events(), request.sampling(), &format));
  }
  return format;
}

}  // namespace stagecoach::router
