// Presents a .gguf file's metadata as a Hugging Face config.json, so that each architecture's
// reader serves both formats.
#pragma once

#include <boost/json/fwd.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/gguf/gguf_file.h"
#include "common/model/model_spec.h"

namespace stagecoach {

// True if MODEL, as returned by ResolveModelDir(), is a .gguf file instead of a folder.
bool IsGgufModel(const std::string& model_path);

// UNIMPLEMENTED names an unsupported architecture and lists those supported in GGUF, or names an
// unsupported feature that the model needs. INVALID_ARGUMENT names a key that is missing or has the
// wrong type.
absl::StatusOr<std::shared_ptr<const boost::json::object>> GgufConfig(const gguf::GgufFile& file);

// Adjusts `spec` to the tensors in the file and to the differences from the checkpoint that the
// file was converted from: tensor names, biases, Gemma's norms stored as 1 + w, the dtype.
void AdaptToGguf(const gguf::GgufFile& file, ModelSpec* spec);

// The pooling that an embedding model's file names. The vectors of such files have length 1.
absl::StatusOr<std::optional<PoolingSpec>> GgufPooling(const gguf::GgufFile& file);

// Token ids that end a completion: those named in the metadata, and control tokens that end a turn.
std::vector<int32_t> GgufEosIds(const gguf::GgufFile& file);

}  // namespace stagecoach
