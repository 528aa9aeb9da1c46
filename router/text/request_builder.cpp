#include "router/text/request_builder.h"

#include <fmt/format.h>

#include <new>
#include <utility>

#include "common/status.h"
#include "common/text/utf8.h"
#include "router/access/request_id.h"
#include "router/text/chat.h"
#include "router/text/chat_output.h"
#include "router/text/error_code.h"
#include "router/text/text_memory.h"

namespace stagecoach::router {
namespace {

absl::Status CheckBytes(const char* field, const std::string& value, size_t most) {
  if (value.size() > most) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {} bytes; at most {} are allowed", field, value.size(), most));
  }
  return absl::OkStatus();
}

template <typename Request>
absl::Status CheckRequest(const ServedModel& model, const Request& request) {
  SC_RETURN_IF_ERROR(CheckModelName(model, request.model()));
  if (model.spec.pooling) {
    return absl::InvalidArgumentError(
        fmt::format("model: '{}' is an embedding model, which generates no text; use "
                    "/v1/embeddings, or Embed over gRPC",
                    model.name));
  }
  return CheckNames(request.request_id(), request.cache_salt());
}

absl::StatusOr<std::vector<int32_t>> PromptIds(const ServedModel& model,
                                               const v1::GenerateRequest& request) {
  if (request.has_tokens()) {
    const auto& ids = request.tokens().ids();
    SC_RETURN_IF_ERROR(CheckIds(model, {ids.data(), size_t(ids.size())}, "tokens.ids"));
    return std::vector<int32_t>(ids.begin(), ids.end());
  }
  if (!request.has_text()) return std::vector<int32_t>();
  return EncodePrompt(model, "text", request.text(),
                      !request.has_add_special_tokens() || request.add_special_tokens());
}

absl::StatusOr<GenerationInput> Complete(const ServedModel& model, std::vector<int32_t> prompt,
                                         const v1::SamplingParams& sampling,
                                         const GrammarUse& grammar_use = {}) {
  if (prompt.empty()) return absl::InvalidArgumentError("prompt: is empty");
  GenerationInput input;
  SC_ASSIGN_OR_RETURN(input.sampling, ResolveSampling(model, sampling, prompt.size(), grammar_use));
  input.prompt = std::make_shared<const std::vector<int32_t>>(std::move(prompt));
  return input;
}

// The mark behind which a grammar applies: where the reasoning ends.
std::string_view GrammarBegin(const OutputFormat& output, bool calls_alone) {
  // A grammar of Harmony's calls covers what precedes them, and a begun message is the last one.
  if (output.harmony) return calls_alone || !output.harmony->empty() ? "" : kHarmonyFinal;
  return output.reasoning_place == ReasoningPlace::kInside ? output.reasoning_marks.end : "";
}

}  // namespace

absl::Status NoMemory() {
  return absl::ResourceExhaustedError("the server has no memory for this request; try again later");
}

absl::Status CheckNames(const std::string& request_id, const std::string& cache_salt) {
  SC_RETURN_IF_ERROR(CheckRequestId(request_id));
  return CheckBytes("cache_salt", cache_salt, kMaxCacheSaltBytes);
}

absl::StatusOr<std::vector<int32_t>> EncodePrompt(const ServedModel& model, std::string_view field,
                                                  const std::string& text, bool add_special) {
  SC_RETURN_IF_ERROR(CheckTextLength(model, field, text.size()));
  SC_RETURN_IF_ERROR(text::CheckUtf8(field, text));
  SC_ASSIGN_OR_RETURN(const TextMemory memory, TextMemory::Reserve(model, field, text.size()));
  SC_ASSIGN_OR_RETURN(std::vector<int32_t> ids, model.tokenizer->Encode(text, add_special));
  SC_RETURN_IF_ERROR(CheckIds(model, ids, fmt::format("{}, as tokens", field)));
  return ids;
}

absl::StatusOr<GenerationInput> BuildPooled(const ServedModel& model, std::string_view field,
                                            std::vector<int32_t> prompt, v1::SlotPooling pooling,
                                            int32_t priority, const std::string& cache_salt) {
  if (prompt.empty()) return absl::InvalidArgumentError(fmt::format("{}: is empty", field));
  if (std::cmp_greater_equal(prompt.size(), model.max_model_len)) {
    return WithErrorCode(
        absl::InvalidArgumentError(fmt::format("{}: {} tokens; at most {} are possible (one less "
                                               "than the maximum context length)",
                                               field, prompt.size(), model.max_model_len - 1)),
        kContextLengthExceeded);
  }
  v1::SamplingParams greedy;
  greedy.set_temperature(0);
  greedy.set_max_tokens(1);
  SC_ASSIGN_OR_RETURN(GenerationInput input, Complete(model, std::move(prompt), greedy));
  *input.sampling.slot.mutable_pooling() = std::move(pooling);
  input.priority = priority;
  input.cache_salt = cache_salt;
  return input;
}

