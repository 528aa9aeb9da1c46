#include "router/frontend/http/http_server.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <chrono>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include "common/status.h"
#include "router/frontend/frontend.h"
#include "router/frontend/http/connection.h"
#include "router/frontend/http/http_api.h"
#include "router/frontend/http/tls_context.h"

namespace stagecoach::router::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Pause after a failed accept, for example without free file descriptors.
constexpr std::chrono::milliseconds kAcceptPause(100);
constexpr std::chrono::minutes kWarnInterval(1);
// Limit of the kernel's send buffer for a client that does not read; the default takes megabytes.
constexpr int kSendBufferBytes = 256 << 10;
constexpr int kKeepAliveIdleS = 15;
constexpr int kKeepAliveIntervalS = 5;
constexpr std::string_view kFull =
    "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
    "Content-Length: 0\r\n\r\n";

// Each connection needs a file descriptor, and a shell's usual limit of 1024 is low.
void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// A client whose host vanishes sends no reset. Keepalive probes a silent connection;
// TCP_USER_TIMEOUT ends the connection if data stays unacknowledged for the write timeout.
void NoticeLostHost(tcp::socket& socket, std::chrono::milliseconds write_timeout) {
  const auto set = [fd = socket.native_handle()](int level, int option, int value) {
    setsockopt(fd, level, option, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleS);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalS);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(write_timeout.count()));
}

class HttpServerImpl final : public HttpServer {
 public:
  HttpServerImpl(const HttpOptions& options, Frontend* frontend, std::shared_ptr<Access> access,
                 std::unique_ptr<asio::ssl::context> tls, HttpApi::Sources sources,
                 StageLoads stage_loads, Recoveries recoveries)
      : options_(options),
        is_open_(!access->has_keys() && access->tls() == nullptr),
        tls_(std::move(tls)),
        clients_(options.limits.max_client_connections),
        api_(frontend, std::move(access), options.cors_origins, std::move(sources),
             std::move(stage_loads), std::move(recoveries), options.responses),
        loop_(options.n_threads),
        acceptor_(Serial()),
        pause_(acceptor_.get_executor()),
        work_(loop_.get_executor()) {
    context_.limits = options.limits;
    context_.memory = &frontend->memory();
    context_.metrics = &api_.metrics();
    context_.admit = [this](const HttpRequest& head) { return api_.Admit(head); };
    context_.handle = [this](HttpRequest request, Admission admission,
                             std::shared_ptr<Exchange> exchange) {
      api_.Handle(std::move(request), std::move(admission), std::move(exchange));
    };
  }
  ~HttpServerImpl() override { Shutdown(std::chrono::milliseconds(0)); }

