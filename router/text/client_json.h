// JSON that clients send: in memory that is bounded, and whose addresses they cannot foresee.
#pragma once

#include <boost/json.hpp>
#include <cstddef>
#include <string_view>

namespace stagecoach::router {

// A value of two bytes, as in "[1,1,1", takes 24 in memory, and twice that while its array grows.
inline constexpr size_t kMaxJsonMemoryBytes = 128 << 20;

// For one thread at a time; std::bad_alloc beyond `max_bytes`. Boost.JSON salts the hash of an
// object's keys with its table's address, which of large blocks is known but for the page: there a
// million keys that all collide could be made. So a client's objects, and copies of them, belong in
// this memory.
boost::json::storage_ptr ClientJsonMemory(size_t max_bytes = kMaxJsonMemoryBytes);

// boost::json::parse in such memory, for want of which there is an error as well.
boost::json::value ParseClientJson(std::string_view text, boost::system::error_code& error,
                                   const boost::json::parse_options& options = {});

}  // namespace stagecoach::router
