#include "tests/golden/pipeline_run.h"

#include <algorithm>
#include <numeric>

#include "common/check.h"
#include "common/config/load_config.h"
#include "common/status.h"
#include "worker/model/passed_rows.h"

namespace stagecoach {

using kernels::kBlockTokens;

namespace {

// The stages' first layers, as even as the model allows, and its number of layers.
std::vector<int32_t> Borders(const ModelSpec& spec, int32_t n_stages) {
  int32_t last = spec.n_layers() - 1;
  while (!spec.CanBeginStage(last)) --last;
  std::vector<int32_t> borders;
  for (int32_t stage = 0; stage < n_stages; ++stage) {
    borders.push_back(std::min(spec.n_layers() * stage / n_stages, last - (n_stages - 1 - stage)));
  }
  borders.push_back(spec.n_layers());
  return borders;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PipelineRun>> PipelineRun::Load(const PipelineOptions& options,
                                                               kernels::Ops* ops) {
  SC_ASSIGN_OR_RETURN(const ModelSpec spec, ReadModelSpec(options.model_dir));
  std::unique_ptr<PipelineRun> run(new PipelineRun(ops));
  v1::LoadConfig& config = run->config_;
  config.set_adapter_dir(options.adapter_dir);
  config.set_dtype(ToProto(options.dtype));
  config.set_kv_dtype(options.kv_dtype);
  config.set_hidden_dtype(options.hidden_dtype);
  if (options.dummy_weights) config.set_load_format(v1::LOAD_FORMAT_DUMMY);
  config.set_max_batched_tokens(options.max_batched_tokens);
  config.set_max_sequences(kMaxSequences);
  config.set_max_model_len(options.max_model_len);
  const std::vector<int32_t> borders = Borders(spec, options.n_stages);
  for (int32_t stage = 0; stage < options.n_stages; ++stage) {
    worker::StageModelOptions model;
    model.model_dir = options.model_dir;
    model.first_layer = borders[static_cast<size_t>(stage)];
    model.n_layers = borders[static_cast<size_t>(stage) + 1] - model.first_layer;
    model.is_first = stage == 0;
    model.is_last = stage + 1 == options.n_stages;
    model.config = config;
    SC_ASSIGN_OR_RETURN(auto loaded, worker::StageModel::Load(model, ops, nullptr));
    const std::vector<uint64_t> n_blocks(spec.kv_groups.size(), options.n_blocks);
    SC_RETURN_IF_ERROR(loaded->AllocateKv(n_blocks));
    SC_RETURN_IF_ERROR(loaded->AllocateStates(kMaxSequences));
    run->stages_.push_back(std::move(loaded));
  }
  std::mt19937 random(17);
  for (size_t group = 0; group < spec.kv_groups.size(); ++group) {
    std::vector<int32_t>& blocks = run->free_blocks_.emplace_back(options.n_blocks);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random);
  }
  return run;
}

absl::Status PipelineRun::Prepare() {
  for (const auto& stage : stages_) SC_RETURN_IF_ERROR(stage->Prepare({}));
  return absl::OkStatus();
}

TestSequence PipelineRun::NewSequence(std::vector<int32_t> ids) {
  TestSequence sequence;
  sequence.slot = n_sequences_++ % kMaxSequences;
  sequence.ids = std::move(ids);
  sequence.blocks.resize(free_blocks_.size());
  return sequence;
}

int32_t PipelineRun::TakeBlock(size_t group) {
  SC_CHECK(!free_blocks_[group].empty());
  const int32_t block = free_blocks_[group].back();
  free_blocks_[group].pop_back();
  return block;
}

void PipelineRun::Step(std::span<const Chunk> chunks, worker::LogitRows logit_rows) {
  std::vector<int32_t> ids;
  std::vector<kernels::StepSeq> seqs;
  std::vector<kernels::NewBlock> new_blocks;
  for (const Chunk& chunk : chunks) {
    TestSequence& sequence = *chunk.sequence;
    const int32_t end = sequence.n_done + chunk.n_tokens;
    ids.insert(ids.end(), sequence.ids.begin() + sequence.n_done, sequence.ids.begin() + end);
    seqs.push_back({sequence.slot, sequence.n_done, chunk.n_tokens});
    for (size_t g = 0; g < free_blocks_.size(); ++g) {
      std::vector<int32_t>& blocks = sequence.blocks[g];
      while (static_cast<int32_t>(blocks.size()) * kBlockTokens < end) {
        const int32_t index = static_cast<int32_t>(blocks.size());
        blocks.push_back(TakeBlock(g));
        new_blocks.push_back({static_cast<int32_t>(g), sequence.slot, index, blocks.back()});
      }
      // Frees the blocks that no row of this step can see, as the scheduler does.
      const int32_t first_seen = spec().kv_groups[g].window.First(sequence.n_done);
      for (int32_t b = 0; b < first_seen / kBlockTokens; ++b) {
        if (blocks[static_cast<size_t>(b)] < 0) continue;
        free_blocks_[g].insert(free_blocks_[g].begin(), blocks[static_cast<size_t>(b)]);
        blocks[static_cast<size_t>(b)] = -1;
      }
    }
  }
  kernels::StepBatch batch{.seqs = seqs,
                           .token_ids = ids,
                           .new_blocks = new_blocks,
                           .n_tokens = static_cast<int32_t>(ids.size())};
  std::vector<std::byte> passed(worker::PassedBytes(spec(), config_, ids.size()));
  for (size_t i = 0; i < stages_.size(); ++i) {
    worker::StageModel& stage = *stages_[i];
    if (i > 0) {
      batch.token_ids = {};
      ops_->Upload(passed.data(), stage.passed_buffer(), passed.size());
    }
    stage.Forward(batch, stage.hidden_buffer(),
                  i + 1 == stages_.size() ? logit_rows : std::nullopt);
    ops_->Download(stage.passed_buffer(), passed.data(), passed.size());
  }
  for (const Chunk& chunk : chunks) chunk.sequence->n_done += chunk.n_tokens;
}

std::vector<std::vector<float>> PipelineRun::Logits(std::span<const int32_t> rows) {
  worker::StageModel& last = *stages_.back();
  std::vector<std::vector<float>> result;
  while (!rows.empty()) {
    const size_t n = std::min(rows.size(), static_cast<size_t>(last.max_logit_rows()));
    const bool pools = spec().pooling.has_value();
    const float* const values = pools ? last.FinalHidden(last.hidden_buffer(), rows.first(n))
                                      : last.Logits(last.hidden_buffer(), rows.first(n));
    const size_t width = static_cast<size_t>(pools ? spec().hidden_size : spec().vocab_size);
    for (size_t r = 0; r < n; ++r) {
      std::vector<float>& row = result.emplace_back(width);
      ops_->Download(values + r * width, row.data(), width * sizeof(float));
    }
    rows = rows.subspan(n);
  }
  return result;
}

std::vector<std::vector<float>> PipelineRun::Prefill(TestSequence* sequence, int32_t chunk_tokens) {
  std::vector<std::vector<float>> result;
  while (sequence->n_done < static_cast<int32_t>(sequence->ids.size())) {
    const int32_t left = static_cast<int32_t>(sequence->ids.size()) - sequence->n_done;
    const Chunk chunk{sequence, std::min(left, chunk_tokens)};
    Step({&chunk, 1});
    std::vector<int32_t> rows(static_cast<size_t>(chunk.n_tokens));
    std::iota(rows.begin(), rows.end(), 0);
    for (std::vector<float>& row : Logits(rows)) result.push_back(std::move(row));
  }
  return result;
}

}  // namespace stagecoach
