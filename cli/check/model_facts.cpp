#include "cli/check/model_facts.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "common/config/load_config.h"
#include "common/encoding/rows.h"
#include "common/model/device_support.h"
#include "common/status.h"
#include "kernels/ops.h"
#include "router/sizing/layer_split.h"
#include "worker/model/kv_cache.h"

namespace stagecoach::check {
namespace {

uint64_t Elements(const worker::TensorRequest& request) {
  return static_cast<uint64_t>(request.rows) * static_cast<uint64_t>(request.cols);
}

worker::StageModelOptions Layers(int32_t first, int32_t count, const ModelSpec& spec) {
  return {.first_layer = first,
          .n_layers = count,
          .is_first = first == 0,
          .is_last = first + count == spec.n_layers()};
}

// Storage of each tensor by its name, if known.
using Stored = std::map<std::string_view, Storage>;

Storage StorageOf(const worker::TensorRequest& request, const Stored& stored, DType or_else) {
  const auto found = stored.find(request.name);
  if (found != stored.end()) return found->second;
  return {or_else, worker::ImpliedEncoding(request)};
}

// Whether the tensor's memory has codes instead of numbers. wanted: as for TensorBytes
bool IsQuantizedInMemory(const worker::TensorRequest& request, std::optional<DType> wanted,
                         const Storage& storage) {
  return !request.is_vector && !wanted && !request.is_split && storage.is_quantized();
}

// Whether GPUs keep the tensor as it is stored. All others they hold in one dtype.
bool StaysOnGpus(const worker::TensorRequest& request, const Storage& storage, bool is_expert) {
  if (!storage.encoding) return false;
  const auto cols = static_cast<int32_t>(request.cols);
  return is_expert ? GpusKeepExperts(*storage.encoding, cols) : GpusKeep(*storage.encoding, cols);
}

// A tensor's size in memory: vectors are float32; quantized matrices keep their encoding unless a
// dtype is requested.
uint64_t TensorBytes(const worker::TensorRequest& request, std::optional<DType> wanted,
                     const Stored& stored, DType or_else) {
  const uint64_t n = Elements(request);
  if (request.is_vector) return n * sizeof(float);
  if (wanted) return n * DTypeBytes(*wanted);
  const Storage storage = StorageOf(request, stored, or_else);
  if (!IsQuantizedInMemory(request, wanted, storage)) {
    // A quantized matrix whose rows go to several ones becomes plain.
    return n * DTypeBytes(storage.is_quantized() ? or_else : storage.dtype);
  }
  return EncodedBytes(*storage.encoding, static_cast<uint64_t>(request.rows),
                      static_cast<uint64_t>(request.cols));
}

uint64_t KvBytesOfOneSequence(const ModelSpec& spec, const worker::KvCache& kv,
                              uint64_t state_bytes) {
  const std::vector<uint64_t> block_bytes = kv.block_bytes();
  uint64_t bytes = state_bytes;
  for (size_t g = 0; g < block_bytes.size(); ++g) {
    bytes +=
        block_bytes[g] * BlocksOfOneSequence(spec.kv_groups[g].window.size, spec.max_positions);
  }
  return bytes;
}

// Sorted by bytes, largest first.
std::vector<EncodingFacts> Encodings(const worker::WeightPlan& plan, const Stored& stored,
                                     DType or_else) {
  std::map<std::string, uint64_t> bytes;
  const bool tells_any =
      !stored.empty() || std::any_of(plan.requests.begin(), plan.requests.end(), [](const auto& r) {
        return worker::ImpliedEncoding(r).has_value();
      });
  for (const worker::TensorRequest& request : plan.requests) {
    if (request.is_vector || !tells_any) continue;
    const Storage storage = StorageOf(request, stored, or_else);
    bytes[EncodingName(storage.is_quantized() ? *storage.encoding : CodeOf(storage.dtype))] +=
        TensorBytes(request, std::nullopt, stored, or_else);
  }
  std::vector<EncodingFacts> encodings;
  for (const auto& [name, n] : bytes) encodings.push_back({name, n});
  std::stable_sort(encodings.begin(), encodings.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  if (encodings.empty()) encodings.push_back({std::string(DTypeName(or_else)), 0});
  return encodings;
}

// Indices of the requests for matrices that are `wanted`.
template <typename Wanted>
std::set<size_t> RequestsOf(const worker::WeightPlan& plan, const Wanted& wanted) {
  std::set<size_t> requests;
  for (const worker::MatrixPlan& matrix : plan.matrices) {
    if (!wanted(matrix)) continue;
    for (const worker::WeightPart& part : matrix.parts) requests.insert(part.request);
  }
  return requests;
}

// Whether a row of a step reads only its token's entry of the matrix.
bool IsLookedUp(const worker::MatrixPlan& matrix, const worker::StageWeights& weights,
                const ModelSpec& spec, bool is_last) {
  if (matrix.target == &weights.positions || matrix.target == &weights.input_embed) return true;
  const bool is_head = is_last && spec.tied_embedding && !spec.pooling;
  return matrix.target == &weights.embed && !is_head;
}

bool IsAlike(const KeptMatrix& a, const KeptMatrix& b) {
  return a.cols == b.cols && std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(),
                                        b.parts.end(), [](const auto& of_a, const auto& of_b) {
                                          return of_a.rows == of_b.rows &&
                                                 of_a.encoding == of_b.encoding &&
                                                 of_a.is_expert == of_b.is_expert;
                                        });
}

// One of each kind of matrix whose parts all stay quantized on GPUs.
std::vector<KeptMatrix> KeptMatrices(const worker::WeightPlan& plan, const Stored& stored,
                                     DType or_else) {
  std::vector<KeptMatrix> kept;
  for (const worker::MatrixPlan& matrix : plan.matrices) {
    KeptMatrix candidate{.cols = matrix.cols};
    for (const worker::WeightPart& part : matrix.parts) {
      const worker::TensorRequest& request = plan.requests[part.request];
      const Storage storage = StorageOf(request, stored, or_else);
      if (request.is_split || !storage.encoding ||
          !StaysOnGpus(request, storage, matrix.is_expert)) {
        break;
      }
      candidate.parts.push_back({.rows = static_cast<int32_t>(request.rows),
                                 .encoding = *storage.encoding,
                                 .is_expert = matrix.is_expert});
    }
    const bool is_known = std::any_of(kept.begin(), kept.end(), [&](const KeptMatrix& other) {
      return IsAlike(candidate, other);
    });
    if (!matrix.parts.empty() && candidate.parts.size() == matrix.parts.size() && !is_known) {
      kept.push_back(std::move(candidate));
    }
  }
  return kept;
}

std::vector<WindowFacts> Windows(const ModelSpec& spec) {
  std::vector<WindowFacts> windows;
  for (size_t g = 0; g < spec.kv_groups.size(); ++g) {
    const auto n = std::count_if(spec.layers.begin(), spec.layers.end(), [&](const LayerSpec& l) {
      return l.has_attention() && static_cast<size_t>(l.kv_group) == g;
    });
    windows.push_back({spec.kv_groups[g].window, static_cast<int32_t>(n)});
  }
  return windows;
}

}  // namespace

uint64_t BlocksOfOneSequence(int32_t window, int32_t n_tokens) {
  const auto blocks = [](int32_t n) {
    return static_cast<uint64_t>((n + kernels::kBlockTokens - 1) / kernels::kBlockTokens);
  };
  return window == 0 ? blocks(n_tokens) : std::min(blocks(n_tokens), blocks(window) + 2);
}

bool Storage::is_quantized() const { return encoding && IsQuantized(encoding->code); }

int32_t ModelFacts::n_layers() const {
  int32_t n = n_recurrent + n_mlps;
  for (const WindowFacts& group : windows) n += group.n_layers;
  return n;
}

worker::WeightPlan PlanWholeModel(const ModelSpec& spec, worker::StageWeights* weights) {
  return worker::PlanWeights(Layers(0, spec.n_layers(), spec), spec, weights);
}

absl::StatusOr<ModelFacts> DescribeModel(const ModelSpec& spec, const v1::LoadConfig& config,
                                         std::span<const Storage> storage, int32_t n_stages,
                                         bool on_gpus) {
  worker::StageWeights targets;
  const worker::WeightPlan plan = PlanWholeModel(spec, &targets);
  Stored stored;
  for (size_t i = 0; i < storage.size(); ++i) stored.emplace(plan.requests[i].name, storage[i]);

  ModelFacts facts;
  facts.architecture = spec.architecture;
  facts.windows = Windows(spec);
  facts.n_recurrent = spec.n_recurrent(0, spec.n_layers());
  facts.n_mlps = static_cast<int32_t>(std::count_if(
      spec.layers.begin(), spec.layers.end(), [](const LayerSpec& l) { return !l.has_mixer; }));
  facts.state_bytes = spec.StateBytes(0, spec.n_layers());
  for (const worker::TensorRequest& request : plan.requests)
    facts.n_parameters += Elements(request);
  facts.encodings = Encodings(plan, stored, spec.stored_dtype);
  const std::optional<DType> dtype = DTypeOf(config);
  facts.act_dtype = dtype.value_or(spec.stored_dtype);
  facts.kv_dtype = KvDTypeOf(config, spec.stored_dtype);
  facts.context_tokens = spec.max_positions;
  facts.vocab_size = spec.vocab_size;
  facts.pooling = spec.pooling;
  const worker::KvCache whole(spec, 0, spec.n_layers(), facts.kv_dtype);
  for (const uint64_t bytes : whole.block_bytes()) {
    facts.kv_bytes_per_token += bytes / kernels::kBlockTokens;
  }

  SC_ASSIGN_OR_RETURN(const std::vector<router::LayerRange> ranges,
                      router::BalanceLayers(spec, n_stages));
  for (const router::LayerRange& range : ranges) {
    worker::StageWeights stage_targets;
    const worker::WeightPlan stage =
        worker::PlanWeights(Layers(range.first, range.count, spec), spec, &stage_targets);
    const worker::KvCache kv(spec, range.first, range.count, facts.kv_dtype);
    StageFacts of_stage{.first_layer = range.first, .n_layers = range.count};
    const bool is_last = range.first + range.count == spec.n_layers();
    const std::set<size_t> experts =
        RequestsOf(stage, [](const worker::MatrixPlan& matrix) { return matrix.is_expert; });
    const std::set<size_t> looked_up = RequestsOf(stage, [&](const worker::MatrixPlan& matrix) {
      return IsLookedUp(matrix, stage_targets, spec, is_last);
    });
    for (size_t i = 0; i < stage.requests.size(); ++i) {
      const worker::TensorRequest& request = stage.requests[i];
      const Storage of_tensor = StorageOf(request, stored, spec.stored_dtype);
      std::optional<DType> wanted = dtype;
      if (on_gpus && !wanted && !StaysOnGpus(request, of_tensor, experts.contains(i))) {
        wanted = spec.stored_dtype;
      }
      const uint64_t bytes = TensorBytes(request, wanted, stored, spec.stored_dtype);
      of_stage.weights_bytes += bytes;
      if (looked_up.contains(i)) continue;
      WeightReads& reads = experts.contains(i) ? of_stage.experts : of_stage.every_row;
      reads.bytes += bytes;
      if (IsQuantizedInMemory(request, wanted, of_tensor)) reads.n_quantized += Elements(request);
    }
    if (on_gpus && !dtype) of_stage.kept = KeptMatrices(stage, stored, spec.stored_dtype);
    of_stage.state_bytes = spec.StateBytes(range.first, range.count);
    of_stage.kv_bytes = KvBytesOfOneSequence(spec, kv, of_stage.state_bytes);
    of_stage.kv_block_bytes = kv.block_bytes();
    facts.stages.push_back(std::move(of_stage));
  }
  return facts;
}

}  // namespace stagecoach::check
