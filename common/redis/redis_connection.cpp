#include "common/redis/redis_connection.h"

#include <fmt/format.h>
#include <hiredis/hiredis.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/status.h"

namespace stagecoach {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kReadBytes = 64 << 10;

void AddCommand(const RedisCommand& command, std::string& out) {
  std::vector<const char*> words;
  std::vector<size_t> sizes;
  for (const std::string_view word : command) {
    words.push_back(word.data());
    sizes.push_back(word.size());
  }
  char* formatted = nullptr;
  const auto n_bytes = redisFormatCommandArgv(&formatted, static_cast<int>(command.size()),
                                              words.data(), sizes.data());
  SC_CHECK(n_bytes >= 0);  // no memory
  out.append(formatted, static_cast<size_t>(n_bytes));
  redisFreeCommand(formatted);
}

}  // namespace

// The socket, with or without TLS, and the parser of what comes from it.
class RedisConnection::Transport {
 public:
  explicit Transport(const RedisUrl& url)
      : url_(url),
        tls_(asio::ssl::context::tls_client),
        stream_(loop_, tls_),
        reader_(redisReaderCreate(), redisReaderFree) {
    SC_CHECK(reader_ != nullptr);  // no memory
  }

  bool is_open() const { return is_open_; }

  absl::Status Connect(Clock::time_point deadline) {
    // This cannot have our deadline: the system's call has its own.
    error_code error;
    const auto found = tcp::resolver(loop_).resolve(url_.host, url_.port, error);
    if (error) return Failed(error);
    SC_RETURN_IF_ERROR(Await(deadline, [&](auto done) {
      asio::async_connect(socket(), found,
                          [done](const error_code& result, const tcp::endpoint&) { done(result); });
    }));
    static_cast<void>(socket().set_option(tcp::no_delay(true), error));
    return url_.tls ? ShakeHands(deadline) : absl::OkStatus();
  }

  absl::Status Write(const std::string& bytes, Clock::time_point deadline) {
    return Await(deadline, [&](auto done) {
      const auto written = [done](const error_code& result, size_t) { done(result); };
      if (url_.tls) {
        asio::async_write(stream_, asio::buffer(bytes), written);
      } else {
        asio::async_write(socket(), asio::buffer(bytes), written);
      }
    });
  }

  absl::StatusOr<RedisReply> Read(Clock::time_point deadline) {
    while (true) {
      void* reply = nullptr;
      if (redisReaderGetReply(reader_.get(), &reply) != REDIS_OK) {
        Close();
        return absl::UnavailableError(fmt::format("{}: {}", url_.Redacted(), reader_->errstr));
      }
      if (reply != nullptr) return RedisReply(static_cast<redisReply*>(reply));
      size_t n_read = 0;
      SC_RETURN_IF_ERROR(Await(deadline, [&](auto done) {
        const auto read = [done, &n_read](const error_code& result, size_t n_bytes) {
          n_read = n_bytes;
          done(result);
        };
        if (url_.tls) {
          stream_.async_read_some(asio::buffer(buffer_), read);
        } else {
          socket().async_read_some(asio::buffer(buffer_), read);
        }
      }));
      redisReaderFeed(reader_.get(), buffer_.data(), n_read);
    }
  }

 private:
  tcp::socket& socket() { return stream_.next_layer(); }

  void Close() {
    is_open_ = false;
    error_code ignored;
    static_cast<void>(socket().close(ignored));
  }

  absl::Status Failed(const error_code& error) {
    Close();
    return absl::UnavailableError(fmt::format("{}: {}", url_.Redacted(), error.message()));
  }

  absl::Status ShakeHands(Clock::time_point deadline) {
    error_code error;
    if (tls_.set_default_verify_paths(error) ||
        stream_.set_verify_mode(asio::ssl::verify_peer, error) ||
        stream_.set_verify_callback(asio::ssl::host_name_verification(url_.host), error)) {
      return Failed(error);
    }
    SSL_set_tlsext_host_name(stream_.native_handle(), url_.host.c_str());
    return Await(deadline,
                 [&](auto done) { stream_.async_handshake(asio::ssl::stream_base::client, done); });
  }

