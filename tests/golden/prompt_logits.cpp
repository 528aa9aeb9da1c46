// Computes the logits of every position of a prompt with the kernels for CPUs, for comparisons that
// need whole distributions, which no API sends (tests/bench/format_quality.py).
//
//   prompt_logits MODEL [--dtype float32] [--kv-dtype fp8] < IDS > LOGITS
//
// IDS are int32. LOGITS are float32 [number of ids, vocab_size]. Weights and the KV cache have the
// types that a server with the same flags has.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "common/config/load_config.h"
#include "common/flags/flag_table.h"
#include "common/flags/pipeline_flags.h"
#include "kernels/cpu/cpu_ops.h"
#include "tests/golden/pipeline_run.h"

namespace stagecoach {
namespace {

constexpr size_t kRows = 64;  // at a time, because a row can have a megabyte

std::vector<int32_t> ReadIds() {
  std::vector<int32_t> ids;
  int32_t id;
  while (std::fread(&id, sizeof(id), 1, stdin) == 1) ids.push_back(id);
  return ids;
}

// Writes the logits of all ids up to the end of the input.
absl::Status WriteLogits(const std::string& model_dir, const v1::LoadConfig& config,
                         int32_t n_threads) {
  const std::vector<int32_t> ids = ReadIds();
  const auto ops = kernels::MakeCpuOps({.n_threads = n_threads});
  const uint64_t n_blocks = ids.size() / kernels::kBlockTokens + 1;
  auto run = PipelineRun::Load({.model_dir = model_dir,
                                .dtype = DTypeOf(config),
                                .kv_dtype = config.kv_dtype(),
                                .max_batched_tokens = kRows,
                                .max_model_len = static_cast<int32_t>(ids.size()),
                                .n_blocks = n_blocks},
                               ops.get());
  if (!run.ok()) return run.status();
  TestSequence sequence = (*run)->NewSequence({});
  for (size_t begin = 0; begin < ids.size(); begin += kRows) {
    const auto first = ids.begin() + static_cast<ptrdiff_t>(begin);
    const auto n = static_cast<ptrdiff_t>(std::min(kRows, ids.size() - begin));
    sequence.ids.insert(sequence.ids.end(), first, first + n);
    for (const std::vector<float>& row : (*run)->Prefill(&sequence, kRows)) {
      if (std::fwrite(row.data(), sizeof(float), row.size(), stdout) != row.size()) {
        return absl::DataLossError("cannot write to standard output");
      }
    }
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  std::string model_dir;
  v1::LoadConfig config;
  int32_t n_threads = 0;
  CLI::App app("Writes the logits of each position of a prompt: int32 ids in, float32 logits out");
  app.add_option("model", model_dir, "Folder or .gguf file")->required();
  FlagTable table(app);
  DeclareDType(table, config);
  DeclareKvDType(table, config);
  app.add_option("--threads", n_threads, "0: one per core")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = WriteLogits(model_dir, config, n_threads);
  if (!status.ok()) fmt::print(stderr, "error: {}\n", std::string(status.message()));
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::Main(argc, argv); }
