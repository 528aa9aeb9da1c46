#include "cli/http_client.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <boost/json.hpp>
#include <chrono>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "cli/http_messages.h"
#include "common/host_port.h"
#include "common/mutex.h"
#include "common/status.h"

namespace stagecoach::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
namespace json = boost::json;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::seconds kHttpConnectTimeout(10);
constexpr size_t kMostErrorBytes = 64 << 10;

absl::Status ConnectTo(asio::io_context& loop, const std::string& host, const std::string& port,
                       tcp::socket& socket) {
  error_code error;
  const auto found = tcp::resolver(loop).resolve(host, port, error);
  if (!error) {
    error = asio::error::timed_out;
    asio::async_connect(socket, found,
                        [&error](const error_code& result, const auto&) { error = result; });
    loop.run_for(kHttpConnectTimeout);
    if (error == asio::error::timed_out) {
      error_code ignored;
      socket.close(ignored);
      loop.run();
    }
    loop.restart();
  }
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(error.message());
}

// The error message of a response whose status is not a success.
absl::Status ErrorOf(unsigned status, const std::string& body) {
  std::string message = fmt::format("HTTP status {}", status);
  error_code error;
  const json::value parsed = json::parse(body, error);
  if (!error && parsed.is_object()) {
    const json::value* inner = parsed.get_object().if_contains("error");
    const json::value* text =
        inner != nullptr && inner->is_object() ? inner->get_object().if_contains("message") : inner;
    if (text != nullptr && text->is_string()) message = std::string(text->get_string());
  }
  if (status == 401 || status == 403) {
    return absl::UnauthenticatedError(
        fmt::format("{}; give the key with --api-key, or as STAGECOACH_API_KEY", message));
  }
  if (status == 404) return absl::NotFoundError(message);
  if (status == 429) return absl::ResourceExhaustedError(message);
  if (status >= 502 && status <= 504) return absl::UnavailableError(message);
  return status < 500 ? absl::InvalidArgumentError(message) : absl::InternalError(message);
}

template <typename Stream, typename BodyFn>
CallEnd Exchange(Stream& stream, const http::request<http::string_body>& request,
                 const BodyFn& on_body) {
  const auto lost = [](const error_code& error) -> CallEnd {
    return {.status = absl::UnavailableError("the connection broke: " + error.message()),
            .cut = CallEnd::Cut::kBroken};
  };
  error_code error;
  http::write(stream, request, error);
  if (error) return lost(error);
  beast::flat_buffer buffer;
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);
  http::read_header(stream, buffer, parser, error);
  if (error) return lost(error);
  const unsigned status = parser.get().result_int();
  std::string refusal;
  char chunk[16384];
  while (!parser.is_done()) {
    parser.get().body().data = chunk;
    parser.get().body().size = sizeof chunk;
    http::read_some(stream, buffer, parser, error);
    if (error == http::error::need_buffer) error = {};
    if (error) return lost(error);
    const std::string_view got(chunk, sizeof chunk - parser.get().body().size);
    if (status / 100 == 2) {
      on_body(got);
    } else if (refusal.size() < kMostErrorBytes) {
      refusal += got;
    }
  }
  if (status / 100 != 2) return {.status = ErrorOf(status, refusal)};
  return {};
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpClient>> HttpClient::Make(const Connection& connection) {
  Url url;
  std::string rest = connection.server;
  url.tls = rest.starts_with("https://");
  rest.erase(0, url.tls ? 8 : 7);
  const size_t slash = std::min(rest.find('/'), rest.size());
  url.base = rest.substr(slash);
  while (url.base.ends_with('/')) url.base.pop_back();
  // Accepts a base URL that ends with /v1, the form used by OpenAI clients.
  if (url.base.ends_with("/v1")) url.base.resize(url.base.size() - 3);
  const HostPort place = SplitHostPort(rest.substr(0, slash));
  url.host = place.host;
  url.port = !place.port.empty() ? place.port : url.tls ? "443" : "80";
  if (url.host.empty() || url.port.find_first_not_of("0123456789") != std::string::npos) {
    return absl::InvalidArgumentError(
        fmt::format("--server {}: not a URL such as http://127.0.0.1:8000", connection.server));
  }
  return std::unique_ptr<HttpClient>(new HttpClient(connection, std::move(url)));
}

