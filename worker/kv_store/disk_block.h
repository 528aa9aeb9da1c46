// The file of a disk tier: some layers of one KV block. Little-endian:
//
//   offset  type     field
//        0  u32      magic     "SCKB"
//        4  u32      version   1
//        8  u32      n_values
//       12  u32      zero
//       16  table    n_values times {u32 layer, u32 bytes}
//      ...  u8[]     the values in the same order, without gaps
//
// Whether a value is damaged says its own checksum (kv_entry.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "worker/kv_store/kv_store.h"

namespace stagecoach::worker {

// Bytes of a file with these values.
uint64_t DiskBlockBytes(std::span<const KvValue> values);
// The same for so many values of so many bytes together.
uint64_t DiskBlockBytes(size_t n_values, uint64_t value_bytes);

// Writes such a file from where the descriptor is. False: see errno.
bool WriteDiskBlock(int fd, std::span<const KvValue> values);

enum class DiskRead : uint8_t {
  kOk,
  kDamaged,  // no such file, or not all of it
  kError,    // see errno
};

// Sets values[i], if it is absent, to the value of keys[i]'s layer, if the file has it and it is
// not longer than a value may be. The keys are of the file's block. `n_bytes` is the file's length.
DiskRead ReadDiskBlock(int fd, size_t n_bytes, std::span<const KvKey> keys, size_t max_value_bytes,
                       std::span<std::optional<std::string>> values);

}  // namespace stagecoach::worker
