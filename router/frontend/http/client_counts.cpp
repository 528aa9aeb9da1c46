#include "router/frontend/http/client_counts.h"

#include <algorithm>

namespace stagecoach::router::http {
namespace {

ClientCounts::Address ClientOf(const ClientCounts::Address& address) {
  if (address.is_v4()) return address;
  const boost::asio::ip::address_v6 v6 = address.to_v6();
  if (v6.is_v4_mapped()) {
    return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, v6);
  }
  auto bytes = v6.to_bytes();
  std::fill(bytes.begin() + bytes.size() / 2, bytes.end(), 0);
  return boost::asio::ip::address_v6(bytes);
}

}  // namespace

std::optional<ClientCounts::Place> ClientCounts::Take(const Address& address) {
  const Address client = ClientOf(address);
  MutexLock lock(mutex_);
  size_t& count = counts_[client];
  if (count >= most_) return std::nullopt;
  ++count;
  return Place(this, client);
}

void ClientCounts::GiveBack(const Address& client) {
  MutexLock lock(mutex_);
  const auto found = counts_.find(client);
  if (--found->second == 0) counts_.erase(found);
}

}  // namespace stagecoach::router::http
