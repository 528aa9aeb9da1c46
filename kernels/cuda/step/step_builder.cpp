#include "kernels/cuda/step/step_builder.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "common/check.h"
#include "common/status.h"
#include "kernels/cuda/attention/hopper_packed_prefill.h"
#include "kernels/cuda/attention/wide_attention.h"
#include "kernels/cuda/device/device_buffer.h"

namespace stagecoach::kernels::cuda {
namespace {

// Size limit for the partial results of fixed units, computed for kUsualSlots slots. The real
// number of slots must not matter: the unit size sets the order of additions.
constexpr int64_t kMaxStateBytes = int64_t{256} << 20;
constexpr int32_t kUsualSlots = 256;
// Minimum size of fixed units, in KV blocks: 512 tokens.
constexpr int32_t kLeastFixedBlocks = 32;

AttentionSetup SetupFor(const Stream& stream, const StepLimits& limits, bool fixed_units) {
  const bool is_packed = stream.is_hopper && limits.kv_dtype != DType::kFp8 &&
                         HasHopperPackedPrefill(limits.act_dtype, limits.head_dim);
  AttentionSetup setup{.fixed_units = fixed_units,
                       .unit_blocks = fixed_units ? kLeastFixedBlocks : 1,
                       .prefill_rows = is_packed ? kHopperPackedRows : kPrefillRows};
  if (!fixed_units) return setup;
  const auto bytes = [&] {
    return NeedsOf(stream, setup, limits.n_heads, limits.n_kv_heads, limits.head_dim, kUsualSlots,
                   limits.max_blocks)
               .n_floats *
           static_cast<int64_t>(sizeof(float));
  };
  while (bytes() > kMaxStateBytes && setup.unit_blocks < limits.max_blocks) setup.unit_blocks *= 2;
  return setup;
}

int32_t KvHeadsOf(const StepLimits& limits, const GroupLimits& group) {
  return group.n_kv_heads > 0 ? group.n_kv_heads : limits.n_kv_heads;
}

// The setup of a group; `usual` is that of the limits' heads.
AttentionSetup SetupOf(const StepLimits& limits, const GroupLimits& group,
                       const AttentionSetup& usual) {
  const WideShape wide = WideShapeOf(limits, group);
  if (wide.value_dim == 0) return usual;
  return {.fixed_units = usual.fixed_units,
          .unit_blocks = kLeastFixedBlocks,
          .prefill_rows = kFewWideRows,  // at least as many
          .wide = wide};
}

// Rows per tile of Hopper's dense kernel; 0: the kernel is not used.
int32_t HopperRowsFor(const Stream& stream, const StepLimits& limits, bool fixed_units) {
  const bool entries_fit = int64_t{limits.max_slots} * limits.max_blocks <= INT32_MAX;
  if (!stream.is_hopper || fixed_units || !entries_fit || !HasUsualFullGroup(limits)) return 0;
  return HopperTileRows(limits.act_dtype, limits.head_dim, limits.has_softcap);
}

// Splits memory that starts at a multiple of 64 bytes into aligned parts. Null memory: only counts
// bytes.
class Parts {
 public:
  explicit Parts(void* memory) : memory_(static_cast<unsigned char*>(memory)) {}
  template <typename T>
  T* Take(size_t n) {
    T* const taken = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + n_bytes_);
    n_bytes_ += (n * sizeof(T) + 63) / 64 * 64;
    return taken;
  }
  // Stores a copy of `values`.
  template <typename T>
  T* Put(std::span<const T> values) {
    T* const to = Take<T>(values.size());
    if (to != nullptr && !values.empty()) std::memcpy(to, values.data(), values.size_bytes());
    return to;
  }
  size_t n_bytes() const { return n_bytes_; }

