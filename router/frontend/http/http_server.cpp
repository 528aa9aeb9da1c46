#include "router/frontend/http/http_server.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <future>
#include <thread>
#include <utility>

#include "common/status.h"
#include "router/frontend/http/connection.h"
#include "router/frontend/http/http_api.h"
#include "router/frontend/http/tls_context.h"

namespace stagecoach::router::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// When accepting fails, as for want of file descriptors.
constexpr std::chrono::milliseconds kAcceptPause(100);
// What the kernel holds for a client that does not read; by itself it would take megabytes.
constexpr int kSendBufferBytes = 256 << 10;
constexpr int kKeepAliveIdleS = 15;
constexpr int kKeepAliveIntervalS = 5;
constexpr std::string_view kFull =
    "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
    "Content-Length: 0\r\n\r\n";

// Connections are file descriptors, of which a shell's usual 1024 are soon used up.
void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// A client whose host vanishes sends no reset. So silence is asked about, and what it does not
// acknowledge in the time that it may take to read ends the connection.
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
  HttpServerImpl(const HttpOptions& options, Frontend* frontend, std::optional<ApiKeys> keys,
                 std::unique_ptr<asio::ssl::context> tls, HttpApi::Sources sources,
                 StageLoads stage_loads)
      : options_(options),
        tls_(std::move(tls)),
        bodies_(options.limits.max_bodies_bytes),
        api_(frontend, std::move(keys), options.cors_origins, std::move(sources),
             std::move(stage_loads)),
        loop_(options.n_threads),
        acceptor_(Serial()),
        pause_(acceptor_.get_executor()),
        work_(loop_.get_executor()) {
    context_.limits = options.limits;
    context_.bodies = &bodies_;
    context_.metrics = &api_.metrics();
    context_.handle = [this](HttpRequest request, std::shared_ptr<Exchange> exchange) {
      api_.Handle(std::move(request), std::move(exchange));
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
      acceptor_.open(endpoint.protocol(), error);
      if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
      if (!error) acceptor_.bind(endpoint, error);
      if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    }
    if (error) {
      return absl::UnavailableError(fmt::format(
          "cannot listen on {} (--http): is the port in use, or the host not this machine's? ({})",
          options_.address, error.message()));
    }
    address_ =
        fmt::format("{}:{}", options_.address.substr(0, colon), acceptor_.local_endpoint().port());
    Accept();
    for (int i = 0; i < options_.n_threads; ++i) {
      threads_.emplace_back([this] { loop_.run(); });
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
    // Again, for those that were accepted meanwhile.
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
  // An executor that runs one handler at a time: on one thread the loop does so by itself.
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
    if (context_.open.size() < options_.limits.max_connections) {
      StartConnection(std::move(socket), tls_.get(), &context_);
    } else if (tls_ == nullptr) {
      socket.non_blocking(true, ignored);
      socket.write_some(asio::buffer(kFull), ignored);
      socket.shutdown(tcp::socket::shutdown_send, ignored);
    }
    Accept();
  }

  const HttpOptions options_;
  const std::unique_ptr<asio::ssl::context> tls_;
  MemoryBudget bodies_;
  HttpApi api_;
  ConnectionContext context_;
  asio::io_context loop_;
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::string address_;
  std::vector<std::thread> threads_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpOptions& options,
                                                              Frontend* frontend,
                                                              HttpApi::Sources sources,
                                                              StageLoads stage_loads) {
  std::optional<ApiKeys> keys;
  if (!options.api_keys_path.empty()) {
    SC_ASSIGN_OR_RETURN(ApiKeys read, ApiKeys::Read(options.api_keys_path));
    keys.emplace(std::move(read));
  }
  std::unique_ptr<asio::ssl::context> tls;
  if (options.tls_cert_path.empty() != options.tls_key_path.empty()) {
    return absl::InvalidArgumentError("--tls-cert and --tls-key need each other");
  }
  if (!options.tls_cert_path.empty()) {
    SC_ASSIGN_OR_RETURN(tls, ReadTlsContext(options.tls_cert_path, options.tls_key_path));
  }
  RaiseFileLimit();
  auto server = std::make_unique<HttpServerImpl>(options, frontend, std::move(keys), std::move(tls),
                                                 std::move(sources), std::move(stage_loads));
  if (absl::Status status = server->Listen(); !status.ok()) return status;
  return server;
}

}  // namespace stagecoach::router::http
