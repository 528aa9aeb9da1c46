#include "worker/loader/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <cstring>
#include <limits>

#include "common/status.h"

namespace stagecoach::worker {
namespace {

namespace json = boost::json;

// 0 for a dtype that this program does not know, whose tensors are only wrong if they are needed.
uint64_t BytesOf(std::string_view dtype) {
  for (const char* name : {"BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"}) {
    if (dtype == name) return 1;
  }
  for (const char* name : {"F16", "BF16", "I16", "U16"}) {
    if (dtype == name) return 2;
  }
  for (const char* name : {"F32", "I32", "U32"}) {
    if (dtype == name) return 4;
  }
  for (const char* name : {"F64", "I64", "U64"}) {
    if (dtype == name) return 8;
  }
  return 0;
}

bool AsUint(const json::value& value, uint64_t* out) {
  if (const int64_t* number = value.if_int64(); number != nullptr && *number >= 0) {
    *out = static_cast<uint64_t>(*number);
    return true;
  }
  if (const uint64_t* number = value.if_uint64()) {
    *out = *number;
    return true;
  }
  return false;
}

// Empty: fine. `data_bytes` follow the header, which ends at `data_begin` of the file.
std::string ReadEntry(const json::value& value, uint64_t data_begin, uint64_t data_bytes,
                      SafetensorsEntry* entry) {
  const json::object* object = value.if_object();
  if (object == nullptr) return "is not an object";
  const json::value* dtype = object->if_contains("dtype");
  const json::value* shape = object->if_contains("shape");
  const json::value* offsets = object->if_contains("data_offsets");
  if (dtype == nullptr || !dtype->is_string()) return "has no dtype";
  if (shape == nullptr || !shape->is_array()) return "has no shape";
  if (offsets == nullptr || !offsets->is_array() || offsets->get_array().size() != 2) {
    return "has no data_offsets";
  }
  entry->dtype = std::string(dtype->get_string().data(), dtype->get_string().size());
  uint64_t n_elements = 1;
  bool overflow = false;
  for (const json::value& item : shape->get_array()) {
    uint64_t extent = 0;
    if (!AsUint(item, &extent)) return "has a shape that is not made of sizes";
    overflow |= __builtin_mul_overflow(n_elements, extent, &n_elements);
    overflow |= extent > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    entry->shape.push_back(static_cast<int64_t>(extent));
  }
  uint64_t begin = 0, end = 0, n_bytes = 0;
  if (!AsUint(offsets->get_array()[0], &begin) || !AsUint(offsets->get_array()[1], &end) ||
      begin > end) {
    return "has data_offsets that are no range";
  }
  if (end > data_bytes) {
    return fmt::format("ends at byte {} of the {} that the file holds; was its download cut short?",
                       end, data_bytes);
  }
  const uint64_t element_bytes = BytesOf(entry->dtype);
  overflow |= __builtin_mul_overflow(n_elements, std::max<uint64_t>(element_bytes, 1), &n_bytes);
  if (overflow) return "has a shape too large for any file";
  if (element_bytes != 0 && n_bytes != end - begin) {
    return fmt::format("has {} bytes where its shape and dtype {} make {}", end - begin,
                       entry->dtype, n_bytes);
  }
  entry->begin = data_begin + begin;
  entry->end = data_begin + end;
  return "";
}

}  // namespace

absl::StatusOr<std::shared_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const std::string message = fmt::format("{}: {}", path, std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(message) : absl::PermissionDeniedError(message);
  }
  struct stat info{};
  const bool is_file = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  const uint64_t n_bytes = is_file ? static_cast<uint64_t>(info.st_size) : 0;
  if (n_bytes < 8) {
    close(fd);
    return absl::InvalidArgumentError(
        fmt::format("{}: not a safetensors file ({})", path,
                    is_file ? "shorter than its header" : "not a regular file"));
  }
  void* data = mmap(nullptr, n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  const int map_error = errno;
  close(fd);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        fmt::format("{}: cannot be mapped: {}", path, std::strerror(map_error)));
  }
  std::shared_ptr<SafetensorsFile> file(
      new SafetensorsFile(path, static_cast<const std::byte*>(data), n_bytes));
  SC_RETURN_IF_ERROR(file->ReadHeader());
  return file;
}

SafetensorsFile::~SafetensorsFile() { munmap(const_cast<std::byte*>(data_), n_bytes_); }

absl::Status SafetensorsFile::ReadHeader() {
  const auto error = [&](std::string_view text) {
    return absl::InvalidArgumentError(fmt::format("{}: {}", path_, text));
  };
  constexpr std::string_view kLfs = "version https://git-lfs";
  if (n_bytes_ >= kLfs.size() && std::memcmp(data_, kLfs.data(), kLfs.size()) == 0) {
    return error("is a Git LFS pointer, not the weights; run `git lfs pull` in its folder");
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, data_, 8);
  if (header_bytes > kMaxHeaderBytes) {
    return error(fmt::format("not a safetensors file (a header of {} bytes)", header_bytes));
  }
  if (header_bytes > n_bytes_ - 8) {
    return error(fmt::format("cut short: {} bytes, of which the header alone should take {}",
                             n_bytes_, header_bytes + 8));
  }
  json::error_code parse_error;
  const json::value header = json::parse(
      json::string_view(reinterpret_cast<const char*>(data_ + 8), header_bytes), parse_error);
  if (parse_error || !header.is_object()) {
    return error(fmt::format("not a safetensors file (its header is no JSON object: {})",
                             parse_error ? parse_error.message() : "another type"));
  }
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const auto& [key, value] : header.get_object()) {
    const std::string name(key.data(), key.size());
    if (name == "__metadata__") continue;
    SafetensorsEntry entry;
    const uint64_t data_begin = 8 + header_bytes;
    const std::string wrong = ReadEntry(value, data_begin, n_bytes_ - data_begin, &entry);
    if (!wrong.empty()) return error(fmt::format("tensor {} {}", name, wrong));
    if (entry.end > entry.begin) ranges.emplace_back(entry.begin, entry.end);
    entries_.emplace(name, std::move(entry));
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].second) {
      return error(fmt::format("two tensors overlap at byte {}", ranges[i].first));
    }
  }
  return absl::OkStatus();
}

void SafetensorsFile::WillNeed(uint64_t begin, uint64_t end) const {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  begin = begin / page * page;
  end = std::min(end, n_bytes_);
  if (begin < end) {
    madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_WILLNEED);
  }
}

void SafetensorsFile::DontNeed(uint64_t begin, uint64_t end) const {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  begin = (begin + page - 1) / page * page;
  end = end / page * page;
  if (begin < end) {
    madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
  }
}

}  // namespace stagecoach::worker
