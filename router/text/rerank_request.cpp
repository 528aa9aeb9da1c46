#include "router/text/rerank_request.h"

#include <fmt/format.h>

#include <cmath>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"
#include "common/text/utf8.h"
#include "router/text/embed_request.h"
#include "router/text/text_memory.h"

namespace stagecoach::router {
namespace {

// The prompt that the model was trained with, in the words of its model card.
constexpr std::string_view kBegin =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n<Instruct>: ";
constexpr std::string_view kInstruction =
    "Given a web search query, retrieve relevant passages that answer the query";
constexpr std::string_view kBeforeQuery = "\n<Query>: ";
constexpr std::string_view kBeforeDocument = "\n<Document>: ";
constexpr std::string_view kEnd = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

constexpr std::string_view kTokens[] = {"yes", "no", "<|im_start|>", "<|im_end|>"};

absl::StatusOr<std::vector<int32_t>> Encode(const ServedModel& model, const std::string& field,
                                            const v1::RerankRequest& request,
                                            const std::string& document) {
  std::string text(kBegin);
  std::vector<text::TextRange> plain;
  // What people wrote stays text, also where it spells a special token.
  const auto add = [&](std::string_view written) {
    plain.push_back({text.size(), text.size() + written.size()});
    text += written;
  };
  add(request.instruction().empty() ? kInstruction : std::string_view(request.instruction()));
  text += kBeforeQuery;
  add(request.query());
  text += kBeforeDocument;
  add(document);
  text += kEnd;
  SC_RETURN_IF_ERROR(CheckTextLength(model, field, text.size()));
  SC_ASSIGN_OR_RETURN(const TextMemory memory, TextMemory::Reserve(model, field, text.size()));
  return model.tokenizer->EncodeRendered(text, plain);
}

}  // namespace

absl::Status CheckRerank(const ServedModel& model, const v1::RerankRequest& request) {
  SC_RETURN_IF_ERROR(CheckModelName(model, request.model()));
  SC_RETURN_IF_ERROR(CheckNames(request.request_id(), request.cache_salt()));
  const auto refuse = [&model](std::string_view why) {
    return absl::InvalidArgumentError(fmt::format(
        "model: '{}' {}; reranking needs a model like Qwen3-Reranker", model.name, why));
  };
  if (model.spec.pooling) return refuse("is an embedding model");
  if (model.spec.architecture != "Qwen3ForCausalLM") {
    return refuse(fmt::format("is of the architecture {}", model.spec.architecture));
  }
  for (const std::string_view token : kTokens) {
    if (!model.tokenizer->TokenId(token)) return refuse(fmt::format("has no token \"{}\"", token));
  }
  SC_RETURN_IF_ERROR(text::CheckUtf8("query", request.query()));
  SC_RETURN_IF_ERROR(text::CheckUtf8("instruction", request.instruction()));
  if (request.query().empty()) return absl::InvalidArgumentError("query: is empty");
  if (request.documents().empty()) return absl::InvalidArgumentError("documents: is empty");
  if (request.documents_size() > kMaxPooledInputs) {
    return absl::InvalidArgumentError(
        fmt::format("documents: {} documents; at most {} are allowed in one request",
                    request.documents_size(), kMaxPooledInputs));
  }
  return absl::OkStatus();
}

absl::StatusOr<GenerationInput> BuildRerank(const ServedModel& model,
                                            const v1::RerankRequest& request, size_t i) try {
  const std::string& document = request.documents(static_cast<int>(i));
  const std::string field = fmt::format("documents[{}]", i);
  SC_RETURN_IF_ERROR(text::CheckUtf8(field, document));
  SC_ASSIGN_OR_RETURN(std::vector<int32_t> ids, Encode(model, field, request, document));
  SC_RETURN_IF_ERROR(CheckIds(model, ids, field));
  v1::SlotPooling pooling;
  pooling.set_what(v1::SlotPooling::LOGITS);
  pooling.add_logit_ids(*model.tokenizer->TokenId("yes"));
  pooling.add_logit_ids(*model.tokenizer->TokenId("no"));
  return BuildPooled(model, field, std::move(ids), std::move(pooling), request.priority(),
                     request.cache_salt());
} catch (const std::bad_alloc&) {
  return NoMemory();
}

float RerankScore(std::span<const float> values) {
  return static_cast<float>(1 / (1 + std::exp(double{values[1]} - double{values[0]})));
}

}  // namespace stagecoach::router
