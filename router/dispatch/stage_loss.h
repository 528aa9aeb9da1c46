// Which stage a pipeline lost, and why: a detail of the status that tells of the loss.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace stagecoach::router {

enum class LossCause : uint32_t {
  kLost,        // its process ended, or its connection broke
  kStalled,     // it made no progress, and was given up or killed for that
  kHandedOver,  // its worker shuts down, and leaves its place to another one
};
inline constexpr size_t kLossCauses = 3;
inline constexpr std::array<std::string_view, kLossCauses> kLossCauseNames = {"lost", "stalled",
                                                                              "handed_over"};

struct StageLoss {
  uint32_t stage = 0;
  LossCause cause = LossCause::kLost;
};
static_assert(std::has_unique_object_representations_v<StageLoss>);  // it is kept as bytes

inline constexpr char kStageLossPayload[] = "stagecoach/stage_loss";

inline absl::Status WithLoss(absl::Status status, const StageLoss& loss) {
  std::string bytes(sizeof(loss), '\0');
  std::memcpy(bytes.data(), &loss, sizeof(loss));
  status.SetPayload(kStageLossPayload, absl::Cord(absl::string_view(bytes)));
  return status;
}

// Empty for a status that WithLoss did not return.
inline std::optional<StageLoss> LossOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kStageLossPayload);
  if (!payload) return std::nullopt;
  StageLoss loss;
  std::memcpy(&loss, std::string(*payload).data(), sizeof(loss));
  return loss;
}

}  // namespace stagecoach::router
