#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <utility>

#include "catch2/catch_test_macros.hpp"
#include "common/fd_store/fd_packet.h"
#include "common/fd_store/fd_store_client.h"
#include "common/fd_store/fd_store_session.h"

namespace stagecoach {
namespace {

// A client of a store in this process.
struct Connection {
  explicit Connection(FdStore* store) {
    auto sockets = MakePacketSockets();
    REQUIRE(sockets.ok());
    session = std::make_unique<FdStoreSession>(std::move(sockets->first), store);
    client = std::make_unique<FdStoreClient>(std::move(sockets->second));
  }
  std::unique_ptr<FdStoreSession> session;
  std::unique_ptr<FdStoreClient> client;
};

UniqueFd MemoryWith(const std::string& text) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC));
  REQUIRE(pwrite(fd.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  return fd;
}

std::string Contents(const UniqueFd& fd) {
  std::string text(100, '\0');
  const ssize_t n = pread(fd.get(), text.data(), text.size(), 0);
  REQUIRE(n >= 0);
  return text.substr(0, static_cast<size_t>(n));
}

int NDescriptors() {
  const std::filesystem::directory_iterator fds("/proc/self/fd");
  return static_cast<int>(std::distance(begin(fds), end(fds)));
}

TEST_CASE("What a client keeps, the next client finds, as often as it asks") {
  FdStore store;
  {
    const Connection first(&store);
    REQUIRE(first.client->Keep("kv", "16 blocks", MemoryWith("keys")).ok());
    REQUIRE(first.client->Keep("weights", "", MemoryWith("w")).ok());
  }
  const Connection second(&store);
  for (int i = 0; i < 2; ++i) {
    const auto kv = second.client->Get("kv");
    REQUIRE(kv.ok());
    REQUIRE(kv->has_value());
    CHECK((*kv)->description == "16 blocks");
    CHECK(Contents((*kv)->fd) == "keys");
  }
  const auto weights = second.client->Get("weights");
  REQUIRE(weights.ok());
  REQUIRE(weights->has_value());
  CHECK(Contents((*weights)->fd) == "w");
  CHECK(!second.client->Get("other")->has_value());
}

TEST_CASE("A name holds what was kept last, until it is dropped") {
  FdStore store;
  const Connection connection(&store);
  REQUIRE(connection.client->Keep("kv", "1", MemoryWith("old")).ok());
  REQUIRE(connection.client->Keep("kv", "2", MemoryWith("new")).ok());
  const auto kv = connection.client->Get("kv");
  REQUIRE(kv.ok());
  REQUIRE(kv->has_value());
  CHECK((*kv)->description == "2");
  CHECK(Contents((*kv)->fd) == "new");
  REQUIRE(connection.client->Drop("kv").ok());
  CHECK(!connection.client->Get("kv")->has_value());
  REQUIRE(connection.client->Drop("kv").ok());
}

TEST_CASE("The store closes what it no longer holds") {
  FdStore store;
  const Connection connection(&store);
  const int before = NDescriptors();
  for (int i = 0; i < 3; ++i) {
    REQUIRE(connection.client->Keep("kv", "", MemoryWith("x")).ok());
    REQUIRE(connection.client->Get("kv").ok());
  }
  // The session closes its copy after it has sent it, and before it reads the next request.
  REQUIRE(connection.client->Drop("other").ok());
  CHECK(NDescriptors() == before + 1);
  store.Clear();
  CHECK(NDescriptors() == before);
  CHECK(!connection.client->Get("kv")->has_value());
}

TEST_CASE("A session's end carries out what has come, and its client hears of it") {
  FdStore store;
  auto sockets = MakePacketSockets();
  REQUIRE(sockets.ok());
  {
    // Keep{name: "kv"}, from a process that dies before it reads the answer.
    REQUIRE(
        SendPacket(sockets->second, std::string("\x0a\x04\x0a\x02kv"), MemoryWith("x").get()).ok());
    const FdStoreSession session(std::move(sockets->first), &store);
  }
  CHECK(store.Get("kv").has_value());
  FdStoreClient client(std::move(sockets->second));
  CHECK(absl::IsUnavailable(client.Drop("kv")));
}

TEST_CASE("A request that cannot be read is refused, and the next one is answered") {
  FdStore store;
  auto sockets = MakePacketSockets();
  REQUIRE(sockets.ok());
  const FdStoreSession session(std::move(sockets->first), &store);
  REQUIRE(SendPacket(sockets->second, "\xff\xff").ok());
  REQUIRE(ReceivePacket(sockets->second).ok());
  FdStoreClient client(std::move(sockets->second));
  CHECK(absl::IsInternal(client.Keep("kv", "", UniqueFd())));  // without a descriptor
  CHECK(client.Keep("kv", "", MemoryWith("x")).ok());
  CHECK(absl::IsInvalidArgument(
      client.Keep("kv", std::string(kMaxPacketBytes, 'x'), MemoryWith("x"))));
}

}  // namespace
}  // namespace stagecoach
