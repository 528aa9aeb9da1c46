// Keeps what a device's autotuning has found in a file, so that the next start need not tune again.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/ops.h"

namespace stagecoach::worker {

// The folder that a worker uses if nobody names one. Empty: the user has no home directory.
std::string DefaultTuningFolder();

// One file holds the tuning of one program on one device. Processes may share the folder: a file
// appears whole or not at all, and the last one written stays. Use from one thread at a time.
class TuningFile {
 public:
  // `folder` may be missing; Write creates it.
  TuningFile(const std::string& folder, const kernels::Ops& ops);

  // What an earlier process wrote, for Ops::UseTuning. NOT_FOUND: no process has. DATA_LOSS: the
  // file is of another program or device, or damaged. Otherwise the error of the system.
  absl::StatusOr<std::string> Read() const;
  // Replaces the file, unless it has this content.
  absl::Status Write(std::string_view tuning) const;

  const std::string& path() const { return path_; }

 private:
  std::string Content(std::string_view tuning) const;

  const std::string folder_;
  const std::string identity_;
  const std::string path_;
};

}  // namespace stagecoach::worker