 private:
  unsigned char* const memory_;
  size_t n_bytes_ = 0;
};

// Lays out the arrays in `memory` and returns the number of bytes. Null memory: only counts bytes.
size_t LayOut(const Stream& stream, const StepLimits& limits, const AttentionNeeds& needs,
              void* memory, CudaStepInputs* inputs) {
  const size_t tokens = static_cast<size_t>(limits.max_tokens);
  const size_t slots = static_cast<size_t>(limits.max_slots);
  const auto prefill_blocks = static_cast<size_t>(MaxPrefillBlocks(stream));
  Parts parts(memory);
  StepParams& p = inputs->params;
  p.token_ids = parts.Take<int32_t>(tokens);
  p.positions = parts.Take<int32_t>(tokens);
  p.seq_starts = parts.Take<int32_t>(slots + 1);
  p.seq_positions = parts.Take<int32_t>(slots);
  p.seq_slots = parts.Take<int32_t>(slots);
  p.n_seqs_out = parts.Take<int32_t>(1);
  p.n_decodes_out = parts.Take<int32_t>(1);
  p.decodes = parts.Take<PlannedDecode>(slots);
  p.hopper = parts.Take<int32_t>(HopperWorks::MaxArrays(stream, limits, inputs->works));
  p.saves = parts.Take<SeqSave>(limits.has_states ? slots : 0);
  int32_t* const sampled = parts.Take<int32_t>(slots);
  const size_t shares =
      inputs->setup.fixed_units ? 0 : static_cast<size_t>(MaxDecodeBlocks(stream));
  p.sampled = sampled;
  for (size_t g = 0; g < limits.groups.size(); ++g) {
    const auto kv_heads = static_cast<size_t>(KvHeadsOf(limits, limits.groups[g]));
    const size_t tiles = tokens * (static_cast<size_t>(limits.n_heads) / kv_heads) /
                             static_cast<size_t>(inputs->setups[g].prefill_rows) +
                         slots;
    p.groups[g] = {
        .kv_slots = parts.Take<int32_t>(tokens),
        .block_tables = parts.Take<int32_t>(slots * static_cast<size_t>(limits.max_blocks)),
        .unit_starts = parts.Take<int32_t>(slots + 1),
        .shares = parts.Take<DecodeShare>(shares),
        .part_starts = parts.Take<int32_t>(prefill_blocks + 1),
        .parts = parts.Take<PrefillPart>(tiles * kv_heads + prefill_blocks),
        .merges = parts.Take<PrefillMerge>(prefill_blocks)};
  }
  inputs->attention_memory = {
      .states = parts.Take<float>(static_cast<size_t>(needs.n_floats)),
      .counters = parts.Take<int32_t>(static_cast<size_t>(needs.n_counters)),
      .tickets = parts.Take<uint32_t>(1)};
  inputs->sampled = sampled;
  return parts.n_bytes();
}

}  // namespace

size_t WantedScratchBytes(const Stream& stream, const StepLimits& limits, bool fixed_units) {
  if (HopperRowsFor(stream, limits, fixed_units) == 0) return 0;
  const int64_t max_keys = int64_t{limits.max_blocks} * kBlockTokens;
  return GatheredBytes(std::min(max_keys, kMostGathered), limits.n_kv_heads, limits.head_dim);
}

