// Instructions of AMX, which multiplies tiles of 16 rows of 64 bytes. They are written out because
// Highway has no target with AMX. Included once per instruction set.
//
// Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18.
#if defined(STAGECOACH_KERNELS_CPU_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_KERNELS_CPU_AMX_INL_H_
#undef STAGECOACH_KERNELS_CPU_AMX_INL_H_
#else
#define STAGECOACH_KERNELS_CPU_AMX_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3

inline constexpr size_t kAmxRows = 16;
inline constexpr size_t kAmxRowBytes = 64;
inline constexpr size_t kAmxBytes = kAmxRows * kAmxRowBytes;

// Makes the tiles of this thread usable. Tiles 0 to 3 are for sums, n_rows <= 16 rows of 64 bytes.
// 4 and 5 are for inputs, n_rows rows of `input_bytes`. 6 and 7 are for weights, rows of 64 bytes:
// one per 4 bytes of an input row. Without tiles in use, thread switches are cheaper.
class AmxTiles {
 public:
  explicit AmxTiles(size_t input_bytes, size_t n_rows = kAmxRows) {
    constexpr size_t kSums = 4, kInputs = 2, kWeights = 2;
    Config config;
    std::fill_n(config.row_bytes, kSums + kInputs + kWeights, uint16_t{kAmxRowBytes});
    std::fill_n(config.row_bytes + kSums, kInputs, static_cast<uint16_t>(input_bytes));
    std::fill_n(config.rows, kSums + kInputs, static_cast<uint8_t>(n_rows));
    std::fill_n(config.rows + kSums + kInputs, kWeights, static_cast<uint8_t>(input_bytes / 4));
    asm volatile("ldtilecfg %0" : : "m"(config));
  }
  ~AmxTiles() { asm volatile("tilerelease"); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

 private:
  struct Config {
    uint8_t palette = 1, first_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  };
};

// Reads or writes a tile's rows, `stride` bytes apart.
template <int kTile>
HWY_INLINE void LoadRows(const void* from, size_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
HWY_INLINE void StoreRows(void* to, size_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
}

// The same for an object that is a tile. Other objects may stay in registers meanwhile.
template <int kTile, typename Rows>
HWY_INLINE void LoadTile(const Rows& from, size_t stride = kAmxRowBytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(&from), "r"(stride), "i"(kTile), "m"(from));
}
template <int kTile, typename Rows>
HWY_INLINE void StoreTile(Rows& to) {
  asm volatile("tilestored %%tmm%c3, (%1,%2,1)"
               : "=m"(to)
               : "r"(&to), "r"(kAmxRowBytes), "i"(kTile));
}
template <int kTile>
HWY_INLINE void ZeroTile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}

// sum[row][output] += the products of 32 bfloat16 inputs. w: a row per pair of inputs, with both
// weights of each of 16 outputs. The products of even and of odd inputs are two chains of fused
// multiply-adds from 0 on; their sum is added to `sum`. Subnormal numbers count as 0.
template <int kSum, int kX, int kW>
HWY_INLINE void AddBf16Products() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kX), "i"(kW));
}

// sum[row][output] += the products of 8-bit integers, x signed or unsigned, w signed. A row of w
// has four weights of each of 16 outputs.
template <int kSum, int kX, int kW>
HWY_INLINE void AddSignedProducts() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kX), "i"(kW));
}
template <int kSum, int kX, int kW>
HWY_INLINE void AddUnsignedProducts() {
  asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kX), "i"(kW));
}

#endif  // HWY_AVX3

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#endif
