// What can be said of a checkpoint before any of its weights are read.
#pragma once

#include <boost/json/object.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/dtype.h"

namespace stagecoach::check {

enum class Part : uint8_t { kModel, kConfig, kTensors, kTokenizer, kTemplate, kMemory };

struct Finding {
  Part part;
  std::string text;  // what, where, and what to do
};

struct WindowFacts {
  int32_t window = 0;  // tokens; 0: all
  int32_t n_layers = 0;
};

struct StageFacts {
  int32_t first_layer = 0;
  int32_t n_layers = 0;
  uint64_t weights_bytes = 0;
  uint64_t kv_bytes = 0;                 // for one sequence of the whole context
  std::vector<uint64_t> kv_block_bytes;  // by KV group, as in windows; 0: the stage has none of it
};

// What config.json makes of the model, and the tensors' dtype where they could be read.
// How matrices are stored; vectors are float32 in memory, however that is.
struct EncodingFacts {
  std::string name;  // "Q4_K", "bfloat16"
  uint64_t bytes = 0;
};

struct ModelFacts {
  std::string architecture;
  std::vector<WindowFacts> windows;  // together all layers
  uint64_t n_parameters = 0;
  std::vector<EncodingFacts> encodings;  // the most bytes first; never empty
  DType kv_dtype = DType::kF32;
  uint64_t kv_bytes_per_token = 0;  // over all layers
  int32_t context_tokens = 0;
  int32_t vocab_size = 0;
  std::vector<StageFacts> stages;

  int32_t n_layers() const;
};

struct TokenizerFacts {
  std::string kind;  // "SentencePiece (tokenizer.model)"
  int32_t n_tokens = 0;
};

struct ModelReport {
  std::string model;              // the folder or file, or what was asked for when there is none
  std::vector<Finding> problems;  // any of them keeps the model from being served
  std::vector<Finding> notes;     // what to know all the same
  std::optional<ModelFacts> facts;
  std::optional<TokenizerFacts> tokenizer;
  bool has_template = false;

  bool ok() const { return problems.empty(); }
};

// For people, at most `width` columns; no line break at the end.
std::string ToText(const ModelReport& report, size_t width);

// The problems alone, as ToText shows them.
std::string ProblemsText(const ModelReport& report, size_t width);

// {model, ok, problems: [{part, text}], notes: [{part, text}], ...}; the numbers are absent where
// config.json could not be read.
boost::json::object ToJson(const ModelReport& report);

}  // namespace stagecoach::check
