// What needs the values of packed weights: matrices expanded to 16 bits for products with many
// rows, products in float32, and embeddings.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/packed/few_rows.h"
#include "kernels/cuda/packed/packed_layout.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// to[r][part.order[i]] is the value of input i of row r, as common/encoding/rows.h decodes it,
// rounded to `dtype`, a 16-bit one. to: [part.rows, part.cols]. The next kernel does not begin
// before the end of this one, and so may fetch the values as it does weights.
cudaError_t Expand(const Stream& stream, const PackedPart& part, DType dtype, void* to);

// The same part of several matrices, of which none is permuted.
struct ExpandManyArgs {
  PackedPart part;             // without its address
  const void* const* weights;  // [n_matrices], device memory: each matrix's memory
  int64_t tiles_at;            // bytes from there to the part's tiles
  int32_t n_matrices;
  void* to;         // the first matrix's part
  int64_t to_step;  // elements from a matrix's part to the next one's
};
cudaError_t ExpandMany(const Stream& stream, const ExpandManyArgs& args, DType dtype);

// A product in float32: x and y are float32. Slow. A row's result does not depend on other rows.
cudaError_t PlainPackedProduct(const Stream& stream, const PackedProduct& product);
cudaError_t GroupedPlainPackedProduct(const Stream& stream, const GroupedPackedArgs& args);

// One part's share of Ops::Embed: tokens with ids of the part's rows.
struct PackedEmbed {
  PackedPart table;
  int32_t first_row;   // id of the part's first row
  const int32_t* ids;  // [n_tokens]
  float scale;
  Act out;  // [n_tokens, table.cols]
  int32_t n_tokens;
};
cudaError_t EmbedPacked(const Stream& stream, const PackedEmbed& args);

}  // namespace stagecoach::kernels::cuda
