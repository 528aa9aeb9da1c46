// What stores in folders have in common: files that appear whole or not at all.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/unique_fd.h"
#include "worker/kv_store/kv_store.h"

namespace stagecoach::worker {

// The names of files that are not whole yet begin so. A process that is killed leaves them.
inline constexpr std::string_view kNewFilePrefix = "new-";

// UNAVAILABLE: the deadline has passed. `name` is the store's.
absl::Status CheckTime(const std::string& name, KvStore::Clock::time_point deadline);

// Creates a file of a new name in the folder, and the folder if it is missing. Sets `name`. Sets
// errno if the file is not valid.
UniqueFd NewFileIn(const std::string& folder, std::string& name);

// False: see errno.
bool WriteAll(int fd, std::string_view bytes);

struct OpenedFile {
  UniqueFd fd;
  size_t n_bytes = 0;
};

// Opens a file to read. NOT_FOUND: there is none, or something else lies there. PERMISSION_DENIED:
// this user may not read it.
absl::StatusOr<OpenedFile> OpenFile(const std::string& path);

// Reads up to n bytes from `offset` on, fewer only at the file's end. Returns their number; -1: see
// errno.
ssize_t ReadAt(int fd, char* to, size_t n, size_t offset);

}  // namespace stagecoach::worker
