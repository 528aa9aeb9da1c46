// Which file of a checkpoint holds which tensor.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/loader/safetensors.h"

namespace stagecoach::worker {

class CheckpointFiles {
 public:
  // Reads the index, or the header of the only file. NOT_FOUND says what the folder holds instead
  // of safetensors.
  static absl::StatusOr<CheckpointFiles> Open(const std::string& model_dir);

  struct Found {
    std::string name;                       // as the file has it; empty: nowhere
    std::shared_ptr<SafetensorsFile> file;  // null: file_error says why
    absl::Status file_error;
    const SafetensorsEntry* entry = nullptr;  // null: the index names it, the file lacks it
  };
  // By the name that the architecture's files usually have, or its known variants. Opens the file
  // on first use.
  Found Find(std::string_view name);

  // Tensors that an unmerged LoRA adapter leaves behind.
  std::vector<std::string> LoraNames() const;
  const std::string& source() const { return source_; }  // the index or the only file

 private:
  absl::Status ReadIndex(const std::string& path);

  std::string model_dir_;
  std::string source_;
  std::map<std::string, std::string, std::less<>> file_of_;  // tensor -> file name
  std::map<std::string, absl::StatusOr<std::shared_ptr<SafetensorsFile>>> opened_;  // by file name
};

}  // namespace stagecoach::worker
