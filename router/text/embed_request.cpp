#include "router/text/embed_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <string>
#include <utility>

#include "common/status.h"

namespace stagecoach::router {

absl::Status CheckEmbed(const ServedModel& model, const v1::EmbedRequest& request) {
  SC_RETURN_IF_ERROR(CheckModelName(model, request.model()));
  SC_RETURN_IF_ERROR(CheckNames(request.request_id(), request.cache_salt()));
  if (!model.spec.pooling) {
    return absl::InvalidArgumentError(fmt::format(
        "model: '{}' generates text: its folder has no modules.json with a pooling step, which "
        "would say how its hidden states become a vector",
        model.name));
  }
  if (request.input().empty()) return absl::InvalidArgumentError("input: is empty");
  if (request.input_size() > kMaxPooledInputs) {
    return absl::InvalidArgumentError(
        fmt::format("input: {} inputs; at most {} are allowed in one request", request.input_size(),
                    kMaxPooledInputs));
  }
  if (std::cmp_greater(request.dimensions(), model.spec.hidden_size)) {
    return absl::InvalidArgumentError(fmt::format("dimensions: {} is not in [1, {}]",
                                                  request.dimensions(), model.spec.hidden_size));
  }
  return absl::OkStatus();
}

absl::StatusOr<GenerationInput> BuildEmbedding(const ServedModel& model,
                                               const v1::EmbedRequest& request, size_t i) try {
  const v1::EmbedInput& given = request.input(static_cast<int>(i));
  const std::string field = request.input_size() == 1 ? "input" : fmt::format("input[{}]", i);
  std::vector<int32_t> ids;
  if (given.has_tokens()) {
    ids.assign(given.tokens().ids().begin(), given.tokens().ids().end());
    SC_RETURN_IF_ERROR(CheckIds(model, ids, field));
  } else {
    SC_ASSIGN_OR_RETURN(ids, EncodePrompt(model, field, given.text(), /*add_special=*/true));
  }
  v1::SlotPooling pooling;
  pooling.set_what(model.spec.pooling->mean ? v1::SlotPooling::MEAN_HIDDEN
                                            : v1::SlotPooling::LAST_HIDDEN);
  return BuildPooled(model, field, std::move(ids), std::move(pooling), request.priority(),
                     request.cache_salt());
} catch (const std::bad_alloc&) {
  return NoMemory();
}

v1::Embedding MakeEmbedding(const ServedModel& model, const v1::EmbedRequest& request,
                            std::span<const float> values) {
  if (request.dimensions() > 0) {
    values = values.first(std::min<size_t>(request.dimensions(), values.size()));
  }
  double squares = 0;
  for (const float value : values) squares += double{value} * value;
  const bool scales = model.spec.pooling->normalize && squares > 0;
  const double scale = scales ? 1 / std::sqrt(squares) : 1;
  v1::Embedding embedding;
  for (const float value : values) embedding.add_values(static_cast<float>(value * scale));
  return embedding;
}

}  // namespace stagecoach::router
