#include "kernels/cuda/l2/l2_measure.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"
#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/l2/l2_latency.h"

namespace stagecoach::kernels::cuda {
namespace {

// Correlation of the latencies of two SMs over the chunks: near 1 in the same partition, near -1 in
// different ones, because a chunk that is far from one SM is near the other.
double Correlation(std::span<const uint16_t> a, std::span<const uint16_t> b) {
  const auto n = static_cast<double>(a.size());
  double sum_a = 0, sum_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum_a += a[i];
    sum_b += b[i];
  }
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = a[i] - sum_a / n, y = b[i] - sum_b / n;
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  return aa == 0 || bb == 0 ? 0 : ab / std::sqrt(aa * bb);
}

// Minimum correlation for a clear result. An H200 has 0.95 to 1.
constexpr double kClear = 0.7;

absl::StatusOr<Buffer> Zeros(const Stream& stream, size_t bytes) {
  SC_ASSIGN_OR_RETURN(Buffer buffer, AllocateDevice(bytes));
  SC_RETURN_IF_ERROR(
      ToStatus(cudaMemsetAsync(buffer.data.get(), 0, bytes, stream.handle), "cannot clear memory"));
  return buffer;
}

absl::StatusOr<std::vector<uint16_t>> Downloaded(const Stream& stream, const Buffer& latencies) {
  std::vector<uint16_t> values(latencies.bytes / sizeof(uint16_t));
  SC_RETURN_IF_ERROR(ToStatus(cudaMemcpyAsync(values.data(), latencies.data.get(), latencies.bytes,
                                              cudaMemcpyDeviceToHost, stream.handle),
                              "latencies"));
  SC_RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(stream.handle), "latencies"));
  return values;
}

absl::StatusOr<L2Sides> Measured(const Stream& stream) {
  SC_ASSIGN_OR_RETURN(const Buffer page, Zeros(stream, 2 * kPageBytes));
  if (!HasL2Latencies(stream, page.data.get())) return L2Sides{};
  SC_ASSIGN_OR_RETURN(const Buffer latencies,
                      Zeros(stream, sizeof(uint16_t) * kPageChunks * kMaxSidedMultiprocessors));
  SC_RETURN_IF_ERROR(
      ToStatus(ChunkLatencies(stream, page.data.get(), latencies.As<uint16_t>()), "latencies"));
  SC_ASSIGN_OR_RETURN(const std::vector<uint16_t> values, Downloaded(stream, latencies));
  return SidesOf(values, stream.n_all_multiprocessors);
}

}  // namespace

L2Sides MeasureL2Sides(const Stream& stream) {
  const char* const wanted = std::getenv("STAGECOACH_L2_SIDES");
  if (wanted != nullptr && std::string_view(wanted) == "off") return {};
  return Measured(stream).value_or(L2Sides{});
}

absl::StatusOr<Buffer> MeasurePageSides(const Stream& stream, const L2Sides& sides,
                                        const Buffer& memory) {
  const size_t n_pages = (memory.bytes + kPageBytes - 1) / kPageBytes;
  if (n_pages == 0 || !HasL2Latencies(stream, memory.data.get())) return Buffer{};
  SC_ASSIGN_OR_RETURN(const Buffer latencies, Zeros(stream, 2 * n_pages * sizeof(uint16_t)));
  SC_ASSIGN_OR_RETURN(const Buffer tickets, Zeros(stream, 2 * sizeof(int32_t)));
  PageLatencyArgs args{.memory = memory.As<unsigned char>(),
                       .n_pages = static_cast<int32_t>(n_pages),
                       .sides = sides,
                       .n_multiprocessors = {stream.n_all_multiprocessors, 0},
                       .tickets = tickets.As<int32_t>(),
                       .latencies = latencies.As<uint16_t>()};
  for (const uint32_t word : sides.multiprocessors) {
    args.n_multiprocessors[0] -= std::popcount(word);
    args.n_multiprocessors[1] += std::popcount(word);
  }
  SC_RETURN_IF_ERROR(ToStatus(PageLatencies(stream, args), "latencies"));
  SC_ASSIGN_OR_RETURN(const std::vector<uint16_t> values, Downloaded(stream, latencies));
  std::vector<uint32_t> bits(PageWords(memory.bytes));
  for (size_t page = 0; page < n_pages; ++page) {
    const uint16_t first = values[page], second = values[n_pages + page];
    if (first == 0 || second == 0) return Buffer{};
    if (first > second) bits[page / 32] |= 1u << page % 32;
  }
  SC_ASSIGN_OR_RETURN(Buffer pages, AllocateDevice(bits.size() * sizeof(bits[0])));
  SC_RETURN_IF_ERROR(ToStatus(cudaMemcpyAsync(pages.data.get(), bits.data(), pages.bytes,
                                              cudaMemcpyHostToDevice, stream.handle),
                              "sides"));
  SC_RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(stream.handle), "sides"));
  return pages;
}

L2Sides SidesOf(std::span<const uint16_t> latencies, int32_t n_multiprocessors) {
  const auto row = [&](int32_t m) {
    return latencies.subspan(static_cast<size_t>(m) * kPageChunks, kPageChunks);
  };
  std::vector<int32_t> found;
  for (int32_t m = 0; m < kMaxSidedMultiprocessors; ++m) {
    if (row(m)[0] != 0) found.push_back(m);
  }
  if (found.size() < 2 || std::cmp_not_equal(found.size(), n_multiprocessors)) return {};
  L2Sides sides;
  size_t n_of[2] = {0, 0};
  for (const int32_t m : found) {
    const double like_first = Correlation(row(found[0]), row(m));
    if (std::abs(like_first) < kClear) return {};
    const uint32_t side = like_first < 0 ? 1 : 0;
    sides.multiprocessors[m / 32] |= side << m % 32;
    ++n_of[side];
  }
  if (n_of[0] < found.size() / 4 || n_of[1] < found.size() / 4) return {};
  // Difference of the mean latencies from both partitions, per chunk.
  std::vector<double> differences(kPageChunks);
  for (const int32_t m : found) {
    const int32_t side = sides.SideOf(m);
    for (size_t c = 0; c < kPageChunks; ++c) {
      differences[c] += (side == 0 ? 1.0 : -1.0) * row(m)[c] / static_cast<double>(n_of[side]);
    }
  }
  const auto side_of = [&](uint32_t chunk) { return differences[chunk] > 0 ? 1 : 0; };
  uint32_t mask = 0;
  for (uint32_t bit = 1; bit < kPageChunks; bit *= 2) {
    if (side_of(bit) != side_of(0)) mask |= bit;
  }
  if (mask % 2 == 0) return {};
  for (uint32_t c = 0; c < kPageChunks; ++c) {
    if ((side_of(c) ^ side_of(0)) != std::popcount(c & mask) % 2) return {};
  }
  sides.chunk_mask = mask;
  return sides;
}

}  // namespace stagecoach::kernels::cuda