HttpClient::HttpClient(Connection connection, Url url)
    : connection_(std::move(connection)), url_(std::move(url)) {}

CallEnd HttpClient::Ask(std::string_view method, const std::string& path, const std::string& body,
                        const BodyFn& on_body, Canceller* canceller) const {
  http::request<http::string_body> request;
  request.version(11);
  request.method_string(method);
  request.target(url_.base + path);
  request.set(http::field::host, url_.host + ":" + url_.port);
  request.set(http::field::user_agent, "stagecoach");
  request.set(http::field::connection, "close");
  if (!connection_.api_key.empty()) {
    request.set(http::field::authorization, "Bearer " + connection_.api_key);
  }
  if (!body.empty()) {
    request.set(http::field::content_type, "application/json");
    request.body() = body;
  }
  request.prepare_payload();

  asio::io_context loop;
  asio::ssl::context tls(asio::ssl::context::tls_client);
  error_code error;
  if (url_.tls) {
    if (connection_.tls_ca.empty()) {
      tls.set_default_verify_paths(error);
    } else {
      tls.load_verify_file(connection_.tls_ca, error);
    }
    if (error) {
      return {.status = absl::InvalidArgumentError(
                  fmt::format("--tls-ca {}: {}", connection_.tls_ca, error.message()))};
    }
    tls.set_verify_mode(asio::ssl::verify_peer, error);
    tls.set_verify_callback(asio::ssl::host_name_verification(url_.host), error);
  }
  beast::ssl_stream<tcp::socket> stream(loop, tls);
  tcp::socket& socket = stream.next_layer();
  if (absl::Status status = ConnectTo(loop, url_.host, url_.port, socket); !status.ok()) {
    return {.status = absl::UnavailableError(fmt::format(
                "no server answers at {} ({}); start one with `stagecoach serve MODEL --http "
                "HOST:PORT`, or give its address with --server",
                connection_.server, std::string(status.message()))),
            .cut = CallEnd::Cut::kUnreached};
  }
  bool is_cancelled = false;  // written under the canceller's lock, read after Set(nullptr)
  if (canceller != nullptr) {
    canceller->Set([&is_cancelled, fd = socket.native_handle()] {
      is_cancelled = true;
      shutdown(fd, SHUT_RDWR);
    });
  }
  CallEnd end;
  if (url_.tls) {
    SSL_set_tlsext_host_name(stream.native_handle(), url_.host.c_str());
    stream.handshake(asio::ssl::stream_base::client, error);
    if (error) {
      end = {.status = absl::UnavailableError(fmt::format(
                 "no TLS connection to {}: {}; check that an authority in --tls-ca has signed its "
                 "certificate, and that the certificate has this name",
                 connection_.server, error.message())),
             .cut = CallEnd::Cut::kUnreached};
    } else {
      end = Exchange(stream, request, on_body);
    }
  } else {
    end = Exchange(socket, request, on_body);
  }
  if (canceller != nullptr) canceller->Set(nullptr);
  if (is_cancelled) return {.status = absl::CancelledError("cancelled")};
  return end;
}

class HttpClient::Calls final : public StreamCalls {
 public:
  Calls(const HttpClient& client, std::string path, json::object body, Canceller& canceller)
      : client_(client), path_(std::move(path)), body_(std::move(body)), canceller_(canceller) {}