  // Starts an operation and runs it to its end, which it tells to the function that `start` gets.
  template <typename Start>
  absl::Status Await(Clock::time_point deadline, const Start& start) {
    if (!is_open_) return Failed(asio::error::not_connected);
    error_code result;
    bool is_done = false;
    start([&](const error_code& error) {
      result = error;
      is_done = true;
    });
    loop_.restart();
    loop_.run_until(deadline);
    if (!is_done) {
      Close();  // ends the operation
      loop_.restart();
      loop_.run();
      result = asio::error::timed_out;
    }
    return result ? Failed(result) : absl::OkStatus();
  }

  const RedisUrl url_;
  asio::io_context loop_;
  asio::ssl::context tls_;
  asio::ssl::stream<tcp::socket> stream_;
  std::unique_ptr<redisReader, decltype(&redisReaderFree)> reader_;
  std::vector<char> buffer_ = std::vector<char>(kReadBytes);
  bool is_open_ = true;  // no operation has failed
};

absl::StatusOr<std::unique_ptr<RedisConnection>> RedisConnection::Open(const RedisUrl& url,
                                                                       Clock::time_point deadline) {
  auto transport = std::make_unique<Transport>(url);
  SC_RETURN_IF_ERROR(transport->Connect(deadline));
  std::unique_ptr<RedisConnection> connection(new RedisConnection(std::move(transport)));
  std::vector<RedisCommand> commands;
  const std::string database = fmt::format("{}", url.database);
  if (!url.password.empty()) {
    commands.push_back({"AUTH", url.password});
    if (!url.user.empty()) commands.back().insert(commands.back().begin() + 1, url.user);
  }
  if (url.database != 0) commands.push_back({"SELECT", database});
  commands.push_back({"PING"});  // tells whether this user may do something
  SC_ASSIGN_OR_RETURN(const std::vector<RedisReply> replies,
                      connection->Exchange(commands, deadline));
  for (size_t i = 0; i < commands.size(); ++i) {
    const absl::Status status = replies[i].status();
    if (status.ok()) continue;
    const std::string message =
        fmt::format("{}: {}", url.Redacted(), std::string(status.message()));
    if (commands[i][0] == "AUTH") return absl::PermissionDeniedError(message);
    const bool is_refused = absl::IsPermissionDenied(status) || commands[i][0] == "PING";
    return is_refused ? absl::Status(status.code(), message) : absl::InvalidArgumentError(message);
  }
  return connection;
}

RedisConnection::RedisConnection(std::unique_ptr<Transport> transport)
    : transport_(std::move(transport)) {}

RedisConnection::~RedisConnection() = default;

bool RedisConnection::is_open() const { return transport_->is_open(); }

absl::StatusOr<std::vector<RedisReply>> RedisConnection::Exchange(
    const std::vector<RedisCommand>& commands, Clock::time_point deadline) {
  std::string bytes;
  for (const RedisCommand& command : commands) AddCommand(command, bytes);
  SC_RETURN_IF_ERROR(transport_->Write(bytes, deadline));
  std::vector<RedisReply> replies;
  while (replies.size() < commands.size()) {
    SC_ASSIGN_OR_RETURN(RedisReply reply, transport_->Read(deadline));
    replies.push_back(std::move(reply));
  }
  return replies;
}

absl::StatusOr<RedisReply> RedisConnection::Run(const RedisCommand& command,
                                                Clock::time_point deadline) {
  SC_ASSIGN_OR_RETURN(const std::vector<RedisReply> replies, Exchange({command}, deadline));
  SC_RETURN_IF_ERROR(replies.front().status());
  return replies.front();
}

}  // namespace stagecoach
