// Which file of a checkpoint holds which tensor.
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
  // Reads the index, or the header of the only file: `model_path` itself where it is a file, else
  // in that folder model.safetensors or its index, pytorch_model.bin or its index. NOT_FOUND says
  // what the folder holds instead of weights.
  static absl::StatusOr<CheckpointFiles> Open(const std::string& model_path);

  struct Found {
    std::string name;                        // as the file has it; empty: nowhere
    std::shared_ptr<const TensorFile> file;  // null: file_error says why
    absl::Status file_error;
    const StoredTensor* entry = nullptr;  // null: the index names it, the file lacks it
  };
  // By the name that the architecture's files usually have, or its known variants. Opens the file
  // on first use.
  Found Find(std::string_view name);
  // The name alone, without opening a file; empty: nowhere.
  std::string NameOf(std::string_view name) const;
  // By the name that the file has.
  Found FindExact(std::string_view name);

  // All tensors, by their names in the files.
  std::vector<std::string> Names() const;
  // Those that an unmerged LoRA adapter leaves behind.
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
