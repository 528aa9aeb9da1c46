// The rows of experts: sorted by expert, and added up again.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/scratch_layout.h"
#include "kernels/cuda/packed/input_order.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

inline constexpr int32_t kMaxExperts = 1024;

// Whether a plain activation is all that lies between the two GEMMs.
inline bool IsPlain(const ExpertMlpArgs& args) {
  return args.up_bias == nullptr && args.clamped.limit <= 0;
}

// In how many parts pairs are sorted, side by side. For few pairs, a second kernel would take
// longer than it saves.
inline int32_t GroupingParts(int64_t n_pairs) {
  constexpr int64_t kFewPairs = 8192, kPairsOfPart = 1024, kMostParts = 128;
  if (n_pairs <= kFewPairs) return 1;
  return static_cast<int32_t>(std::min((n_pairs + kPairsOfPart - 1) / kPairsOfPart, kMostParts));
}

// Sorts pairs of a row and an expert by expert. P: number of pairs. One of groups and tiles is
// null.
struct GroupPairsArgs {
  const int32_t* experts;  // [P]
  int32_t n_pairs;
  int32_t n_experts;  // <= kMaxExperts
  int32_t tile_rows;  // of `groups` and `tiles`
  int32_t* n_tiles;   // [1]: number of groups or tiles
  RowGroup* groups;   // [n_tiles]
  RowTile* tiles;     // [n_tiles]
  int32_t* counts;    // [GroupingParts(P), n_experts]: scratch
  int32_t* order;     // [P]: the pairs, sorted
  int32_t* places;    // [P]: each pair's index in `order`
};
// The order of pairs within an expert is random: no result may depend on it.
cudaError_t GroupPairs(const Stream& stream, const GroupPairsArgs& args);

// Copies the groups, or tiles, of some matrices, which follow one another.
struct SelectGroupsArgs {
  const RowGroup* groups;     // [n_groups], or null
  const RowTile* tiles;       // [n_groups], or null
  const int32_t* n_groups;    // [1]
  int32_t max_groups;         // known on the host: upper bound of *n_groups
  int32_t first, n_matrices;  // the matrices
  RowGroup* selected_groups;  // [max_groups], as `groups` is: their matrices count from `first` on
  RowTile* selected_tiles;
  int32_t* n_selected;  // [1]
};
// Lets no kernel start before its end, so that the next one may read the groups at once.
cudaError_t SelectGroups(const Stream& stream, const SelectGroupsArgs& args);

// Copies each row of x to the places of its pairs. Lets the next kernel start when the previous one
// is done: it may read what GroupPairs made. Rows are whole multiples of 16 bytes.
struct SortRowsArgs {
  ConstAct x;             // [n_tokens, width]
  const int32_t* places;  // [n_tokens, n_used]
  void* out;              // [n_tokens * n_used, width]
  int32_t n_tokens, n_used, width;
  InputOrder order = InputOrder::kPlain;  // of out; others need a multiple of 32 columns
};
cudaError_t SortRows(const Stream& stream, const SortRowsArgs& args);

// out[t] += the sum of weight * y over the pairs of row t, in ascending order of expert id.
struct CombineArgs {
  ConstAct y;              // [n_tokens * n_used, width]
  const int32_t* places;   // [n_tokens, n_used]: each pair's row in y; null: the pair's index
  const int32_t* experts;  // [n_tokens, n_used]; distinct within a row; n_used <= kMaxExperts
  const float* weights;    // [n_tokens, n_used]
  const float* bias;       // [n_experts, width], added to y; or null
  float* out;              // [n_tokens, width]
  int32_t n_tokens, n_used, width;
};
cudaError_t CombineExperts(const Stream& stream, const CombineArgs& args);

}  // namespace stagecoach::kernels::cuda
