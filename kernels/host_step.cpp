#include "kernels/host_step.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "common/check.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels {
namespace {

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

struct HostStepInputs final : StepInputs {
  StepLimits limits;
  std::unique_ptr<int32_t[], Free> memory;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StepInputs>> NewHostStepInputs(const StepLimits& limits) {
  const size_t tokens = static_cast<size_t>(limits.max_tokens);
  const size_t slots = static_cast<size_t>(limits.max_slots);
  const size_t table = slots * static_cast<size_t>(limits.max_blocks);
  const size_t n = 2 * tokens + 4 * slots + 1 + limits.groups.size() * (tokens + table);
  auto inputs = std::make_unique<HostStepInputs>();
  inputs->limits = limits;
  inputs->n_bytes = n * sizeof(int32_t);
  inputs->memory.reset(static_cast<int32_t*>(std::calloc(n, sizeof(int32_t))));
  if (inputs->memory == nullptr) {
    return absl::ResourceExhaustedError("no memory for the block tables of " +
                                        std::to_string(slots) + " sequences (" +
                                        std::to_string(inputs->n_bytes) + " bytes)");
  }
  int32_t* next = inputs->memory.get();
  const auto take = [&next](size_t size) {
    int32_t* const taken = next;
    next += size;
    return taken;
  };
  inputs->token_ids = take(tokens);
  inputs->positions = take(tokens);
  inputs->seq_starts = take(slots + 1);
  inputs->seq_positions = take(slots);
  inputs->seq_slots = take(slots);
  inputs->sampled = take(slots);
  inputs->block_table_stride = limits.max_blocks;
  for (size_t g = 0; g < limits.groups.size(); ++g) {
    int32_t* const kv_slots = take(tokens);
    inputs->groups.push_back({kv_slots, take(table)});
  }
  return inputs;
}

void BuildHostStep(const StepBatch& batch, StepInputs* inputs) {
  const StepLimits& limits = static_cast<HostStepInputs*>(inputs)->limits;
  SC_CHECK(batch.n_tokens <= limits.max_tokens && batch.n_padding == 0);
  SC_CHECK(batch.seqs.size() <= static_cast<size_t>(limits.max_slots));
  SC_CHECK(batch.token_ids.empty() ||
           batch.token_ids.size() == static_cast<size_t>(batch.n_tokens));
  const size_t stride = static_cast<size_t>(limits.max_blocks);
  for (const NewBlock& entry : batch.new_blocks) {
    SC_CHECK(entry.slot < limits.max_slots && entry.index < limits.max_blocks);
    int32_t* const tables = inputs->groups[static_cast<size_t>(entry.group)].block_tables;
    tables[static_cast<size_t>(entry.slot) * stride + static_cast<size_t>(entry.index)] =
        entry.block;
  }
  inputs->n_tokens = batch.n_tokens;
  inputs->n_seqs = static_cast<int32_t>(batch.seqs.size());
  int32_t row = 0;
  for (size_t s = 0; s < batch.seqs.size(); ++s) {
    const StepSeq& seq = batch.seqs[s];
    inputs->seq_starts[s] = row;
    inputs->seq_positions[s] = seq.position;
    inputs->seq_slots[s] = seq.slot;
    for (int32_t i = 0; i < seq.n_tokens; ++i) inputs->positions[row + i] = seq.position + i;
    for (const StepInputs::Group& group : inputs->groups) {
      const int32_t* const table = group.block_tables + static_cast<size_t>(seq.slot) * stride;
      for (int32_t i = 0; i < seq.n_tokens; ++i) {
        const int32_t position = seq.position + i;
        group.kv_slots[row + i] =
            table[position / kBlockTokens] * kBlockTokens + position % kBlockTokens;
      }
    }
    if (!batch.token_ids.empty()) {
      for (int32_t i = row; i < row + seq.n_tokens; ++i) {
        const int32_t id = batch.token_ids[static_cast<size_t>(i)];
        inputs->token_ids[i] = id == kSampledToken ? inputs->sampled[seq.slot] : id;
      }
    }
    row += seq.n_tokens;
  }
  SC_CHECK(row == batch.n_tokens);
  inputs->seq_starts[batch.seqs.size()] = row;
}

void KeepSampled(const SampleArgs& args) {
  if (args.sampled == nullptr) return;
  for (size_t r = 0; r < args.rows.size(); ++r) {
    if (args.rows[r].slot >= 0) args.sampled[args.rows[r].slot] = args.out[r].token;
  }
}

}  // namespace stagecoach::kernels
