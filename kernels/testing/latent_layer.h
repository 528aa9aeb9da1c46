// Shared by the tests of latent attention: one layer with its cache on a device.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "kernels/testing/values.h"

namespace stagecoach::kernels {

struct LatentConfig {
  int32_t n_heads = 4, kv_rank = 32, nope_dim = 24, rope_dim = 8;
  DType dtype = DType::kF32;
  bool interleaved = true;
  QueryScaling query_scaling = {};
  float scale = 0.2f;

  int32_t dim() const { return kv_rank + rope_dim; }
  int32_t q_width() const { return n_heads * (nope_dim + rope_dim); }
  int32_t out_width() const { return n_heads * kv_rank; }
};

// The rows of a sequence: [n, q_width], [n, n_heads, dim] of which the rotated parts are still
// missing, and [n, dim].
struct LatentRows {
  std::vector<float> q, queries, latents;

  LatentRows(const LatentConfig& config, int32_t n)
      : q(Rounded(RandomFloats(static_cast<size_t>(n * config.q_width()), 1), config.dtype)),
        queries(Rounded(RandomFloats(static_cast<size_t>(n * config.n_heads * config.dim()), 2),
                        config.dtype)),
        latents(Rounded(RandomFloats(static_cast<size_t>(n * config.dim()), 3), config.dtype)) {}
};

class LatentLayer {
 public:
  // The blocks of a sequence are in descending order; block 0 comes last.
  LatentLayer(Ops& ops, const LatentConfig& config, int32_t max_positions, int32_t max_slots = 1)
      : ops_(ops),
        config_(config),
        n_blocks_((max_positions + kBlockTokens - 1) / kBlockTokens),
        cache_(*ops.AllocateKv(static_cast<size_t>(max_slots * n_blocks_) * block_bytes())),
        norm_(ops, RandomFloats(static_cast<size_t>(config.kv_rank), 4)),
        cos_(ops, RandomFloats(static_cast<size_t>(max_positions * config.rope_dim / 2), 5)),
        sin_(ops, RandomFloats(static_cast<size_t>(max_positions * config.rope_dim / 2), 6)),
        step_(*ops.NewStepInputs({.max_tokens = max_positions * max_slots,
                                  .max_slots = max_slots,
                                  .max_blocks = n_blocks_,
                                  .groups = {{.window = 0, .latent_rank = config.kv_rank}},
                                  .n_heads = config.n_heads,
                                  .n_kv_heads = 1,
                                  .head_dim = config.dim(),
                                  .act_dtype = config.dtype,
                                  .kv_dtype = config.dtype})) {
    const std::vector<unsigned char> nan(static_cast<size_t>(max_slots * n_blocks_) * block_bytes(),
                                         0xff);
    ops.Upload(nan.data(), cache_.data.get(), nan.size());
  }

  KvLayer kv() const { return {cache_.data.get(), nullptr, config_.dtype}; }
  size_t block_bytes() const { return KvBlockBytes(config_.dtype, 1, config_.dim(), 1); }

  // Appends n rows from `position` on and attends. Returns [n, out_width].
  std::vector<float> Step(const LatentRows& rows, int32_t position, int32_t n) {
    return Step(rows, std::vector<StepSeq>{{.slot = 0, .position = position, .n_tokens = n}});
  }
  // The same for several sequences, which have the same rows at the same positions.
  std::vector<float> Step(const LatentRows& rows, const std::vector<StepSeq>& seqs) {
    const Values queries = Append(rows, seqs);
    const Values out(
        ops_, std::vector<float>(static_cast<size_t>(step_->n_tokens * config_.out_width()), NAN),
        config_.dtype);
    Attend(queries, out);
    return out.Get();
  }

  // Builds the step, writes its latents into the cache and returns its queries.
  Values Append(const LatentRows& rows, const std::vector<StepSeq>& seqs, int32_t n_padding = 0) {
    std::vector<NewBlock> blocks;
    int32_t n = 0;
    for (const StepSeq& seq : seqs) {
      n += seq.n_tokens;
      const int32_t last = (seq.slot + 1) * n_blocks_ - 1;
      for (int32_t b = 0; b < n_blocks_; ++b) blocks.push_back({0, seq.slot, b, last - b});
    }
    ops_.BuildStep({.seqs = seqs, .new_blocks = blocks, .n_tokens = n, .n_padding = n_padding},
                   step_.get());
    const auto part = [&](const std::vector<float>& of, int32_t width) {
      std::vector<float> numbers;
      for (const StepSeq& seq : seqs) {
        const auto begin = of.begin() + static_cast<std::ptrdiff_t>(seq.position) * width;
        numbers.insert(numbers.end(), begin,
                       begin + static_cast<std::ptrdiff_t>(seq.n_tokens) * width);
      }
      numbers.resize(static_cast<size_t>((n + n_padding) * width));
      return numbers;
    };
    const Values q(ops_, part(rows.q, config_.q_width()), config_.dtype);
    Values queries(ops_, part(rows.queries, config_.n_heads * config_.dim()), config_.dtype);
    const Values latents(ops_, part(rows.latents, config_.dim()));
    const RopeTable rope{cos_.f32(), sin_.f32(), config_.rope_dim};
    ops_.LatentAppend({.latents = latents.f32(),
                       .q = q,
                       .queries = queries,
                       .positions = step_->positions,
                       .kv_slots = step_->groups[0].kv_slots,
                       .rope = &rope,
                       .interleaved = config_.interleaved,
                       .norm = norm_.f32(),
                       .norm_eps = 1e-6f,
                       .kv = kv(),
                       .n_tokens = n,
                       .n_heads = config_.n_heads,
                       .kv_rank = config_.kv_rank,
                       .nope_dim = config_.nope_dim,
                       .rope_dim = config_.rope_dim,
                       .query_scaling = config_.query_scaling});
    REQUIRE(ops_.Synchronize().ok());  // q and the latents end here
    return queries;
  }
  void Attend(const Values& queries, const Values& out) {
    ops_.Attention({.qkv = queries,
                    .kv = kv(),
                    .step = step_.get(),
                    .group = 0,
                    .out = out,
                    .n_heads = config_.n_heads,
                    .n_kv_heads = 1,
                    .head_dim = config_.dim(),
                    .scale = config_.scale,
                    .softcap = 0,
                    .window = 0,
                    .kv_of_row = KvOfRow::kLatents,
                    .value_dim = config_.kv_rank});
  }

