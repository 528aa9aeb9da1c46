// Maps each tensor of a checkpoint to its file.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/loader/tensor_file.h"

namespace stagecoach::worker {

class CheckpointFiles {
 public:
  // Reads the index, or the header of the only file. If `model_path` is a file, it is the only
  // file; otherwise the folder has model.safetensors or its index, or pytorch_model.bin or its
  // index. NOT_FOUND says what the folder has instead of weights.
  static absl::StatusOr<CheckpointFiles> Open(const std::string& model_path);

  struct Found {
    std::string name;                        // as in the file; empty: not found
    std::shared_ptr<const TensorFile> file;  // null: see file_error
    absl::Status file_error;
    const StoredTensor* entry = nullptr;  // null: in the index but not in the file
  };
  // Finds a tensor by the usual name of its architecture or a known variant of it. Opens the file
  // on first use.
  Found Find(std::string_view name);
  // Returns only the name in the checkpoint, without opening a file. Empty if not found.
  std::string NameOf(std::string_view name) const;
  // Finds a tensor by its exact name in the file.
  Found FindExact(std::string_view name);

  // Names of all tensors, as in the files.
  std::vector<std::string> Names() const;
  // Names of tensors that an unmerged LoRA adapter left in the checkpoint.
  const std::vector<std::string>& lora_names() const { return lora_names_; }
  const std::string& source() const { return source_; }  // the index or the only file

 private:
  absl::Status OpenOnly(const std::string& path);
  absl::Status ReadIndex(const std::string& path);

  std::string dir_;
  std::string source_;
  std::map<std::string, std::string, std::less<>> file_of_;  // tensor -> file name
  std::map<std::string, absl::StatusOr<std::shared_ptr<const TensorFile>>> opened_;  // by file name
  std::vector<std::string> lora_names_;
};

}  // namespace stagecoach::worker
