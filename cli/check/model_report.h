// Describes a checkpoint before any of its weights are read.
#pragma once

#include <boost/json/object.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/dtype.h"
#include "common/model/model_spec.h"
#include "kernels/op_args.h"

namespace stagecoach::check {

enum class Part : uint8_t { kModel, kConfig, kTensors, kTokenizer, kTemplate, kMemory };

struct Finding {
  Part part;
  std::string text;  // what is wrong, where, and how to fix it
};

struct WindowFacts {
  KeyWindow window;
  int32_t n_layers = 0;
};

// Weights that a step reads.
struct WeightReads {
  uint64_t bytes = 0;
  uint64_t n_quantized = 0;  // those that become numbers only while they are multiplied
};

// A matrix that GPUs keep quantized.
struct KeptMatrix {
  std::vector<kernels::MatrixPart> parts;
  int32_t cols = 0;
};

struct StageFacts {
  int32_t first_layer = 0;
  int32_t n_layers = 0;
  // All of them. Beside those of the next two, tables of which a row takes its token's entry.
  uint64_t weights_bytes = 0;
  WeightReads every_row, experts;
  std::vector<KeptMatrix> kept;  // on GPUs: one of each kind
  uint64_t kv_bytes = 0;         // for one sequence of full context length
  // [KV group], in the order of `windows`; 0: the stage has no layer of it.
  std::vector<uint64_t> kv_block_bytes;
  uint64_t state_bytes = 0;  // a sequence's state in the stage's recurrent layers
};

// Sizes of the matrices by storage format. Vectors are not counted: they are float32 in memory
// whatever their stored format.
struct EncodingFacts {
  std::string name;  // "Q4_K", "bfloat16"
  uint64_t bytes = 0;
};

struct ModelFacts {
  std::string architecture;
  std::vector<WindowFacts> windows;  // together they cover all layers with attention
  int32_t n_recurrent = 0;           // recurrent layers
  int32_t n_mlps = 0;                // layers with an MLP or experts only
  uint64_t state_bytes = 0;          // of one sequence in them
  uint64_t n_parameters = 0;
  std::vector<EncodingFacts> encodings;  // sorted by bytes, largest first; never empty
  DType act_dtype = DType::kF32;         // of activations
  DType kv_dtype = DType::kF32;
  uint64_t kv_bytes_per_token = 0;  // over all layers
  int32_t context_tokens = 0;
  int32_t vocab_size = 0;
  std::optional<PoolingSpec> pooling;  // set: an embedding model
  std::vector<StageFacts> stages;

  int32_t n_layers() const;
};

struct TokenizerFacts {
  std::string kind;  // "SentencePiece (tokenizer.model)"
  int32_t n_tokens = 0;
};

struct ModelReport {
  // The model's folder or file, or the name asked for if there is no such model.
  std::string model;
  std::vector<Finding> problems;  // any of them prevents serving the model
  std::vector<Finding> notes;     // do not prevent serving
  std::optional<ModelFacts> facts;
  std::optional<TokenizerFacts> tokenizer;
  bool has_template = false;

  bool ok() const { return problems.empty(); }
};

// Text of at most `width` columns, without a trailing line break.
std::string ToText(const ModelReport& report, size_t width);

// Only the problems, in the format of ToText.
std::string ProblemsText(const ModelReport& report, size_t width);

// {model, ok, problems: [{part, text}], notes: [{part, text}], ...}; the numbers are absent if
// config.json could not be read.
boost::json::object ToJson(const ModelReport& report);

}  // namespace stagecoach::check
