#include "common/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "common/mutex.h"
#include "common/signal_log.h"

namespace stagecoach {
namespace {

uint64_t PageBytes() {
  static const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return page;
}

void Advise(std::span<const std::byte> bytes, uint64_t begin, uint64_t end, int advice) {
  if (begin >= end) return;
  madvise(const_cast<std::byte*>(bytes.data()) + begin, end - begin, advice);
}

// Mapped files, in a form that a signal handler can read: it may neither lock nor allocate.
struct Mapping {
  std::atomic<const std::byte*> begin{nullptr};  // null: the slot is free
  std::atomic<const std::byte*> end{nullptr};
  std::atomic<const char*> path{nullptr};
};
// If more files than this are mapped at once, errors cannot name the others.
std::array<Mapping, 4096> mappings;
std::atomic<const char*> being_read{nullptr};
struct sigaction before_us;

const char* PathAt(const void* address) {
  for (const Mapping& mapping : mappings) {
    const std::byte* const begin = mapping.begin;
    if (begin != nullptr && address >= begin && address < mapping.end) return mapping.path;
  }
  return nullptr;
}

void OnBusError(int signal, siginfo_t* info, void*) {
  const char* const path = info->si_code > 0 ? PathAt(info->si_addr) : nullptr;
  if (path == nullptr) {
    sigaction(signal, &before_us, nullptr);
    // A faulting instruction faults again on return. A signal sent by kill() does not repeat, so
    // raise it again.
    if (info->si_code <= 0) raise(signal);
    return;
  }
  LogFromSignal(SignalLogLevel::kCritical, "", path,
                ": was cut short, or its disk failed, while it was read", 200);
  _exit(1);
}

// Returns a copy of `path` that is never freed. Equal paths share one copy.
const char* KnownPath(const std::string& path) {
  static Mutex mutex;
  static auto* const paths = new std::set<std::string>;
  const MutexLock lock(mutex);
  return paths->insert(path).first->c_str();
}

void Enter(std::span<const std::byte> bytes, const char* path) {
  static std::once_flag handled;
  std::call_once(handled, [] {
    struct sigaction action{};
    action.sa_sigaction = OnBusError;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigaction(SIGBUS, &action, &before_us);
  });
  static Mutex mutex;
  const MutexLock lock(mutex);
  for (Mapping& mapping : mappings) {
    if (mapping.begin != nullptr) continue;
    mapping.path = path;
    mapping.end = bytes.data() + bytes.size();
    mapping.begin = bytes.data();
    return;
  }
}

void Leave(std::span<const std::byte> bytes) {
  for (Mapping& mapping : mappings) {
    const std::byte* expected = bytes.data();
    if (mapping.begin.compare_exchange_strong(expected, nullptr)) return;
  }
}

}  // namespace

std::string FileBeingRead() {
  const char* const path = being_read;
  return path == nullptr ? "" : path;
}

MappedFile::MappedFile(std::string path, std::span<const std::byte> bytes)
    : path_(std::move(path)), bytes_(bytes), known_path_(KnownPath(path_)) {
  if (!bytes_.empty()) Enter(bytes_, known_path_);
  being_read = known_path_;
}

std::span<const std::byte> MappedFile::bytes() const {
  being_read = known_path_;
  return bytes_;
}

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a named pipe must not block. The flag has no effect on regular files.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const std::string message = fmt::format("{}: {}", path, std::strerror(errno));
    return absl::Status(absl::ErrnoToStatusCode(errno), message);
  }
  struct stat info{};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return absl::InvalidArgumentError(fmt::format("{}: not a regular file", path));
  }
  const size_t n_bytes = static_cast<size_t>(info.st_size);
  void* data = nullptr;
  if (n_bytes > 0) {
    data = mmap(nullptr, n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      const std::string message = fmt::format("{}: cannot be mapped: {}", path, strerror(errno));
      close(fd);
      return absl::ResourceExhaustedError(message);
    }
  }
  close(fd);
  std::shared_ptr<const MappedFile> file(
      new MappedFile(path, {static_cast<const std::byte*>(data), n_bytes}));
  constexpr std::string_view kLfs = "version https://git-lfs";
  if (n_bytes >= kLfs.size() && std::memcmp(data, kLfs.data(), kLfs.size()) == 0) {
    return absl::InvalidArgumentError(fmt::format(
        "{}: is a Git LFS pointer, not the file itself; run `git lfs pull` in its folder", path));
  }
  return file;
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  Leave(bytes_);
  munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::WillNeed(uint64_t begin, uint64_t end) const {
  Advise(bytes_, begin / PageBytes() * PageBytes(), std::min<uint64_t>(end, bytes_.size()),
         MADV_WILLNEED);
}

void MappedFile::DontNeed(uint64_t begin, uint64_t end) const {
  Advise(bytes_, (begin + PageBytes() - 1) / PageBytes() * PageBytes(),
         std::min<uint64_t>(end, bytes_.size()) / PageBytes() * PageBytes(), MADV_DONTNEED);
}

}  // namespace stagecoach
