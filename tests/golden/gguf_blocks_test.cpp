// A model of each kind of GGUF's blocks, whose weights stay as they are stored, against the same
// model with the blocks' values in float32. The values are those of the gguf package
// (worker/loader/dequantize_test.cpp); it has no quantizer for most of these blocks.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "common/encoding/rows.h"
#include "common/float_convert.h"
#include "common/gguf/test_gguf.h"
#include "common/temp_dir.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/testing/stored_parts.h"
#include "tests/golden/golden_backends.h"
#include "tests/golden/pipeline_run.h"

namespace stagecoach {
namespace {

// Above the tests in float32: where inputs are rounded, keys and values may round to the next
// number in bfloat16.
constexpr float kTolerance = 1e-2f;

using gguf::TensorType;
using gguf::TestGguf;

constexpr int kLayers = 4;
constexpr size_t kHidden = 256, kWidth = 512, kHeads = 4, kKvHeads = 2, kHead = 64, kVocab = 96;

// Writes each matrix in two files: as blocks of `type`, and as their values.
class TwoFiles {
 public:
  explicit TwoFiles(TensorType type) : type_(type), code_(*gguf::CodeOf(type)) {
    for (TestGguf* file : {&blocks, &values}) {
      file->String("general.architecture", "llama");
      file->Uint("llama.block_count", kLayers);
      file->Uint("llama.embedding_length", kHidden);
      file->Uint("llama.feed_forward_length", kWidth);
      file->Uint("llama.attention.head_count", kHeads);
      file->Uint("llama.attention.head_count_kv", kKvHeads);
      file->Uint("llama.attention.key_length", kHead);
      file->Uint("llama.context_length", 512);
      file->Float("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    }
    // In bfloat16, so that the keys and values of the cache are in both models.
    std::vector<uint16_t> embedding(kVocab * kHidden);
    const std::vector<uint8_t> stored = kernels::RandomBlocks(Code::kQ8_0, kVocab, kHidden, 0);
    std::vector<float> decoded(embedding.size());
    DecodeRows(Code::kQ8_0, stored.data(), kVocab, kHidden, decoded.data());
    for (size_t i = 0; i < decoded.size(); ++i) embedding[i] = BF16FromFloat(decoded[i]);
    for (TestGguf* file : {&blocks, &values}) {
      Add(*file, "token_embd.weight", {kHidden, kVocab}, TensorType::kBF16, embedding);
    }
    Ones("output_norm.weight");
    for (int layer = 0; layer < kLayers; ++layer) {
      const auto name = [&](const char* part) {
        return fmt::format("blk.{}.{}.weight", layer, part);
      };
      Ones(name("attn_norm"));
      Ones(name("ffn_norm"));
      Matrix(name("attn_q"), kHeads * kHead, kHidden);
      Matrix(name("attn_k"), kKvHeads * kHead, kHidden);
      Matrix(name("attn_v"), kKvHeads * kHead, kHidden);
      Matrix(name("attn_output"), kHidden, kHeads * kHead);
      Matrix(name("ffn_gate"), kWidth, kHidden);
      Matrix(name("ffn_up"), kWidth, kHidden);
      Matrix(name("ffn_down"), kHidden, kWidth);
    }
  }

  TestGguf blocks, values;

 private:
  void Matrix(const std::string& name, size_t rows, size_t cols) {
    const std::vector<uint8_t> stored = kernels::RandomBlocks(code_, rows, cols, ++seed_);
    std::vector<float> decoded(rows * cols);
    DecodeRows(code_, stored.data(), rows, cols, decoded.data());
    Add(blocks, name, {cols, rows}, type_, stored);
    Add(values, name, {cols, rows}, TensorType::kF32, decoded);
  }
  void Ones(const std::string& name) {
    const std::vector<float> ones(kHidden, 1.0f);
    for (TestGguf* file : {&blocks, &values}) Add(*file, name, {kHidden}, TensorType::kF32, ones);
  }
  template <typename T>
  static void Add(TestGguf& file, const std::string& name, const std::vector<uint64_t>& dims,
                  TensorType type, const std::vector<T>& data) {
    file.Tensor(name, dims, type,
                {reinterpret_cast<const char*>(data.data()), data.size() * sizeof(T)});
  }

  const TensorType type_;
  const Code code_;
  uint32_t seed_ = 0;
};

std::vector<std::vector<float>> Logits(const std::string& path, kernels::Ops& ops, int32_t n_stages,
                                       int32_t chunk_tokens) {
  auto run = PipelineRun::Load({.model_dir = path, .n_stages = n_stages}, &ops);
  INFO(run.status());
  REQUIRE(run.ok());
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 21; ++i) ids.push_back(i * 7 % static_cast<int32_t>(kVocab));
  TestSequence sequence = (*run)->NewSequence(ids);
  return (*run)->Prefill(&sequence, chunk_tokens);
}

float LargestDifference(const std::vector<std::vector<float>>& a,
                        const std::vector<std::vector<float>>& b) {
  REQUIRE(a.size() == b.size());
  float largest = 0;
  for (size_t row = 0; row < a.size(); ++row) {
    REQUIRE(a[row].size() == b[row].size());
    for (size_t i = 0; i < a[row].size(); ++i) {
      largest = std::max(largest, std::abs(a[row][i] - b[row][i]));
    }
  }
  return largest;
}

TEST_CASE("a GGUF model whose blocks stay as stored gives the results of their values") {
  for (const TensorType type :
       {TensorType::kQ8_0, TensorType::kQ5_0, TensorType::kQ4_0, TensorType::kQ4_K,
        TensorType::kQ5_K, TensorType::kQ6_K, TensorType::kIQ4_NL, TensorType::kIQ4_XS}) {
    const TwoFiles files(type);
    TempDir dir;
    dir.Write("blocks.gguf", files.blocks.Bytes());
    dir.Write("values.gguf", files.values.Bytes());
    for (const Backend& backend : Backends()) {
      INFO(gguf::TensorTypeName(type) << " on " << backend.name);
      const auto as_stored = Logits(dir.File("blocks.gguf"), *backend.ops, 1, 64);
      CHECK(LargestDifference(as_stored, Logits(dir.File("values.gguf"), *backend.ops, 1, 64)) <
            kTolerance);
      for (const int32_t n_stages : {2, 4}) {
        CHECK(Logits(dir.File("blocks.gguf"), *backend.ops, n_stages, 4) == as_stored);
      }
    }
  }
}

// A Gemma of one layer. `table`: the type of its embeddings, whose values are the same in Q8_0 and
// in bfloat16. The head is apart: on some CPUs a product with bfloat16 weights rounds its inputs.
TestGguf Gemma(TensorType table) {
  constexpr size_t kCols = 96;  // its root, Gemma's scale of embeddings, is no bfloat16
  TestGguf file;
  file.String("general.architecture", "gemma");
  file.Uint("gemma.block_count", 1);
  file.Uint("gemma.embedding_length", kCols);
  file.Uint("gemma.feed_forward_length", kCols);
  file.Uint("gemma.attention.head_count", 1);
  file.Uint("gemma.attention.head_count_kv", 1);
  file.Uint("gemma.attention.key_length", kHead);
  file.Uint("gemma.context_length", 512);
  file.Float("gemma.attention.layer_norm_rms_epsilon", 1e-6f);
  std::string blocks, halves;
  for (size_t i = 0; i < kVocab * kCols; ++i) {
    const auto code = static_cast<int8_t>(static_cast<int>(i * 37 % 255) - 127);
    if (i % 32 == 0) blocks += TestGguf::Raw(F16FromFloat(0x1p-6f));
    blocks += TestGguf::Raw(code);
    halves += TestGguf::Raw(BF16FromFloat(static_cast<float>(code) * 0x1p-6f));
  }
  file.Tensor("token_embd.weight", {kCols, kVocab}, table,
              table == TensorType::kQ8_0 ? blocks : halves);
  uint32_t seed = 0;
  const auto add = [&](const std::string& name, const std::vector<uint64_t>& dims) {
    std::string values;
    uint64_t n = 1;
    for (const uint64_t dim : dims) n *= dim;
    for (uint64_t i = 0; i < n; ++i) {
      seed = seed * 1664525 + 1013904223;
      values += TestGguf::Raw(static_cast<float>(seed >> 8) * 0x1p-24f - 0.5f);
    }
    file.Tensor(name, dims, TensorType::kF32, values);
  };
  add("output.weight", {kCols, kVocab});
  for (const char* norm : {"output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"}) {
    add(fmt::format("{}.weight", norm), {kCols});
  }
  for (const char* part : {"q", "k", "v"}) {
    add(fmt::format("blk.0.attn_{}.weight", part), {kCols, kHead});
  }
  add("blk.0.attn_output.weight", {kHead, kCols});
  for (const char* part : {"gate", "up", "down"}) {
    add(fmt::format("blk.0.ffn_{}.weight", part), {kCols, kCols});
  }
  return file;
}

TEST_CASE("Gemma's scale of embeddings does not depend on how a GGUF file stores them") {
  TempDir dir;
  dir.Write("blocks.gguf", Gemma(TensorType::kQ8_0).Bytes());
  dir.Write("halves.gguf", Gemma(TensorType::kBF16).Bytes());
  const auto ops = kernels::MakeCpuOps({.n_threads = 1});
  CHECK(LargestDifference(Logits(dir.File("blocks.gguf"), *ops, 1, 64),
                          Logits(dir.File("halves.gguf"), *ops, 1, 64)) == 0);
}

}  // namespace
}  // namespace stagecoach
