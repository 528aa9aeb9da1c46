// Parses the bodies of /v1/embeddings (OpenAI's) and /v1/rerank (Jina's and Cohere's), and formats
// the answers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router::http {

struct EmbeddingsForm {
  v1::EmbedRequest request;
  bool base64 = false;  // vectors as little-endian float32 in base64; else arrays of numbers
};

struct RerankForm {
  v1::RerankRequest request;
  std::optional<size_t> top_n;  // so many results; absent: all
  bool return_documents = true;
};

// INVALID_ARGUMENT names the field. These functions check types and HTTP-only fields; the router
// checks everything else.
absl::StatusOr<EmbeddingsForm> ParseEmbeddings(std::string_view body);
absl::StatusOr<RerankForm> ParseRerank(std::string_view body);

std::string EmbeddingsJson(const EmbeddingsForm& form, const std::string& model_name,
                           const std::string& request_id, const v1::EmbedResponse& response);
// Results come in descending order of their score.
std::string RerankJson(const RerankForm& form, const std::string& model_name,
                       const std::string& request_id, const v1::RerankResponse& response);

}  // namespace stagecoach::router::http
