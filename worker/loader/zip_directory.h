// The entries of a zip archive with uncompressed contents, as torch.save writes it. Format:
// PKWARE's APPNOTE.TXT, with the 64-bit extensions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace stagecoach::worker {

struct ZipEntry {
  uint64_t begin = 0, end = 0;  // byte range in the archive
};

// Returns the entries by name; names are views of `bytes`. Error messages use `name`.
// INVALID_ARGUMENT: truncated, or a directory that does not fit the file. UNIMPLEMENTED:
// compressed, encrypted or split archives.
absl::StatusOr<std::map<std::string_view, ZipEntry>> ReadZipDirectory(
    const std::string& name, std::span<const std::byte> bytes);

}  // namespace stagecoach::worker
