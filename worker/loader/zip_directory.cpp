#include "worker/loader/zip_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/status.h"

namespace stagecoach::worker {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50, kCentralHeader = 0x02014b50;
constexpr uint32_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kEnd64Locator = 0x07064b50;
constexpr uint64_t kLocalBytes = 30, kCentralBytes = 46;
constexpr uint64_t kEndBytes = 22, kEnd64Bytes = 56, kEnd64LocatorBytes = 20;
constexpr uint32_t kIn64 = 0xffffffff;  // the value is in the 64-bit extension

class ZipReader {
 public:
  ZipReader(const std::string& name, std::span<const std::byte> bytes)
      : name_(name), bytes_(bytes) {}

  absl::StatusOr<std::map<std::string_view, ZipEntry>> Read() {
    SC_RETURN_IF_ERROR(FindDirectory());
    std::map<std::string_view, ZipEntry> entries;
    uint64_t at = directory_begin_;
    // The count is untrusted. Each iteration consumes bytes of the directory or fails, so the loop
    // ends.
    for (uint64_t i = 0; i < n_entries_; ++i) {
      SC_RETURN_IF_ERROR(ReadEntry(&at, &entries));
    }
    SC_RETURN_IF_ERROR(CheckOverlaps(entries));
    return entries;
  }

 private:
  absl::Status Error(std::string_view text) const {
    return absl::InvalidArgumentError(fmt::format("{}: {}", name_, text));
  }
  absl::Status Broken() const {
    return Error("its zip directory does not fit the file; is the download incomplete?");
  }

  bool Holds(uint64_t at, uint64_t n) const {
    return at <= bytes_.size() && n <= bytes_.size() - at;
  }
  // REQUIRES: Holds(at, sizeof(T))
  template <typename T>
  T Load(uint64_t at) const {
    T value;
    std::memcpy(&value, bytes_.data() + at, sizeof(T));
    return value;
  }

  absl::Status FindDirectory() {
    constexpr uint64_t kMaxComment = 65535;
    if (bytes_.size() < kEndBytes) return Broken();
    const uint64_t last = bytes_.size() - kEndBytes;
    const uint64_t first = last - std::min(last, kMaxComment);
    uint64_t end = last;
    while (Load<uint32_t>(end) != kEnd) {
      if (end == first) {
        return Error("has no zip directory at its end, so it is truncated; download it again");
      }
      --end;
    }
    n_entries_ = Load<uint16_t>(end + 10);
    directory_bytes_ = Load<uint32_t>(end + 12);
    directory_begin_ = Load<uint32_t>(end + 16);
    const bool has_locator =
        end >= kEnd64LocatorBytes && Load<uint32_t>(end - kEnd64LocatorBytes) == kEnd64Locator;
    if (has_locator) {
      const uint64_t at = Load<uint64_t>(end - kEnd64LocatorBytes + 8);
      if (!Holds(at, kEnd64Bytes) || Load<uint32_t>(at) != kEnd64) return Broken();
      n_entries_ = Load<uint64_t>(at + 32);
      directory_bytes_ = Load<uint64_t>(at + 40);
      directory_begin_ = Load<uint64_t>(at + 48);
    }
    return Holds(directory_begin_, directory_bytes_) ? absl::OkStatus() : Broken();
  }

  absl::Status ReadEntry(uint64_t* at, std::map<std::string_view, ZipEntry>* entries) {
    const uint64_t directory_end = directory_begin_ + directory_bytes_;
    if (directory_end - *at < kCentralBytes || Load<uint32_t>(*at) != kCentralHeader) {
      return Broken();
    }
    const uint16_t flags = Load<uint16_t>(*at + 8), method = Load<uint16_t>(*at + 10);
    uint64_t stored = Load<uint32_t>(*at + 20), size = Load<uint32_t>(*at + 24);
    const uint64_t name_bytes = Load<uint16_t>(*at + 28), extra_bytes = Load<uint16_t>(*at + 30);
    const uint64_t comment_bytes = Load<uint16_t>(*at + 32);
    uint64_t local = Load<uint32_t>(*at + 42);
    const uint64_t tail = name_bytes + extra_bytes + comment_bytes;
    if (directory_end - *at - kCentralBytes < tail) return Broken();
    const std::string_view entry_name(
        reinterpret_cast<const char*>(bytes_.data() + *at + kCentralBytes), name_bytes);
    SC_RETURN_IF_ERROR(
        ReadExtra64(*at + kCentralBytes + name_bytes, extra_bytes, &size, &stored, &local));
    *at += kCentralBytes + tail;

    constexpr uint16_t kEncrypted = 1;
    if (method != 0 || (flags & kEncrypted) != 0 || stored != size) {
      return absl::UnimplementedError(fmt::format(
          "{}: its parts are compressed or encrypted, which torch.save does not do; load it with "
          "torch and save it again",
          name_));
    }
    if (!Holds(local, kLocalBytes) || Load<uint32_t>(local) != kLocalHeader) return Broken();
    ZipEntry entry;
    // The name and padding in the local header may differ from the directory's.
    entry.begin = local + kLocalBytes + Load<uint16_t>(local + 26) + Load<uint16_t>(local + 28);
    if (!Holds(entry.begin, size)) return Broken();
    entry.end = entry.begin + size;
    return entries->emplace(entry_name, entry).second ? absl::OkStatus() : Broken();
  }

  // Extra field 1 holds, in this order, the values that the header stores as 0xffffffff.
  absl::Status ReadExtra64(uint64_t at, uint64_t n, uint64_t* size, uint64_t* stored,
                           uint64_t* local) const {
    const uint64_t end = at + n;
    while (end - at >= 4) {
      const uint16_t id = Load<uint16_t>(at);
      const uint64_t field_end = at + 4 + Load<uint16_t>(at + 2);
      if (field_end > end) return absl::OkStatus();  // padding that some writers leave
      at += 4;
      if (id == 1) {
        for (uint64_t* value : {size, stored, local}) {
          if (*value != kIn64) continue;
          if (field_end - at < 8) return Broken();
          *value = Load<uint64_t>(at);
          at += 8;
        }
        return absl::OkStatus();
      }
      at = field_end;
    }
    return absl::OkStatus();
  }

  absl::Status CheckOverlaps(const std::map<std::string_view, ZipEntry>& entries) const {
    std::vector<ZipEntry> order;
    for (const auto& [entry_name, entry] : entries) order.push_back(entry);
    std::sort(order.begin(), order.end(),
              [](const ZipEntry& a, const ZipEntry& b) { return a.begin < b.begin; });
    for (size_t i = 1; i < order.size(); ++i) {
      if (order[i].begin < order[i - 1].end) return Error("two parts of its zip archive overlap");
    }
    return absl::OkStatus();
  }

  const std::string& name_;
  std::span<const std::byte> bytes_;
  uint64_t n_entries_ = 0, directory_begin_ = 0, directory_bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::map<std::string_view, ZipEntry>> ReadZipDirectory(
    const std::string& name, std::span<const std::byte> bytes) {
  return ZipReader(name, bytes).Read();
}

}  // namespace stagecoach::worker
