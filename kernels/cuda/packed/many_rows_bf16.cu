#include "kernels/cuda/packed/many_rows.inl"

namespace stagecoach::kernels::cuda {

bool SuitsManyRows(const Stream& stream, const PackedPart& part) {
  const size_t stage_bytes = size_t{kMostManyRows} * kInputBytes +
                             size_t{kStripTiles} * static_cast<size_t>(part.block_bytes());
  return 2 * CeilDiv(part.n_tiles(), kStripTiles) >= stream.n_multiprocessors &&
         2 * stage_bytes <= stream.block_shared_bytes;
}

cudaError_t ManyRowsBF16(const Stream& stream, const PackedProduct& product) {
  return ManyRows<BF16>(stream, product);
}

}  // namespace stagecoach::kernels::cuda