absl::StatusOr<std::unique_ptr<CudaStepInputs>> NewCudaStepInputs(const Stream& stream,
                                                                  const StepLimits& limits,
                                                                  bool fixed_units) {
  if (limits.groups.size() > static_cast<size_t>(kMaxKvGroups)) {
    return absl::UnimplementedError("a model with more than 16 attention windows");
  }
  auto inputs = std::make_unique<CudaStepInputs>();
  inputs->limits = limits;
  inputs->setup = SetupFor(stream, limits, fixed_units);
  for (const GroupLimits& group : limits.groups) {
    inputs->setups.push_back(SetupOf(limits, group, inputs->setup));
  }
  inputs->works = {.tile_rows = HopperRowsFor(stream, limits, fixed_units),
                   .others_packed = inputs->setup.prefill_rows == kHopperPackedRows,
                   .other_tile_rows = inputs->setup.prefill_rows};
  if (inputs->works.tile_rows > 0) {
    inputs->gathered = GatheredIn(limits.attention_scratch, limits.attention_scratch_bytes,
                                  limits.n_kv_heads, limits.head_dim);
    inputs->works.capacity = inputs->gathered.capacity;
  }
  AttentionNeeds needs;
  for (size_t g = 0; g < limits.groups.size(); ++g) {
    const bool is_wide = inputs->setups[g].is_wide();
    if (!is_wide && !HasUsualHeads(limits, limits.groups[g])) continue;  // GenericAttention
    const AttentionNeeds of_group =
        is_wide ? WideNeeds(stream, inputs->setups[g])
                : NeedsOf(stream, inputs->setup, limits.n_heads, limits.n_kv_heads, limits.head_dim,
                          limits.max_slots, limits.max_blocks);
    if (!is_wide) {
      inputs->max_part_states = MaxPartStates(stream, inputs->setup, of_group, limits.head_dim);
    }
    needs.n_floats = std::max(needs.n_floats, of_group.n_floats);
    needs.n_counters = std::max(needs.n_counters, of_group.n_counters);
  }
  const size_t n_bytes = LayOut(stream, limits, needs, nullptr, inputs.get());
  SC_ASSIGN_OR_RETURN(inputs->memory, AllocateDevice(n_bytes));
  SC_RETURN_IF_ERROR(ToStatus(cudaMemsetAsync(inputs->memory.data.get(), 0, n_bytes, stream.handle),
                              "cannot clear memory"));
  LayOut(stream, limits, needs, inputs->memory.data.get(), inputs.get());
  StepParams& p = inputs->params;
  p.n_groups = static_cast<int32_t>(limits.groups.size());
  p.block_table_stride = limits.max_blocks;
  inputs->token_ids = p.token_ids;
  inputs->positions = p.positions;
  inputs->seq_starts = p.seq_starts;
  inputs->seq_positions = p.seq_positions;
  inputs->seq_slots = p.seq_slots;
  inputs->block_table_stride = limits.max_blocks;
  inputs->n_bytes = n_bytes;
  for (size_t g = 0; g < limits.groups.size(); ++g) {
    inputs->groups.push_back({p.groups[g].kv_slots, p.groups[g].block_tables});
    inputs->plans.push_back({.n_seqs = p.n_seqs_out,
                             .n_decodes = p.n_decodes_out,
                             .decodes = p.decodes,
                             .unit_starts = p.groups[g].unit_starts,
                             .shares = p.groups[g].shares,
                             .decode_shape = {},
                             .max_decodes = 0,
                             .part_starts = p.groups[g].part_starts,
                             .parts = p.groups[g].parts,
                             .merges = p.groups[g].merges,
                             .n_prefill_blocks = 0,
                             .n_merges = 0,
                             .tile_rows = 0,
                             .hopper = {}});
  }
  return inputs;
}

absl::Status StepBuilder::ApplyBlocks(const StepBatch& batch, CudaStepInputs* inputs) {
  constexpr size_t kMostAtOnce = HostRing::kSegmentBytes / sizeof(NewBlock);
  for (size_t first = 0; first < batch.new_blocks.size(); first += kMostAtOnce) {
    const auto entries =
        batch.new_blocks.subspan(first, std::min(kMostAtOnce, batch.new_blocks.size() - first));
    SC_ASSIGN_OR_RETURN(void* const staged, ring_->Take(entries.size_bytes()));
    std::memcpy(staged, entries.data(), entries.size_bytes());
    StepParams params = inputs->params;
    params.new_blocks = static_cast<const NewBlock*>(staged);
    params.n_new_blocks = static_cast<int32_t>(entries.size());
    SC_RETURN_IF_ERROR(ToStatus(ApplyNewBlocks(*stream_, params), "a step's blocks"));
  }
  return absl::OkStatus();
}

void StepBuilder::PlanPrefill(const StepBatch& batch, const CudaStepInputs& inputs, size_t group) {
  const StepLimits& limits = inputs.limits;
  const AttentionSetup& setup = inputs.setups[group];
  const KeyWindow window = limits.groups[group].window;
  const int32_t n_kv_heads = KvHeadsOf(limits, limits.groups[group]);
  const int32_t heads = limits.n_heads / n_kv_heads;
  const bool is_wide = setup.is_wide();
  const bool decodes_only = std::all_of(batch.seqs.begin(), batch.seqs.end(),
                                        [](const StepSeq& seq) { return seq.n_tokens == 1; });
  const int32_t rows = is_wide ? WideTileRows(*stream_, heads, decodes_only) : setup.prefill_rows;
  tile_rows_.push_back(rows);
  tiles_.clear();
  for (size_t s = 0; s < batch.seqs.size(); ++s) {
    const StepSeq& seq = batch.seqs[s];
    // Hopper's dense kernel does not support windows.
    if (!is_wide && (seq.n_tokens == 1 || (window == 0 && works_.Has(s)))) continue;
    for (int32_t first = 0; first < seq.n_tokens * heads; first += rows) {
      const int32_t last = std::min(first + rows, seq.n_tokens * heads) - 1;
      const int32_t first_key = window.First(seq.position + first / heads);
      tiles_.push_back({.seq = static_cast<int32_t>(s),
                        .first_row = first,
                        .first_key_tile = first_key / kKeyTile,
                        .end_key_tile = (seq.position + last / heads) / kKeyTile + 1});
    }
  }
  if (tiles_.empty()) {
    prefill_.emplace_back();
    return;
  }
  prefill_.push_back(SharePrefill(
      tiles_,
      {.n_blocks =
           is_wide ? NWideBlocks(*stream_, rows) : NPrefillBlocks(*stream_, setup, limits.head_dim),
       .n_kv_heads = n_kv_heads,
       .unit_tiles = setup.fixed_units ? setup.unit_blocks / kKeyTileBlocks : 0,
       .max_states = is_wide ? MaxWideStates(*stream_, setup, rows) : inputs.max_part_states}));
  // A recording launches as many merges for each step. Those without states do nothing.
  if (is_wide) prefill_.back().merges.resize(prefill_.back().starts.size() - 1);
}

