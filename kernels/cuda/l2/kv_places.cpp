#include "kernels/cuda/l2/kv_places.h"

#include <cstring>
#include <iterator>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/status.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/l2/l2_measure.h"

namespace stagecoach::kernels::cuda {
namespace {

// Notes are the sides, then the words of the pages' bits, if those could be measured.
static_assert(std::has_unique_object_representations_v<L2Sides>);

absl::StatusOr<std::string> NotesOf(const Stream& stream, const Buffer& pages) {
  std::string notes(sizeof(L2Sides) + pages.bytes, '\0');
  std::memcpy(notes.data(), &stream.l2, sizeof(L2Sides));
  if (pages.bytes == 0) return notes;
  SC_RETURN_IF_ERROR(ToStatus(cudaMemcpyAsync(notes.data() + sizeof(L2Sides), pages.data.get(),
                                              pages.bytes, cudaMemcpyDeviceToHost, stream.handle),
                              "sides"));
  SC_RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(stream.handle), "sides"));
  return notes;
}

absl::StatusOr<Buffer> PagesOf(const Stream& stream, std::string_view bits) {
  if (bits.empty()) return Buffer{};
  SC_ASSIGN_OR_RETURN(Buffer pages, AllocateDevice(bits.size()));
  SC_RETURN_IF_ERROR(ToStatus(cudaMemcpyAsync(pages.data.get(), bits.data(), bits.size(),
                                              cudaMemcpyHostToDevice, stream.handle),
                              "sides"));
  SC_RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(stream.handle), "sides"));
  return pages;
}

}  // namespace

absl::StatusOr<std::string> KvPlaces::Adopt(Stream* stream, const Buffer& memory,
                                            std::string_view notes) {
  // The addresses may have belonged to memory that is already freed.
  std::erase_if(by_start_, [](const auto& entry) { return entry.second.memory.expired(); });
  Buffer pages;
  if (!notes.empty()) {
    const size_t pages_bytes = PageWords(memory.bytes) * sizeof(uint32_t);
    if (notes.size() != sizeof(L2Sides) && notes.size() != sizeof(L2Sides) + pages_bytes) {
      return absl::InvalidArgumentError("notes about another KV cache");
    }
    SC_ASSIGN_OR_RETURN(pages, PagesOf(*stream, notes.substr(sizeof(L2Sides))));
    std::memcpy(&stream->l2, notes.data(), sizeof(L2Sides));
  } else if (stream->l2.known()) {
    SC_ASSIGN_OR_RETURN(pages, MeasurePageSides(*stream, stream->l2, memory));
  }
  SC_ASSIGN_OR_RETURN(std::string made, NotesOf(*stream, pages));
  by_start_[memory.As<unsigned char>()] = {memory.data, memory.bytes, std::move(pages)};
  return made;
}

KvSides::Place KvPlaces::PlaceOf(const void* rows) const {
  const auto behind = by_start_.upper_bound(static_cast<const unsigned char*>(rows));
  if (behind == by_start_.begin()) return {};
  const auto& [begin, memory] = *std::prev(behind);
  const auto offset = static_cast<size_t>(static_cast<const unsigned char*>(rows) - begin);
  if (offset >= memory.bytes || offset % (2 * kChunkBytes) != 0) return {};
  return {memory.pages.As<uint32_t>(), static_cast<uint32_t>(offset / kChunkBytes)};
}

KvSides KvPlaces::SidesOf(const Stream& stream, const KvLayer& kv, int32_t n_kv_heads,
                          int32_t head_dim) const {
  const int32_t chunk_rows_log2 = ChunkRowsLog2(kv.dtype, n_kv_heads, head_dim);
  if (chunk_rows_log2 < 0 || !HasAttentionTile(kv.dtype, head_dim)) return {};
  return {.k = PlaceOf(kv.k),
          .v = PlaceOf(kv.v),
          .chunk_mask = stream.l2.chunk_mask & ~1u,
          .chunk_rows_log2 = chunk_rows_log2};
}

}  // namespace stagecoach::kernels::cuda
