// Counts the connections of each client.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>

#include "common/mutex.h"

namespace stagecoach::router::http {

// A client is an IPv4 address or an IPv6 /64 prefix, since one user usually owns a whole /64.
// Thread-safe; outlives its places.
class ClientCounts {
 public:
  using Address = boost::asio::ip::address;

  // The place of one connection in its client's count; its destructor returns it.
  class Place {
   public:
    Place(ClientCounts* counts, Address client) : counts_(counts), client_(std::move(client)) {}
    Place(Place&& other) noexcept
        : counts_(std::exchange(other.counts_, nullptr)), client_(other.client_) {}
    Place& operator=(Place&&) = delete;
    ~Place() {
      if (counts_ != nullptr) counts_->GiveBack(client_);
    }

   private:
    ClientCounts* counts_;
    Address client_;
  };

  explicit ClientCounts(size_t most) : most_(most) {}

  // Absent if the client of `address` already has the maximum.
  std::optional<Place> Take(const Address& address);

 private:
  void GiveBack(const Address& client);

  const size_t most_;
  Mutex mutex_;
  std::map<Address, size_t> counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagecoach::router::http
