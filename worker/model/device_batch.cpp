#include "worker/model/device_batch.h"

#include "common/check.h"
#include "common/status.h"

namespace stagecoach::worker {
namespace {

void Copy(std::span<const int32_t> host, int32_t* device, kernels::Ops* ops) {
  if (!host.empty()) ops->Upload(host.data(), device, host.size_bytes());
}

}  // namespace

absl::StatusOr<DeviceBatch> DeviceBatch::Allocate(const DeviceBatchLimits& limits,
                                                  kernels::Ops* ops) {
  const size_t tokens = static_cast<size_t>(limits.max_tokens);
  const size_t sequences = static_cast<size_t>(limits.max_sequences);
  const size_t table = sequences * static_cast<size_t>(limits.max_blocks);
  const size_t groups = static_cast<size_t>(limits.n_groups);
  const size_t n = 2 * tokens + 2 * sequences + 1 + groups * (tokens + table);

  DeviceBatch batch;
  batch.limits_ = limits;
  SC_ASSIGN_OR_RETURN(batch.buffer_, ops->Allocate(n * sizeof(int32_t)));
  int32_t* next = batch.buffer_.As<int32_t>();
  const auto take = [&](size_t size) {
    int32_t* const taken = next;
    next += size;
    return taken;
  };
  batch.token_ids_ = take(tokens);
  batch.positions_ = take(tokens);
  batch.seq_starts_ = take(sequences + 1);
  batch.seq_positions_ = take(sequences);
  for (size_t g = 0; g < groups; ++g) batch.groups_.push_back({take(tokens), take(table), 0});
  return batch;
}

void DeviceBatch::Upload(const StepBatch& batch, kernels::Ops* ops) {
  n_tokens_ = batch.n_tokens();
  n_seqs_ = batch.n_seqs();
  SC_CHECK(n_tokens_ <= limits_.max_tokens && n_seqs_ <= limits_.max_sequences);
  SC_CHECK(batch.token_ids.size() <= batch.positions.size());
  SC_CHECK(batch.seq_starts.size() == batch.seq_positions.size() + 1);
  SC_CHECK(batch.groups.size() == groups_.size());
  Copy(batch.token_ids, token_ids_, ops);
  Copy(batch.positions, positions_, ops);
  Copy(batch.seq_starts, seq_starts_, ops);
  Copy(batch.seq_positions, seq_positions_, ops);
  for (size_t g = 0; g < groups_.size(); ++g) {
    const StepBatch::Group& from = batch.groups[g];
    SC_CHECK(from.kv_slots.size() == batch.positions.size());
    SC_CHECK(from.block_table_stride <= limits_.max_blocks);
    SC_CHECK(from.block_tables.size() ==
             batch.seq_positions.size() * static_cast<size_t>(from.block_table_stride));
    groups_[g].block_table_stride = from.block_table_stride;
    Copy(from.kv_slots, groups_[g].kv_slots, ops);
    Copy(from.block_tables, groups_[g].block_tables, ops);
  }
}

}  // namespace stagecoach::worker