absl::StatusOr<GenerationInput> BuildGeneration(const ServedModel& model,
                                                const v1::GenerateRequest& request) try {
  SC_RETURN_IF_ERROR(CheckRequest(model, request));
  SC_ASSIGN_OR_RETURN(std::vector<int32_t> prompt, PromptIds(model, request));
  SC_ASSIGN_OR_RETURN(OutputFormat output, PlainOutput(request));
  SC_ASSIGN_OR_RETURN(GenerationInput input,
                      Complete(model, std::move(prompt), request.sampling()));
  input.output = std::move(output);
  input.priority = request.priority();
  input.cache_salt = request.cache_salt();
  input.skip_special_tokens = !request.has_skip_special_tokens() || request.skip_special_tokens();
  if (request.echo()) {
    if (request.has_text()) {
      input.prompt_text = request.text();
    } else {
      SC_ASSIGN_OR_RETURN(input.prompt_text,
                          model.tokenizer->Decode(*input.prompt, input.skip_special_tokens));
    }
  }
  return input;
} catch (const std::bad_alloc&) {
  return NoMemory();
}

absl::StatusOr<GenerationInput> BuildGeneration(const ServedModel& model,
                                                const v1::ChatRequest& request,
                                                std::optional<int64_t> unix_s) try {
  SC_RETURN_IF_ERROR(CheckRequest(model, request));
  SC_ASSIGN_OR_RETURN(ChatPrompt chat, RenderChat(model, request, unix_s));
  SC_ASSIGN_OR_RETURN(OutputFormat output, ChatOutput(model, request, chat));
  SC_ASSIGN_OR_RETURN(const ToolUse tools, ReadToolUse(model, request, chat));
  v1::SamplingParams sampling = request.sampling();
  GrammarUse grammar_use{.begins_after = GrammarBegin(output, tools.calls_alone)};
  if (tools.calls_alone) {
    sampling.mutable_grammar()->set_lark(tools.calls);
    grammar_use.may_be_lenient = true;
  } else {
    grammar_use.or_calls = tools.calls;
  }
  auto completed = Complete(model, std::move(chat.ids), sampling, grammar_use);
  if (!completed.ok()) {
    return tools.calls.empty() ? completed.status()
                               : InTermsOfTools(model, tools, completed.status());
  }
  GenerationInput input = *std::move(completed);
  input.output = std::move(output);
  input.priority = request.priority();
  input.cache_salt = request.cache_salt();
  input.skip_special_tokens = !request.has_skip_special_tokens() || request.skip_special_tokens();
  return input;
} catch (const std::bad_alloc&) {
  return NoMemory();
}

bool NeedsGrammar(const v1::GenerateRequest& request) { return request.sampling().has_grammar(); }

bool NeedsGrammar(const v1::ChatRequest& request) {
  const v1::ToolChoice::Mode mode = request.tool_choice().mode();
  return request.sampling().has_grammar() || mode == v1::ToolChoice::REQUIRED ||
         mode == v1::ToolChoice::NAMED;
}

void KeepToOwner(std::string_view owner, GenerationInput& input) {
  // What is kept from nobody has no salt, and may be published.
  if (owner.empty() && input.cache_salt.empty()) return;
  input.cache_salt = fmt::format("{}\n{}", owner, input.cache_salt);
}

std::vector<std::unique_ptr<SequenceRequest>> MakeSequences(const GenerationInput& input) {
  std::vector<std::unique_ptr<SequenceRequest>> sequences;
  for (uint32_t choice = 0; choice < input.sampling.n; ++choice) {
    auto sequence = std::make_unique<SequenceRequest>();
    sequence->prompt = input.prompt;
    sequence->sampling = input.sampling.slot;
    sequence->sampling.set_seed(ChoiceSeed(input.sampling.slot.seed(), choice));
    if (choice > 0) sequence->sampling.set_n_prompt_logprobs(-1);
    sequence->max_tokens = input.sampling.max_tokens;
    sequence->priority = input.priority;
    sequence->cache_salt = input.cache_salt;
    sequences.push_back(std::move(sequence));
  }
  return sequences;
}

}  // namespace stagecoach::router
