// The metadata of one step, as it travels from stage to stage. Stage 0 encodes it from the
// StepPlan; the other stages read it in place and forward the same bytes.
//
// Little-endian, made of 32-bit words. A header, then arrays; each array starts at a
// multiple of 16 bytes, so that its offset follows from the counts in the header alone.
//
//   offset  type  header field
//        0  u32   magic            "SCSM"
//        4  u32   version          6 with copies of saved states, 5 with other copies of KV blocks,
//                                  else 4
//        8  u64   epoch
//       16  u64   step
//       24  u32   total_bytes      of header and arrays
//       28  u32   n_groups         G: KV groups
//       32  u32   n_slots          S: sequences that compute in this step
//       36  u32   n_rows           T: sum of n_tokens
//       40  u32   n_blocks         B: new KV blocks of all sequences and groups
//       44  u32   n_releases       R
//       48  u32   n_registrations  N
//       52  u32   n_words          W: 32-bit words of the variable part
//       56  u32   n_traces         X: traced requests
//       60  u16   header_bytes     80 from version 5 on, else 64
//       62  u16   record_bytes     24: size of a SlotRecord
//       64  u32   n_saves          V: KV blocks to copy to the store
//       68  u32   n_restores       U: KV blocks to fill from fetches
//       72  u32   n_forgotten      F: fetches that end with this step
//       76  u32   copies_states    1: saves and restores also have the number of a saved state;
//                                  C = G + copies_states
//
// Fields may be appended to the header and to SlotRecord; the two lengths tell how many of them a
// message has. A reader takes a missing field as 0 and skips fields that it does not know. A field
// that an older reader must not skip raises the version. Release N reads the versions of release
// N - 1, so a pipeline may hold stages of two releases if no stage is newer than the next one.
// A stage that copies no KV blocks would corrupt sequences silently, so these have version 5; with
// states, version 6.
// Sampling parameters are the bytes of a v1::SlotSampling, which may get new fields without a new
// version here. Stages between the first and the last pass these bytes on without parsing them.
//
//   array                      fixed part
//   slots          u32[S]
//   starts         u32[S]      position of the slot's first row
//   n_tokens       u32[S]      its rows, at least 1
//   flags          u32[S]      bit 0: sample after the last row; the others: v1::SlotDelta's
//                              save_state
//   block_ends     u32[S, G]   end of the slot's new blocks in `blocks`; the begin is the entry
//                              before, 0 for the first
//   blocks         u32[B]      appended to the slot's block tables
//   releases       u32[R]      slots freed before anything else
//   registrations  SlotRecord[N]
//   traces         TraceRecord[X]
//   saves          KvSaveRecord[V]
//   save_blocks    u32[V, C]   the blocks to save, or the state: v1::KvSave's `blocks`
//   restores       KvRestoreRecord[U]
//   restore_blocks u32[U, C]   the blocks to fill, and the state; kNoKvBlock: none
//   forgotten      u64[F]      ids of fetches
//                              variable part
//   words          u32[W]      per registration: tokens (i32), then a v1::SlotSampling (bytes,
//                              padded with zeros to a whole word)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "stagecoach/v1/step.pb.h"

