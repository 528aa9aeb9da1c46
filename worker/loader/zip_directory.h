// The entries of a zip archive whose contents are stored as they are, as torch.save writes it.
// Format: APPNOTE.TXT of PKWARE, with the 64-bit extensions.
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
  uint64_t begin = 0, end = 0;  // bytes of the archive
};

// By name; names are views of `bytes`. `name` stands in messages. INVALID_ARGUMENT: cut short, or a
// directory that does not fit the file; UNIMPLEMENTED: compressed, encrypted or split archives.
absl::StatusOr<std::map<std::string_view, ZipEntry>> ReadZipDirectory(
    const std::string& name, std::span<const std::byte> bytes);

}  // namespace stagecoach::worker
