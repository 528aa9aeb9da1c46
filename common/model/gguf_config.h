// A .gguf file as a model: its metadata in the terms of a Hugging Face config.json, so that the
// architectures' own readers serve both.
#pragma once

#include <boost/json/fwd.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/gguf/gguf_file.h"
#include "common/model/model_spec.h"

namespace stagecoach {

// Whether MODEL, as ResolveModelDir() gave it, is a .gguf file and not a folder.
bool IsGgufModel(const std::string& model_path);

// UNIMPLEMENTED names the architecture and those that are supported in GGUF; INVALID_ARGUMENT the
// key that is missing or of another type, UNIMPLEMENTED what the model needs and we cannot do.
absl::StatusOr<std::shared_ptr<const boost::json::object>> GgufConfig(const gguf::GgufFile& file);

// What the file says by the tensors that it holds, and how it differs from the checkpoint that it
// was made from: tensor names, biases, Gemma's norms stored as 1 + w, the dtype.
void AdaptToGguf(const gguf::GgufFile& file, ModelSpec* spec);

// Ids that end a completion: those that the metadata names, and control tokens that end a turn.
std::vector<int32_t> GgufEosIds(const gguf::GgufFile& file);

}  // namespace stagecoach
