#include "worker/kv_store/disk_block.h"

#include <bit>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "common/check.h"
#include "worker/kv_store/kv_files.h"

namespace stagecoach::worker {
namespace {

static_assert(std::endian::native == std::endian::little, "the head is copied as it is");

constexpr uint32_t kDiskBlockMagic = 0x424B4353;  // "SCKB"
constexpr uint32_t kDiskBlockVersion = 1;

struct DiskBlockHead {
  uint32_t magic = kDiskBlockMagic;
  uint32_t version = kDiskBlockVersion;
  uint32_t n_values = 0;
  uint32_t zero = 0;
};
static_assert(sizeof(DiskBlockHead) == 16);

struct DiskBlockRow {
  uint32_t layer;
  uint32_t bytes;
};
static_assert(sizeof(DiskBlockRow) == 8);

// kOk: the rows are those of a whole file.
DiskRead ReadTable(int fd, size_t n_bytes, std::vector<DiskBlockRow>& rows) {
  DiskBlockHead head;
  const ssize_t n_head = ReadAt(fd, reinterpret_cast<char*>(&head), sizeof(head), 0);
  if (n_head < 0) return DiskRead::kError;
  const size_t most_rows = n_bytes / sizeof(DiskBlockRow);
  if (std::cmp_less(n_head, sizeof(head)) || head.magic != kDiskBlockMagic ||
      head.version != kDiskBlockVersion || head.n_values > most_rows) {
    return DiskRead::kDamaged;
  }
  rows.resize(head.n_values);
  const size_t n_wanted = rows.size() * sizeof(DiskBlockRow);
  const ssize_t n_table = ReadAt(fd, reinterpret_cast<char*>(rows.data()), n_wanted, sizeof(head));
  if (n_table < 0) return DiskRead::kError;
  uint64_t n_all = sizeof(head) + n_wanted;
  for (const DiskBlockRow& row : rows) n_all += row.bytes;
  return std::cmp_equal(n_table, n_wanted) && n_all == n_bytes ? DiskRead::kOk : DiskRead::kDamaged;
}

}  // namespace

uint64_t DiskBlockBytes(std::span<const KvValue> values) {
  uint64_t value_bytes = 0;
  for (const KvValue& value : values) value_bytes += value.bytes.size();
  return DiskBlockBytes(values.size(), value_bytes);
}

uint64_t DiskBlockBytes(size_t n_values, uint64_t value_bytes) {
  return sizeof(DiskBlockHead) + n_values * sizeof(DiskBlockRow) + value_bytes;
}

bool WriteDiskBlock(int fd, std::span<const KvValue> values) {
  const DiskBlockHead head{.n_values = static_cast<uint32_t>(values.size())};
  std::string start(reinterpret_cast<const char*>(&head), sizeof(head));
  for (const KvValue& value : values) {
    SC_CHECK(value.bytes.size() <= std::numeric_limits<uint32_t>::max());
    const DiskBlockRow row{.layer = value.key.layer,
                           .bytes = static_cast<uint32_t>(value.bytes.size())};
    start.append(reinterpret_cast<const char*>(&row), sizeof(row));
  }
  if (!WriteAll(fd, start)) return false;
  for (const KvValue& value : values) {
    if (!WriteAll(fd, value.bytes)) return false;
  }
  return true;
}

DiskRead ReadDiskBlock(int fd, size_t n_bytes, std::span<const KvKey> keys, size_t max_value_bytes,
                       std::span<std::optional<std::string>> values) {
  SC_CHECK(keys.size() == values.size());
  std::vector<DiskBlockRow> rows;
  if (const DiskRead read = ReadTable(fd, n_bytes, rows); read != DiskRead::kOk) return read;
  size_t offset = sizeof(DiskBlockHead) + rows.size() * sizeof(DiskBlockRow);
  for (const DiskBlockRow& row : rows) {
    for (size_t i = 0; i < keys.size(); ++i) {
      const bool is_wanted = keys[i].layer == row.layer && !values[i];
      if (!is_wanted || row.bytes > max_value_bytes) continue;
      std::string value(row.bytes, '\0');
      const ssize_t n = ReadAt(fd, value.data(), value.size(), offset);
      if (n < 0) return DiskRead::kError;
      if (std::cmp_less(n, value.size())) return DiskRead::kDamaged;
      values[i] = std::move(value);
    }
    offset += row.bytes;
  }
  return DiskRead::kOk;
}

}  // namespace stagecoach::worker
