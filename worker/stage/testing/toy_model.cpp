#include "worker/stage/testing/toy_model.h"

#include <algorithm>

#include "common/check.h"
#include "kernels/host_step.h"

namespace stagecoach::worker {
namespace {

constexpr int64_t kPrime = 4093;
constexpr size_t kBlockValues = kernels::kBlockTokens * kToyHidden;

int64_t ToInt(float value) {
  SC_CHECK(value >= 0);  // -1: a KV entry that was never written
  return static_cast<int64_t>(value);
}

}  // namespace

ToyModel::ToyModel(const ToyModelOptions& options) : options_(options) {
  spec_.architecture = "Toy";
  spec_.vocab_size = kToyVocab;
  spec_.hidden_size = kToyHidden;
  spec_.max_positions = 4096;
  spec_.kv_groups = {KvGroupSpec{.window = 0}, KvGroupSpec{.window = kToyWindow}};
  for (int32_t l = 0; l < kToyLayers; ++l) spec_.layers.push_back({.kv_group = l % 2});
  if (options_.embeds) spec_.pooling.emplace();
  hidden_.resize(size_t(options_.max_batched_tokens) * kToyHidden);
  if (options_.hidden_dtype == v1::HIDDEN_DTYPE_BFLOAT16) passed_.resize(hidden_.size());
  logits_.resize(size_t(options_.max_logit_rows) * kToyVocab);
  kv_.resize(kToyLayers);
  step_ = *kernels::NewHostStepInputs({.max_tokens = options_.max_batched_tokens,
                                       .max_slots = options_.max_slots,
                                       .max_blocks = options_.max_blocks,
                                       .groups = {{0}, {kToyWindow}}});
}

std::vector<uint64_t> ToyModel::kv_block_bytes() const {
  std::vector<uint64_t> bytes(spec_.kv_groups.size());
  for (const KvPart& part : kv_parts()) bytes[part.kv_group] += part.bytes;
  return bytes;
}

std::vector<KvPart> ToyModel::kv_parts() const {
  std::vector<KvPart> parts;
  for (int32_t l = options_.first_layer; l < options_.first_layer + options_.n_layers; ++l) {
    parts.push_back(
        {.layer = l, .kv_group = spec_.layers[l].kv_group, .bytes = kBlockValues * sizeof(float)});
  }
  return parts;
}

void ToyModel::ExportKv(size_t part, std::span<const kernels::KvBlockCopy> copies, void* host,
                        size_t place_bytes) {
  for (const auto& [block, place] : copies) {
    std::memcpy(static_cast<char*>(host) + place * place_bytes,
                &kv_.at(options_.first_layer + part).at(block * kBlockValues),
                kBlockValues * sizeof(float));
  }
}

void ToyModel::ImportKv(size_t part, std::span<const kernels::KvBlockCopy> copies, void* host,
                        size_t place_bytes) {
  for (const auto& [block, place] : copies) {
    std::memcpy(&kv_.at(options_.first_layer + part).at(block * kBlockValues),
                static_cast<const char*>(host) + place * place_bytes, kBlockValues * sizeof(float));
  }
}

absl::Status ToyModel::AllocateKv(std::span<const uint64_t> n_blocks, const LastingMemory&) {
  for (int32_t l = options_.first_layer; l < options_.first_layer + options_.n_layers; ++l) {
    const size_t n = n_blocks[spec_.layers[l].kv_group] * kernels::kBlockTokens * kToyHidden;
    kv_[l].assign(n, -1);
  }
  return absl::OkStatus();
}

void ToyModel::Forward(const kernels::StepBatch& batch, float* hidden, LogitRows) {
  kernels::BuildHostStep(batch, step_.get());
  const size_t n_passed = passed_.empty() ? 0 : size_t(step_->n_tokens) * kToyHidden;
  if (options_.first_layer > 0) {
    std::copy_n(passed_.begin(), n_passed, hidden);
  } else {
    for (int32_t t = 0; t < step_->n_tokens; ++t) {
      const int64_t token = step_->token_ids[t];
      for (int32_t i = 0; i < kToyHidden; ++i) {
        hidden[t * kToyHidden + i] = static_cast<float>((token * (i + 3) + i) % kPrime);
      }
    }
  }
  for (int32_t l = options_.first_layer; l < options_.first_layer + options_.n_layers; ++l) {
    RunLayer(l, hidden);
  }
  std::transform(hidden, hidden + n_passed, passed_.begin(),
                 [](float value) { return static_cast<uint16_t>(value); });
}

void ToyModel::RunLayer(int32_t layer, float* hidden) {
  const int32_t g = spec_.layers[layer].kv_group;
  const KeyWindow window = spec_.kv_groups[g].window;
  const kernels::StepInputs::Group& group = step_->groups[g];
  std::vector<float>& kv = kv_[layer];
  for (int32_t t = 0; t < step_->n_tokens; ++t) {
    for (int32_t i = 0; i < kToyHidden; ++i) {
      kv.at(group.kv_slots[t] * kToyHidden + i) = static_cast<float>(
          (ToInt(hidden[t * kToyHidden + i]) * 31 + step_->positions[t] * 7 + layer) % kPrime);
    }
  }
  for (int32_t s = 0; s < step_->n_seqs; ++s) {
    const int32_t* const table =
        group.block_tables + step_->seq_slots[s] * step_->block_table_stride;
    for (int32_t t = step_->seq_starts[s]; t < step_->seq_starts[s + 1]; ++t) {
      const int32_t p = step_->seq_positions[s] + t - step_->seq_starts[s];
      int64_t sum[kToyHidden] = {};
      for (int32_t q = window.First(p); q <= p; ++q) {
        const int32_t slot =
            table[q / kernels::kBlockTokens] * kernels::kBlockTokens + q % kernels::kBlockTokens;
        for (int32_t i = 0; i < kToyHidden; ++i) {
          sum[i] += ToInt(kv.at(slot * kToyHidden + i)) * (q + 1);
        }
      }
      float* h = hidden + t * kToyHidden;
      int64_t next[kToyHidden];
      for (int32_t i = 0; i < kToyHidden; ++i) {
        next[i] = (ToInt(h[i]) + 5 * ToInt(h[(i + 1) % kToyHidden]) + sum[i]) % kPrime;
      }
      std::copy(next, next + kToyHidden, h);
    }
  }
}

const float* ToyModel::FinalHidden(const float* hidden, std::span<const int32_t> rows) {
  SC_CHECK(options_.embeds);
  final_hidden_.clear();
  for (const int32_t row : rows) {
    const float* const h = hidden + row * kToyHidden;
    final_hidden_.insert(final_hidden_.end(), h, h + kToyHidden);
  }
  return final_hidden_.data();
}

float* ToyModel::Logits(const float* hidden, std::span<const int32_t> rows) {
  SC_CHECK(!options_.embeds);
  SC_CHECK(rows.size() <= static_cast<size_t>(options_.max_logit_rows));
  for (size_t r = 0; r < rows.size(); ++r) {
    const float* h = hidden + rows[r] * kToyHidden;
    for (int32_t v = 0; v < kToyVocab; ++v) {
      int64_t x = v + 1;
      for (int32_t i = 0; i < kToyHidden; ++i) x = (x * (v + 17) + ToInt(h[i])) % 1000003;
      logits_[r * kToyVocab + v] = static_cast<float>(x % 509) / 64.0f;
    }
  }
  return logits_.data();
}

}  // namespace stagecoach::worker
