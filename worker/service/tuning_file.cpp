#include "worker/service/tuning_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL  // nothing to link
#include <xxhash.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>

#include "common/status.h"
#include "common/unique_fd.h"
#include "common/user_folder.h"
#include "common/version.h"
#include "worker/kv_store/kv_files.h"

namespace stagecoach::worker {
namespace {

uint64_t Hash(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

// Tuning is bytes of structs, which only the same program can read. A copy of a program keeps its
// size and time; its path and inode differ between containers of one image.
std::string IdentityOf(const kernels::Ops& ops) {
  struct stat program{};
  stat("/proc/self/exe", &program);
  return fmt::format("{} {} {}.{:09}\n{}\n{}\n", kVersion, program.st_size, program.st_mtim.tv_sec,
                     program.st_mtim.tv_nsec, ops.Describe(), ops.Numerics());
}

}  // namespace

std::string DefaultTuningFolder() { return UserFolder("XDG_CACHE_HOME", ".cache").string(); }

TuningFile::TuningFile(const std::string& folder, const kernels::Ops& ops)
    : folder_(folder),
      identity_(IdentityOf(ops)),
      path_(fmt::format("{}/tuning-{:016x}", folder, Hash(identity_))) {}

std::string TuningFile::Content(std::string_view tuning) const {
  std::string content = fmt::format("{}{}", identity_, tuning);
  content += fmt::format("{:016x}", Hash(content));
  return content;
}

absl::StatusOr<std::string> TuningFile::Read() const {
  SC_ASSIGN_OR_RETURN(const OpenedFile file, OpenFile(path_));
  std::string content(file.n_bytes, '\0');
  if (ReadAt(file.fd.get(), content.data(), content.size(), 0) !=
      static_cast<ssize_t>(content.size())) {
    return absl::ErrnoToStatus(errno, path_);
  }
  const size_t around = Content("").size();
  if (content.size() < around) return absl::DataLossError(path_ + " is too short");
  std::string tuning = content.substr(identity_.size(), content.size() - around);
  if (content != Content(tuning)) {
    return absl::DataLossError(path_ + " is damaged, or of another program or device");
  }
  return tuning;
}

absl::Status TuningFile::Write(std::string_view tuning) const {
  if (const absl::StatusOr<std::string> held = Read(); held.ok() && *held == tuning) {
    return absl::OkStatus();
  }
  std::string name;
  const UniqueFd file = NewFileIn(folder_, name);
  if (!file.valid()) return absl::ErrnoToStatus(errno, folder_);
  if (WriteAll(file.get(), Content(tuning)) && rename(name.c_str(), path_.c_str()) == 0) {
    return absl::OkStatus();
  }
  absl::Status failed = absl::ErrnoToStatus(errno, path_);
  unlink(name.c_str());
  return failed;
}

}  // namespace stagecoach::worker