// If a sequence gets blocks for positions before its current one, the blocks belong to another
// sequence (prefix match). That sequence may still fill them in this step.
void StepBuilder::FindAdopters(const StepBatch& batch, int32_t max_slots) {
  first_new_blocks_.assign(static_cast<size_t>(max_slots), INT32_MAX);
  for (const NewBlock& entry : batch.new_blocks) {
    int32_t& first = first_new_blocks_[static_cast<size_t>(entry.slot)];
    if (entry.block >= 0) first = std::min(first, entry.index);
  }
}

void StepBuilder::Plan(const StepBatch& batch, const CudaStepInputs& inputs) {
  const StepLimits& limits = inputs.limits;
  starts_.clear();
  row_seqs_.clear();
  decodes_.clear();
  FindAdopters(batch, limits.max_slots);
  int32_t row = 0;
  for (size_t s = 0; s < batch.seqs.size(); ++s) {
    const StepSeq& seq = batch.seqs[s];
    SC_CHECK(seq.slot >= 0 && seq.slot < limits.max_slots && seq.n_tokens > 0);
    SC_CHECK((seq.position + seq.n_tokens - 1) / kBlockTokens < limits.max_blocks);
    starts_.push_back(row);
    row_seqs_.insert(row_seqs_.end(), static_cast<size_t>(seq.n_tokens), static_cast<int32_t>(s));
    if (seq.n_tokens == 1) {
      const int32_t first_new = first_new_blocks_[static_cast<size_t>(seq.slot)];
      const bool adopts = first_new < seq.position / kBlockTokens;
      decodes_.push_back({row, seq.slot, seq.position, adopts ? 0 : seq.position});
    }
    row += seq.n_tokens;
  }
  SC_CHECK(row == batch.n_tokens);
  starts_.push_back(row);

  works_.Choose(*stream_, limits, inputs.works, batch.seqs);
  if (!works_.empty()) works_.Plan(*stream_, limits, batch.seqs, starts_);
  prefill_.clear();
  tile_rows_.clear();
  for (size_t g = 0; g < limits.groups.size(); ++g) PlanPrefill(batch, inputs, g);

  unit_starts_.clear();
  shares_.clear();
  const int32_t n_passes = limits.n_kv_heads * DecodePasses(limits.n_heads, limits.n_kv_heads);
  // A replayed recording for more rows has at most this many decodes.
  decode_shape_ =
      inputs.setup.fixed_units || decodes_.empty()
          ? DecodeShape{}
          : DecodeShapeFor(*stream_, static_cast<int32_t>(decodes_.size()) + batch.n_padding,
                           n_passes, limits.head_dim, limits.kv_dtype == DType::kFp8);
  const int32_t chunk_rows_log2 =
      ChunkRowsLog2(limits.kv_dtype, limits.n_kv_heads, limits.head_dim);
  if (stream_->l2.known() && chunk_rows_log2 >= 0 && decode_shape_.n_warps == kManyTilesWarps) {
    decode_shape_.n_sides = 2;
    decode_shape_.chunk_rows_log2 = chunk_rows_log2;
  }
  for (const GroupLimits& group : limits.groups) {
    int32_t n_units = 0;
    const size_t first = unit_starts_.size();
    for (const PlannedDecode& decode : decodes_) {
      unit_starts_.push_back(n_units);
      n_units += NUnits(decode.position, group.window, inputs.setup.unit_blocks);
    }
    unit_starts_.push_back(n_units);
    const auto n_shares = static_cast<size_t>(decode_shape_.n_blocks);
    shares_.resize(shares_.size() + n_shares);
    if (n_shares == 0) continue;
    ShareDecodes(std::span(unit_starts_).subspan(first), n_passes, decode_shape_,
                 std::span(shares_).last(n_shares));
  }
}