  absl::Status Listen() {
    const size_t colon = options_.address.rfind(':');
    std::string host = options_.address.substr(0, colon);
    const std::string port = options_.address.substr(colon + 1);
    if (host.size() >= 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
    error_code error;
    const auto found = tcp::resolver(loop_).resolve(host, port, tcp::resolver::passive, error);
    if (!error) {
      const tcp::endpoint endpoint = found.begin()->endpoint();
      if (is_open_ && endpoint.address().is_loopback()) api_.GuardLoopback(host);
      acceptor_.open(endpoint.protocol(), error);
      if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
      if (!error) acceptor_.bind(endpoint, error);
      if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    }
    if (error) {
      return absl::UnavailableError(
          fmt::format("cannot listen on {} (--http): check that the port is free and that the host "
                      "is an address of this machine ({})",
                      options_.address, error.message()));
    }
    address_ =
        fmt::format("{}:{}", options_.address.substr(0, colon), acceptor_.local_endpoint().port());
    Accept();
    for (int i = 0; i < options_.n_threads; ++i) {
      threads_.emplace_back([this] {
        pthread_setname_np(pthread_self(), "http");
        loop_.run();
      });
    }
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

  void SetDraining() override {
    api_.SetDraining();
    context_.draining = true;
    context_.open.ForEach([](ConnectionControl& connection) { connection.CloseIfIdle(); });
  }

  void Shutdown(std::chrono::milliseconds grace) override {
    if (threads_.empty()) return;
    SetDraining();
    std::promise<void> closed;
    asio::post(acceptor_.get_executor(), [this, &closed] {
      error_code ignored;
      acceptor_.close(ignored);
      pause_.cancel();
      closed.set_value();
    });
    closed.get_future().wait();
    // Again, for connections that were accepted meanwhile.
    SetDraining();
    if (!context_.open.WaitUntilEmpty(std::chrono::steady_clock::now() + grace)) {
      context_.open.ForEach([](ConnectionControl& connection) { connection.Abort(); });
      context_.open.WaitUntilEmpty(std::nullopt);
    }
    work_.reset();
    loop_.stop();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  // An executor that runs one handler at a time. With one thread, the loop itself does this.
  asio::any_io_executor Serial() {
    if (options_.n_threads == 1) return loop_.get_executor();
    return asio::make_strand(loop_);
  }

  void Accept() {
    acceptor_.async_accept(Serial(), [this](const error_code& error, tcp::socket socket) {
      OnAccept(error, std::move(socket));
    });
  }

  void OnAccept(const error_code& error, tcp::socket socket) {
    if (!acceptor_.is_open()) return;
    if (error) {
      spdlog::warn("http: a connection could not be accepted: {}", error.message());
      pause_.expires_after(kAcceptPause);
      pause_.async_wait([this](const error_code&) {
        if (acceptor_.is_open()) Accept();
      });
      return;
    }
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    socket.set_option(asio::socket_base::send_buffer_size(kSendBufferBytes), ignored);
    NoticeLostHost(socket, options_.limits.write_timeout);
    Begin(std::move(socket));
    Accept();
  }

  void Begin(tcp::socket socket) {
    error_code error;
    const tcp::endpoint client = socket.remote_endpoint(error);
    if (error) return;  // the client is gone
    if (context_.open.size() >= options_.limits.max_connections) return Refuse(std::move(socket));
    auto place = clients_.Take(client.address());
    if (!place) {
      WarnOfClient(client.address());
      return Refuse(std::move(socket));
    }
    StartConnection(std::move(socket), *std::move(place), tls_.get(), &context_);
  }

  void Refuse(tcp::socket socket) {
    if (tls_ != nullptr) return;  // no response is possible before the handshake
    error_code ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(asio::buffer(kFull), ignored);
    socket.shutdown(tcp::socket::shutdown_send, ignored);
  }

  void WarnOfClient(const asio::ip::address& address) {
    const auto now = std::chrono::steady_clock::now();
    if (warned_at_ && now - *warned_at_ < kWarnInterval) return;
    warned_at_ = now;
    spdlog::warn(
        "http: {} has {} connections, the maximum for one client (--http-max-client-connections); "
        "further ones are refused",
        address.to_string(), options_.limits.max_client_connections);
  }

  const HttpOptions options_;
  const bool is_open_;  // no keys and no TLS: anyone who reaches the address may use it
  const std::unique_ptr<asio::ssl::context> tls_;
  ClientCounts clients_;
  HttpApi api_;
  ConnectionContext context_;
  asio::io_context loop_;
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::optional<std::chrono::steady_clock::time_point> warned_at_;  // used only by the acceptor
  std::string address_;
  std::vector<std::thread> threads_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    const HttpOptions& options, std::shared_ptr<Access> access, Frontend* frontend,
    HttpApi::Sources sources, StageLoads stage_loads, Recoveries recoveries) {
  std::unique_ptr<asio::ssl::context> tls;
  if (access->tls() != nullptr) {
    SC_ASSIGN_OR_RETURN(tls, MakeTlsContext(*access->tls()));
  }
  RaiseFileLimit();
  auto server = std::make_unique<HttpServerImpl>(options, frontend, std::move(access),
                                                 std::move(tls), std::move(sources),
                                                 std::move(stage_loads), std::move(recoveries));
  if (absl::Status status = server->Listen(); !status.ok()) return status;
  return server;
}

}  // namespace stagecoach::router::http
