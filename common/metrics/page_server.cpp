#include "common/metrics/page_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <chrono>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include "common/local_host.h"
#include "common/work_queue.h"

namespace stagecoach {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::seconds kTimeToAsk(5);
constexpr std::chrono::seconds kTimeToRead(10);
constexpr std::chrono::milliseconds kAcceptPause(100);
constexpr uint32_t kMaxHeaderBytes = 8 << 10;
constexpr size_t kMaxConnections = 64;

// Only the event loop's thread touches this state.
struct Connection {
  explicit Connection(tcp::socket socket_in)
      : socket(std::move(socket_in)), deadline(socket.get_executor()), buffer(kMaxHeaderBytes) {
    request.header_limit(kMaxHeaderBytes);
  }

  void Close() {
    error_code ignored;
    socket.close(ignored);
    deadline.cancel();
  }

  tcp::socket socket;
  asio::steady_timer deadline;
  boost::beast::flat_buffer buffer;
  http::request_parser<http::empty_body> request;
  bool has_asked = false;
  std::shared_ptr<const std::string> answer;
};
using ConnectionPtr = std::shared_ptr<Connection>;

std::shared_ptr<const std::string> Answer(std::string_view status, std::string_view content_type,
                                          std::string_view body, bool with_body = true) {
  return std::make_shared<const std::string>(
      fmt::format("HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: "
                  "close\r\n\r\n{}",
                  status, content_type, body.size(), with_body ? body : std::string_view()));
}

class PageServerImpl final : public PageServer {
 public:
  PageServerImpl(std::string path, std::string content_type, std::function<std::string()> make_page)
      : path_(std::move(path)),
        content_type_(std::move(content_type)),
        make_page_(std::move(make_page)),
        acceptor_(loop_),
        pause_(loop_) {}
  ~PageServerImpl() override {
    maker_.reset();
    loop_.stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Listen(const std::string& address) {
    const size_t colon = address.rfind(':');
    error_code error;
    const auto found = tcp::resolver(loop_).resolve(
        std::string(HostName(address)), address.substr(colon + 1), tcp::resolver::passive, error);
    if (!error) {
      const tcp::endpoint endpoint = found.begin()->endpoint();
      is_loopback_ = endpoint.address().is_loopback();
      acceptor_.open(endpoint.protocol(), error);
      if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
      if (!error) acceptor_.bind(endpoint, error);
      if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    }
    if (error) {
      return absl::UnavailableError(
          fmt::format("cannot serve metrics on {}: check that the port is free and that the host "
                      "is an address of this machine ({})",
                      address, error.message()));
    }
    address_ = fmt::format("{}:{}", address.substr(0, colon), acceptor_.local_endpoint().port());
    Accept();
    thread_ = std::thread([this] { loop_.run(); });
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

 private:
  void Accept() {
    acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
      if (!error) {
        MakeRoom(kMaxConnections - 1);
        Begin(std::make_shared<Connection>(std::move(socket)));
        return Accept();
      }
      // Usually no file descriptor is free.
      MakeRoom(kMaxConnections / 2);
      pause_.expires_after(kAcceptPause);
      pause_.async_wait([this](const error_code&) { Accept(); });
    });
  }

  // Closes connections that have not sent a request first, oldest first.
  void MakeRoom(size_t n_left) {
    while (connections_.size() > n_left) {
      auto victim = std::find_if(connections_.begin(), connections_.end(),
                                 [](const ConnectionPtr& one) { return !one->has_asked; });
      if (victim == connections_.end()) victim = connections_.begin();
      End(*victim);
    }
  }

  // By value: the pointer inside the list is destroyed here.
  void End(ConnectionPtr connection) {
    connection->Close();
    connections_.remove(connection);
  }

  void SetDeadline(const ConnectionPtr& connection, std::chrono::seconds from_now) {
    connection->deadline.expires_after(from_now);
    connection->deadline.async_wait([this, connection](const error_code& error) {
      if (!error) End(connection);
    });
  }

  void Begin(const ConnectionPtr& connection) {
    connections_.push_back(connection);
    SetDeadline(connection, kTimeToAsk);
    http::async_read_header(connection->socket, connection->buffer, connection->request,
                            [this, connection](const error_code& error, size_t) {
                              if (error) return End(connection);
                              connection->has_asked = true;
                              Handle(connection);
                            });
  }

  void Handle(const ConnectionPtr& connection) {
    const auto& request = connection->request.get();
    const std::string_view target(request.target().data(), request.target().size());
    const bool is_get = request.method() == http::verb::get;
    const auto refuse = [&](std::string_view status) {
      Respond(connection, Answer(status, "text/plain", status));
    };
    const auto host = request.find(http::field::host);
    if (is_loopback_ && host != request.end() &&
        !IsLocalHost({host->value().data(), host->value().size()})) {
      return refuse("403 Forbidden");  // another site's page, through DNS rebinding
    }
    if (target.substr(0, target.find('?')) != path_) return refuse("404 Not Found");
    if (!is_get && request.method() != http::verb::head) return refuse("405 Method Not Allowed");
    // No deadline while the page is made; make_page decides how long that takes.
    connection->deadline.cancel();
    waiting_.push_back(connection);
    if (!is_making_) MakePage();
  }

  void MakePage() {
    is_making_ = true;
    maker_->Post([this, readers = std::exchange(waiting_, {})]() mutable {
      auto page = std::make_shared<const std::string>(make_page_());
      asio::post(loop_, [this, page = std::move(page), readers = std::move(readers)] {
        for (const ConnectionPtr& reader : readers) {
          const bool with_body = reader->request.get().method() != http::verb::head;
          if (reader->socket.is_open()) {
            Respond(reader, Answer("200 OK", content_type_, *page, with_body));
          }
        }
        is_making_ = false;
        if (!waiting_.empty()) MakePage();
      });
    });
  }

  void Respond(const ConnectionPtr& connection, std::shared_ptr<const std::string> answer) {
    connection->answer = std::move(answer);
    SetDeadline(connection, kTimeToRead);
    asio::async_write(connection->socket, asio::buffer(*connection->answer),
                      [this, connection](const error_code& error, size_t) {
                        if (error) return End(connection);
                        Linger(connection);
                      });
  }

  // Reads until the client closes or its deadline passes. Closing while data from the client is
  // unread would reset the connection, and the client would lose the answer.
  void Linger(const ConnectionPtr& connection) {
    error_code ignored;
    connection->socket.shutdown(tcp::socket::shutdown_send, ignored);
    connection->buffer.clear();
    connection->socket.async_read_some(connection->buffer.prepare(kMaxHeaderBytes),
                                       [this, connection](const error_code& error, size_t) {
                                         if (error) return End(connection);
                                         Linger(connection);
                                       });
  }

  const std::string path_;
  const std::string content_type_;
  const std::function<std::string()> make_page_;
  bool is_loopback_ = false;
  std::string address_;
  asio::io_context loop_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  std::list<ConnectionPtr> connections_;  // the oldest first
  std::vector<ConnectionPtr> waiting_;    // for the page after the one being made
  bool is_making_ = false;
  std::unique_ptr<WorkQueue> maker_ = std::make_unique<WorkQueue>(1);
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PageServer>> PageServer::Start(
    const std::string& address, std::string path, std::string content_type,
    std::function<std::string()> make_page) {
  auto server = std::make_unique<PageServerImpl>(std::move(path), std::move(content_type),
                                                 std::move(make_page));
  if (absl::Status status = server->Listen(address); !status.ok()) return status;
  return server;
}

}  // namespace stagecoach