absl::Status StepBuilder::Build(const StepBatch& batch, CudaStepInputs* inputs) {
  const StepLimits& limits = inputs->limits;
  SC_CHECK(batch.n_tokens + batch.n_padding <= limits.max_tokens);
  SC_CHECK(batch.seqs.size() <= static_cast<size_t>(limits.max_slots));
  SC_CHECK(batch.token_ids.empty() ||
           batch.token_ids.size() == static_cast<size_t>(batch.n_tokens));
  SC_RETURN_IF_ERROR(ApplyBlocks(batch, inputs));
  Plan(batch, *inputs);
  SC_CHECK(batch.state_saves.empty() || limits.has_states);
  saves_.assign(limits.has_states ? batch.seqs.size() : 0, {.n_rows = 0, .to = 0});
  for (const StateSave& save : batch.state_saves) {
    saves_[static_cast<size_t>(save.seq)] = {save.n_rows, save.to};
  }

  const auto put_all = [&](void* memory, StepParams* params) {
    Parts parts(memory);
    params->new_seqs = parts.Put(batch.seqs);
    params->new_starts = parts.Put(std::span<const int32_t>(starts_));
    params->row_seqs = parts.Put(std::span<const int32_t>(row_seqs_));
    params->new_token_ids = batch.token_ids.empty() ? nullptr : parts.Put(batch.token_ids);
    params->new_decodes = parts.Put(std::span<const PlannedDecode>(decodes_));
    params->new_unit_starts = parts.Put(std::span<const int32_t>(unit_starts_));
    params->new_shares = parts.Put(std::span<const DecodeShare>(shares_));
    params->new_hopper = parts.Put(std::span<const int32_t>(works_.arrays()));
    params->new_saves = saves_.empty() ? nullptr : parts.Put(std::span<const SeqSave>(saves_));
    for (size_t g = 0; g < prefill_.size(); ++g) {
      StepParams::Group& group = params->groups[g];
      group.new_part_starts = parts.Put(std::span<const int32_t>(prefill_[g].starts));
      group.new_parts = parts.Put(std::span<const PrefillPart>(prefill_[g].parts));
      group.new_merges = parts.Put(std::span<const PrefillMerge>(prefill_[g].merges));
    }
    return parts.n_bytes();
  };
  StepParams params = inputs->params;
  SC_ASSIGN_OR_RETURN(void* const staged, ring_->Take(put_all(nullptr, &params)));
  put_all(staged, &params);
  params.n_seqs = static_cast<int32_t>(batch.seqs.size());
  params.n_tokens = batch.n_tokens;
  params.n_rows = batch.n_tokens + batch.n_padding;
  params.n_decodes = static_cast<int32_t>(decodes_.size());
  params.n_shares = decode_shape_.n_blocks;
  params.n_hopper = works_.empty() ? 0 : static_cast<int32_t>(works_.arrays().size());
  for (size_t g = 0; g < prefill_.size(); ++g) {
    params.groups[g].n_part_starts = static_cast<int32_t>(prefill_[g].starts.size());
    params.groups[g].n_parts = static_cast<int32_t>(prefill_[g].parts.size());
    params.groups[g].n_merges = static_cast<int32_t>(prefill_[g].merges.size());
  }
  SC_RETURN_IF_ERROR(ToStatus(BuildRows(*stream_, params), "a step's rows"));

  inputs->n_tokens = params.n_rows;
  inputs->n_seqs = params.n_seqs;
  inputs->max_seqs = params.n_seqs + batch.n_padding;
  for (size_t g = 0; g < inputs->plans.size(); ++g) {
    AttentionPlan& plan = inputs->plans[g];
    plan.n_prefill_blocks = std::max(params.groups[g].n_part_starts - 1, 0);
    plan.n_merges = params.groups[g].n_merges;
    plan.tile_rows = tile_rows_[g];
    plan.hopper = limits.groups[g].window == 0 && !works_.empty()
                      ? works_.At(*stream_, inputs->params.hopper)
                      : HopperPlan{};
    plan.decode_shape = decode_shape_;
    plan.max_decodes = params.n_decodes == 0 ? 0 : params.n_decodes + batch.n_padding;
  }
  return absl::OkStatus();
}

}  // namespace stagecoach::kernels::cuda
