#include "router/text/client_json.h"

#include <algorithm>
#include <new>
#include <random>

#include "common/check.h"

namespace stagecoach::router {
namespace {

namespace json = boost::json;

constexpr size_t kAlignment = __STDCPP_DEFAULT_NEW_ALIGNMENT__;
// Hash tables in smaller blocks have too few keys to matter.
constexpr size_t kLargeBytes = 4096;
// Limit of skipped memory; skipped pages are never touched.
constexpr size_t kMostSkippedBytes = 1 << 20;

// Bytes to skip before a large block: random, up to the size of the block, so that no known address
// bit can select among that many keys.
size_t DrawSkip(size_t n_bytes) {
  thread_local std::mt19937_64 generator([] {
    std::random_device device;
    return uint64_t(device()) << 32 | device();
  }());
  const size_t n_places = std::min(n_bytes, kMostSkippedBytes) / kAlignment;
  return generator() % n_places * kAlignment;
}

class ClientMemory final : public json::memory_resource {
 public:
  explicit ClientMemory(size_t max_bytes) : left_bytes_(max_bytes) {}

 private:
  void* do_allocate(size_t n_bytes, size_t alignment) override {
    if (n_bytes > left_bytes_) throw std::bad_alloc();
    SC_CHECK(alignment <= kAlignment);
    void* block = nullptr;
    if (n_bytes < kLargeBytes) {
      block = ::operator new(n_bytes);
    } else {
      const size_t n_skipped = kAlignment + DrawSkip(n_bytes);
      char* const begin = static_cast<char*>(::operator new(n_skipped + n_bytes));
      block = begin + n_skipped;
      static_cast<void**>(block)[-1] = begin;
    }
    left_bytes_ -= n_bytes;
    return block;
  }
  // For an object's key, Boost 1.81 passes another alignment here than to do_allocate.
  void do_deallocate(void* block, size_t n_bytes, size_t) override {
    left_bytes_ += n_bytes;
    ::operator delete(n_bytes < kLargeBytes ? block : static_cast<void**>(block)[-1]);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  size_t left_bytes_;
};

}  // namespace

json::storage_ptr ClientJsonMemory(size_t max_bytes) {
  return json::make_shared_resource<ClientMemory>(max_bytes);
}

json::value ParseClientJson(std::string_view text, boost::system::error_code& error,
                            const json::parse_options& options) try {
  return json::parse(text, error, ClientJsonMemory(), options);
} catch (const std::bad_alloc&) {
  error = make_error_code(boost::system::errc::not_enough_memory);
  return nullptr;
}

}  // namespace stagecoach::router
