// Metadata in fixed slots. All messages of the channel have the same size, so a receive can be
// queued before anything is known about the message, and a kernel can read it in place. A message
// that does not fit into one slot continues in the next ones.
//
// Little-endian. A header of 64 bytes, then the payload (worker/stage/step_meta.h), which therefore
// keeps its alignment.
//
//   offset  type    header field
//        0  u32     magic          "SCMS"
//        4  u32     version        2
//        8  u64     epoch
//       16  u64     step
//       24  u64     sequence       of the slot in its channel: 0, 1, 2, ...
//       32  u32     total_bytes    of the message
//       36  u32     part           0, 1, ... of the message
//       40  u32     n_parts
//       44  u32     payload_bytes  in this slot
//       48  u64[2]  zero
//
// After the payload, at any alignment, comes a seal of 16 bytes: the epoch and the sequence again.
// It arrives last, so a slot that an abort cut off can be distinguished from a complete one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "worker/transport/transport.h"

namespace stagecoach::worker {

inline constexpr size_t kMetaSlotBytes = size_t{64} << 10;
inline constexpr size_t kMetaSlotHeaderBytes = 64;
inline constexpr size_t kMetaSlotSealBytes = 16;
inline constexpr uint32_t kMetaSlotMagic = 0x534D4353;  // "SCMS"
inline constexpr uint32_t kMetaSlotVersion = 2;

// Number of slots that a message needs, at least 1.
size_t MetaSlotCount(size_t message_bytes);

// Writes part `part` of a message, which must be smaller than 4 GB. Returns the number of bytes
// used in `slot`. slot: [kMetaSlotBytes].
size_t WriteMetaSlot(uint64_t epoch, uint64_t step, uint64_t sequence, std::string_view message,
                     size_t part, char* slot);

// Reassembles messages. None may be missing, because a stage keeps the state that earlier steps
// sent.
class MetaSlotReader {
 public:
  explicit MetaSlotReader(uint64_t epoch) : epoch_(epoch) {}

  // Returns the message that ends with this slot, or nothing if it continues. DATA_LOSS for a gap
  // or a slot that was cut off: then only a full snapshot of the stage's sequences helps, and every
  // epoch of a router begins with one. FAILED_PRECONDITION for another epoch or version.
  // INVALID_ARGUMENT for malformed bytes. slot: [kMetaSlotBytes]
  absl::StatusOr<std::optional<Message>> Take(std::span<const char> slot);

 private:
  const uint64_t epoch_;
  uint64_t next_sequence_ = 0;
  uint32_t next_part_ = 0;
  uint32_t total_bytes_ = 0;
  Message message_;
};

}  // namespace stagecoach::worker