namespace stagecoach::worker {

inline constexpr uint32_t kStepMetaMagic = 0x4D534353;  // "SCSM"
inline constexpr uint32_t kStepMetaVersion = 6;         // the newest that is written and read
inline constexpr uint32_t kOldestStepMetaVersion = 4;   // the oldest that is read, and is written
inline constexpr uint32_t kMostStepTraces = 16;
inline constexpr uint32_t kSampleFlag = 1;
inline constexpr uint32_t kSaveStateShift = 1;  // of a word of `flags`

// A registration's fixed part; fields as in v1::SlotRegistration.
struct SlotRecord {
  uint32_t slot;
  uint32_t n_tokens;
  uint32_t n_prompt;
  uint32_t words_begin;  // of its tokens in `words`
  uint32_t n_sampling_bytes;
  uint32_t from_state;
};
static_assert(sizeof(SlotRecord) == 24 && std::is_trivially_copyable_v<SlotRecord>);

// Of a traced request: the ids as W3C's trace context has them.
struct TraceRecord {
  uint8_t trace_id[16];
  uint8_t span_id[8];
};
static_assert(sizeof(TraceRecord) == 24);

inline constexpr uint32_t kNoKvBlock = 0xFFFFFFFF;

// A block to save; fields as in v1::KvSave.
struct KvSaveRecord {
  uint8_t key[16];
  int32_t tokens[16];
  uint64_t owner;
};
static_assert(sizeof(KvSaveRecord) == 88);

// A block to restore; fields as in v1::KvRestore.
struct KvRestoreRecord {
  uint64_t fetch;
  uint32_t index;
  uint32_t beside;  // 0 or 1
};
static_assert(sizeof(KvRestoreRecord) == 16);

// Views into the bytes that were decoded, except the few registrations.
struct StepMetaView {
  uint64_t epoch = 0;
  uint64_t step = 0;
  uint32_t n_groups = 0;
  uint32_t n_copied = 0;  // C
  uint32_t n_rows = 0;
  std::span<const uint32_t> slots, starts, n_tokens, flags;  // [S]
  std::span<const uint32_t> block_ends;                      // [S, G]
  std::span<const uint32_t> blocks;                          // [B]
  std::span<const uint32_t> releases;                        // [R]
  std::vector<SlotRecord> registrations;                     // [N]
  std::span<const TraceRecord> traces;                       // [X]
  std::span<const KvSaveRecord> saves;                       // [V]
  std::span<const uint32_t> save_blocks;                     // [V, C]
  std::span<const KvRestoreRecord> restores;                 // [U]
  std::span<const uint32_t> restore_blocks;                  // [U, C]
  std::span<const uint64_t> forgotten_fetches;               // [F]
  std::span<const uint32_t> words;                           // [W]

  size_t n_slots() const { return slots.size(); }
  // A prefill chunk of one token counts as a decode.
  uint32_t n_decode() const;
  bool samples(size_t i) const { return (flags[i] & kSampleFlag) != 0; }
  uint32_t save_state(size_t i) const { return flags[i] >> kSaveStateShift; }
  std::span<const uint32_t> saved_blocks(size_t save) const {
    return save_blocks.subspan(save * n_copied, n_groups);
  }
  std::span<const uint32_t> restored_blocks(size_t restore) const {
    return restore_blocks.subspan(restore * n_copied, n_groups);
  }
  // The number of a saved state; kNoKvBlock: none.
  uint32_t saved_state(size_t save) const {
    return n_copied > n_groups ? save_blocks[save * n_copied + n_groups] : kNoKvBlock;
  }
  uint32_t restored_state(size_t restore) const {
    return n_copied > n_groups ? restore_blocks[restore * n_copied + n_groups] : kNoKvBlock;
  }
  bool samples_any() const {
    for (size_t i = 0; i < n_slots(); ++i) {
      if (samples(i)) return true;
    }
    return false;
  }
  std::span<const uint32_t> new_blocks(size_t i, size_t group) const {
    const size_t at = i * n_groups + group;
    const size_t begin = at == 0 ? 0 : block_ends[at - 1];
    return blocks.subspan(begin, block_ends[at] - begin);
  }
  std::span<const int32_t> tokens(const SlotRecord& record) const;
  std::string_view sampling_bytes(const SlotRecord& record) const;
};

// Writes the plan to `out` (replaced). INVALID_ARGUMENT if the plan has no such form: the number
// of KV groups differs from `n_groups`, an id or a key has the wrong length, or it is too large.
absl::Status EncodeStepMeta(const v1::StepPlan& plan, uint32_t n_groups, std::string* out);

// Checks everything about the layout, nothing about what slots and ids mean (PlanChecker does).
// `bytes` must be aligned to 16, as the heap memory of a std::string is, and outlive the view.
// INVALID_ARGUMENT for malformed bytes, FAILED_PRECONDITION for another version.
absl::StatusOr<StepMetaView> DecodeStepMeta(std::string_view bytes);

// Returns the sampling parameters of each registration. INVALID_ARGUMENT for bytes that cannot be
// parsed.
absl::StatusOr<std::vector<v1::SlotSampling>> ParseSampling(const StepMetaView& meta);

}  // namespace stagecoach::worker