  CallEnd Begin(bool resumable, const PartFn& on_part) override {
    json::object body = body_;
    if (resumable) {
      body["request_id"] = name_;
      body["stream_options"].as_object()["resumable"] = true;
    }
    return Read("POST", path_, json::serialize(body), on_part);
  }
  CallEnd Resume(uint64_t from, const PartFn& on_part) override {
    return Read("GET", fmt::format("/v1/streams/{}?from={}", name_, from), "", on_part);
  }
  void Drop() override {
    Canceller late;
    const std::jthread timer([&late](const std::stop_token& stop) {
      if (!WaitForStop(stop, kDropTimeout)) late.Cancel();
    });
    client_.Ask("DELETE", "/v1/streams/" + name_, "", [](std::string_view) {}, &late);
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Milliseconds = std::chrono::duration<double, std::milli>;

  CallEnd Read(std::string_view method, const std::string& path, const std::string& body,
               const PartFn& on_part) {
    absl::Status failure;
    bool has_ids = false;
    EventReader events([&](const json::object& event, std::optional<uint64_t> id) {
      if (absl::Status told = EventError(event); !told.ok()) failure = told;
      has_ids = has_ids || id.has_value();
      std::vector<v1::GenerateResponse> pieces = PiecesOf(event);
      for (v1::GenerateResponse& piece : pieces) AddTiming(piece);
      on_part(pieces, id);
    });
    CallEnd end = client_.Ask(
        method, path, body, [&](std::string_view bytes) { events.Push(bytes); }, &canceller_);
    if (!end.status.ok()) return end;
    if (!failure.ok()) return {.status = failure};
    // A proxy may end a response in order although its server is gone.
    if (has_ids && !events.is_done()) {
      return {.status = absl::UnavailableError("the response ended too early"),
              .cut = CallEnd::Cut::kBroken};
    }
    return end;
  }

  void AddTiming(v1::GenerateResponse& piece) {
    const double now_ms = Milliseconds(Clock::now() - sent_).count();
    const bool has_text = !piece.text().empty() || !piece.reasoning().empty();
    if (has_text && !ttft_ms_) ttft_ms_ = now_ms;
    if (!piece.has_usage()) return;
    piece.mutable_timing()->set_ttft_ms(ttft_ms_.value_or(0));
    piece.mutable_timing()->set_total_ms(now_ms);
  }

  const HttpClient& client_;
  const std::string path_;
  const json::object body_;
  const std::string name_ = NewStreamName();
  const Clock::time_point sent_ = Clock::now();
  std::optional<double> ttft_ms_;
  Canceller& canceller_;
};

absl::Status HttpClient::StreamEvents(const std::string& path, json::object body,
                                      const PieceFn& on_piece, Canceller* canceller) const {
  Canceller nobody;
  Canceller& whose = canceller != nullptr ? *canceller : nobody;
  Calls calls(*this, path, std::move(body), whose);
  return ReadStream(calls,
                    {.limit = connection_.resume_limit, .knows_server = knows_server_.load()},
                    whose, on_piece);
}

absl::Status HttpClient::Stream(const v1::GenerateRequest& request, const PieceFn& on_piece,
                                Canceller* canceller) const {
  SC_ASSIGN_OR_RETURN(const json::object body, ToHttp(request));
  return StreamEvents("/v1/completions", body, on_piece, canceller);
}

absl::Status HttpClient::Stream(const v1::ChatRequest& request, const PieceFn& on_piece,
                                Canceller* canceller) const {
  SC_ASSIGN_OR_RETURN(const json::object body, ToHttp(request));
  return StreamEvents("/v1/chat/completions", body, on_piece, canceller);
}

absl::StatusOr<v1::Model> HttpClient::GetModel() const {
  std::string text;
  SC_RETURN_IF_ERROR(
      Ask("GET", "/v1/models", "", [&](std::string_view bytes) { text += bytes; }, nullptr).status);
  absl::StatusOr<v1::Model> model = ModelOf(text);
  if (model.ok()) knows_server_ = true;
  return model;
}

}  // namespace stagecoach::cli
