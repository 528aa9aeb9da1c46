// Memory for JSON that clients send: bounded, and with unpredictable addresses.
#pragma once

#include <boost/json.hpp>
#include <cstddef>
#include <string_view>

namespace stagecoach::router {

// A value of two bytes, as in "[1,1,1", takes 24 bytes in memory, and twice that while its array
// grows.
inline constexpr size_t kMaxJsonMemoryBytes = 64 << 20;

// One thread at a time. Throws std::bad_alloc beyond `max_bytes`. Boost.JSON salts the hash of an
// object's keys with the address of its table. For large blocks this address is predictable except
// for the page, so a client could construct a million colliding keys. Therefore a client's objects,
// and copies of them, belong in this memory.
boost::json::storage_ptr ClientJsonMemory(size_t max_bytes = kMaxJsonMemoryBytes);

// boost::json::parse in this memory. Sets an error if the memory limit is exceeded.
boost::json::value ParseClientJson(std::string_view text, boost::system::error_code& error,
                                   const boost::json::parse_options& options = {});

}  // namespace stagecoach::router
