#include "worker/transport/meta_slot.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace stagecoach::worker {
namespace {

constexpr size_t kPayloadBytes = kMetaSlotBytes - kMetaSlotHeaderBytes - kMetaSlotSealBytes;

struct Header {
  uint32_t magic;
  uint32_t version;
  uint64_t epoch;
  uint64_t step;
  uint64_t sequence;
  uint32_t total_bytes;
  uint32_t part;
  uint32_t n_parts;
  uint32_t payload_bytes;
  uint64_t zero[2];
};
static_assert(sizeof(Header) == kMetaSlotHeaderBytes && std::is_trivially_copyable_v<Header>);

struct Seal {
  uint64_t epoch;
  uint64_t sequence;
  bool operator==(const Seal&) const = default;
};
static_assert(sizeof(Seal) == kMetaSlotSealBytes && std::is_trivially_copyable_v<Seal>);

}  // namespace

size_t MetaSlotCount(size_t message_bytes) {
  return std::max<size_t>(1, (message_bytes + kPayloadBytes - 1) / kPayloadBytes);
}

size_t WriteMetaSlot(uint64_t epoch, uint64_t step, uint64_t sequence, std::string_view message,
                     size_t part, char* slot) {
  SC_CHECK(message.size() <= UINT32_MAX && part < MetaSlotCount(message.size()));
  const std::string_view piece = message.substr(part * kPayloadBytes, kPayloadBytes);
  const Header header{.magic = kMetaSlotMagic,
                      .version = kMetaSlotVersion,
                      .epoch = epoch,
                      .step = step,
                      .sequence = sequence,
                      .total_bytes = static_cast<uint32_t>(message.size()),
                      .part = static_cast<uint32_t>(part),
                      .n_parts = static_cast<uint32_t>(MetaSlotCount(message.size())),
                      .payload_bytes = static_cast<uint32_t>(piece.size()),
                      .zero = {}};
  std::memcpy(slot, &header, sizeof(header));
  piece.copy(slot + kMetaSlotHeaderBytes, piece.size());
  const Seal seal{.epoch = epoch, .sequence = sequence};
  std::memcpy(slot + kMetaSlotHeaderBytes + piece.size(), &seal, sizeof(seal));
  return kMetaSlotHeaderBytes + piece.size() + kMetaSlotSealBytes;
}

absl::StatusOr<std::optional<Message>> MetaSlotReader::Take(std::span<const char> slot) {
  SC_CHECK(slot.size() == kMetaSlotBytes);
  Header h;
  std::memcpy(&h, slot.data(), sizeof(h));
  if (h.magic != kMetaSlotMagic) {
    return absl::InvalidArgumentError("a metadata slot with a wrong magic number");
  }
  if (h.version != kMetaSlotVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("a metadata slot of version ", h.version, "; this worker reads version ",
                     kMetaSlotVersion, ": run the same stagecoach version on all stages"));
  }
  if (h.epoch != epoch_) {
    return absl::FailedPreconditionError(
        absl::StrCat("a metadata slot of epoch ", h.epoch, " in epoch ", epoch_));
  }
  if (h.sequence != next_sequence_) {
    return absl::DataLossError(
        absl::StrCat("metadata slot ", h.sequence, " came when ", next_sequence_,
                     " was expected: this stage needs a full snapshot of its sequences; restart "
                     "the router, which then sends one"));
  }
  const bool follows = h.part == next_part_ && h.n_parts == MetaSlotCount(h.total_bytes) &&
                       h.part < h.n_parts &&
                       (h.part == 0 || (h.step == message_.step && h.total_bytes == total_bytes_));
  const size_t due = std::min<size_t>(kPayloadBytes, h.total_bytes - h.part * kPayloadBytes);
  if (!follows || h.payload_bytes != due) {
    return absl::InvalidArgumentError(absl::StrCat("metadata slot ", h.sequence, ": part ", h.part,
                                                   " of ", h.n_parts, " with ", h.payload_bytes,
                                                   " bytes is out of order"));
  }
  Seal seal;
  std::memcpy(&seal, slot.data() + kMetaSlotHeaderBytes + h.payload_bytes, sizeof(seal));
  if (seal != Seal{.epoch = h.epoch, .sequence = h.sequence}) {
    return absl::DataLossError(
        absl::StrCat("metadata slot ", h.sequence, " of step ", h.step, " was cut off"));
  }
  ++next_sequence_;
  if (h.part == 0) {
    total_bytes_ = h.total_bytes;
    message_ = {.step = h.step, .payload = {}};
    message_.payload.reserve(h.total_bytes);
  }
  message_.payload.append(slot.data() + kMetaSlotHeaderBytes, h.payload_bytes);
  next_part_ = h.part + 1;
  if (next_part_ < h.n_parts) return std::nullopt;
  next_part_ = 0;
  return std::exchange(message_, {});
}

}  // namespace stagecoach::worker