  // Positions `first` to n of the sequence in chunks of `size` rows.
  std::vector<float> InChunks(const LatentRows& rows, int32_t n, int32_t size, int32_t first = 0) {
    std::vector<float> out;
    for (int32_t p = first; p < n; p += size) {
      const std::vector<float> part = Step(rows, p, std::min(size, n - p));
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  }

  // The first n blocks of the sequence, as in host memory.
  std::vector<unsigned char> Export(int32_t n) {
    std::vector<unsigned char> bytes(static_cast<size_t>(n) * block_bytes());
    const Buffer host = *ops_.AllocateHost(bytes.size());
    ops_.ExportKv(Copies(n, host, copies_));
    REQUIRE(ops_.Wait(ops_.Mark()).ok());
    std::copy_n(host.As<unsigned char>(), bytes.size(), bytes.begin());
    return bytes;
  }
  void Import(const std::vector<unsigned char>& bytes) {
    const Buffer host = *ops_.AllocateHost(bytes.size());
    std::copy(bytes.begin(), bytes.end(), host.As<unsigned char>());
    ops_.ImportKv(Copies(static_cast<int32_t>(bytes.size() / block_bytes()), host, copies_));
    REQUIRE(ops_.Wait(ops_.Mark()).ok());
  }

 private:
  KvCopyArgs Copies(int32_t n, const Buffer& host, std::vector<KvBlockCopy>& copies) const {
    copies.clear();
    for (int32_t b = 0; b < n; ++b) {
      copies.push_back({static_cast<uint32_t>(n_blocks_ - 1 - b), static_cast<uint32_t>(b)});
    }
    return {.kv = kv(),
            .n_kv_heads = 1,
            .head_dim = config_.dim(),
            .copies = copies,
            .host = host.data.get(),
            .place_bytes = block_bytes()};
  }

  Ops& ops_;
  const LatentConfig config_;
  const int32_t n_blocks_;
  const Buffer cache_;
  const Values norm_, cos_, sin_;
  const std::unique_ptr<StepInputs> step_;
  std::vector<KvBlockCopy> copies_;
};

// A sequence's latents go to other blocks on `ops` and on `reference`, where it goes on.
inline void CheckCopiedLatents(Ops& ops, Ops& reference, const LatentConfig& config) {
  constexpr int32_t kBlocks = 3, kBefore = kBlocks * kBlockTokens, kTokens = kBefore + 5;
  const LatentRows rows(config, kTokens);
  LatentLayer from(ops, config, kTokens), to(ops, config, kTokens + kBlockTokens),
      other(reference, config, kTokens);
  from.Step(rows, 0, kBefore);
  const std::vector<unsigned char> bytes = from.Export(kBlocks);
  CHECK(bytes.size() == static_cast<size_t>(kBefore * config.dim()) * DTypeBytes(config.dtype));
  to.Import(bytes);
  other.Import(bytes);
  CHECK(to.Export(kBlocks) == bytes);
  CHECK(other.Export(kBlocks) == bytes);
  const std::vector<float> expected = from.Step(rows, kBefore, 5);
  CHECK(to.Step(rows, kBefore, 5) == expected);
  CHECK(WorstError(other.Step(rows, kBefore, 5), expected) < 2 * Step(config.dtype));
}

// y of HeadGemm for random w [n_heads * n_outputs, cols] and x. Heads of x are wider than what is
// read by n_more; so are those of y, whose rest is as before.
inline std::vector<float> HeadProducts(Ops& ops, DType dtype, int32_t n_rows, int32_t first_row,
                                       int32_t n_heads, int32_t n_outputs, int32_t cols,
                                       int32_t n_more = 3) {
  const int32_t x_dim = cols + n_more, y_dim = n_outputs + n_more;
  const std::vector<float> all_x =
      Rounded(RandomFloats(static_cast<size_t>((first_row + n_rows) * n_heads * x_dim), 7), dtype);
  const Values x(
      ops, {all_x.begin() + static_cast<std::ptrdiff_t>(first_row) * n_heads * x_dim, all_x.end()},
      dtype);
  const Values y(ops, std::vector<float>(static_cast<size_t>(n_rows * n_heads * y_dim), 9), dtype);
  const Matrix w = PackedMatrix(
      ops, n_heads * n_outputs, cols, dtype,
      Rounded(RandomFloats(static_cast<size_t>(n_heads * n_outputs * cols), 8), dtype));
  ops.HeadGemm({.x = x,
                .w = &w,
                .y = y,
                .n_rows = n_rows,
                .n_heads = n_heads,
                .x_dim = x_dim,
                .y_dim = y_dim});
  return y.Get();
}

}  // namespace stagecoach::kernels
