#include "router/frontend/http/connection.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "router/frontend/http/api_error.h"
#include "router/frontend/http/connection_entry.h"
#include "router/frontend/http/deadline.h"
#include "router/frontend/http/http_metrics.h"
#include "router/frontend/http/outbox.h"
#include "router/frontend/http/request_parser.h"
#include "router/frontend/http/wire_format.h"

namespace stagecoach::router::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kReadBytes = 8 << 10;
// Limit of data that a client may send while its request is answered; the rest waits in the
// network.
constexpr size_t kMaxAheadBytes = 16 << 10;
// Time for a client that is still sending to read the refusal: closing at once would reset the
// connection and discard the answer.
constexpr std::chrono::seconds kLinger(2);
constexpr std::chrono::seconds kProbeInterval(1);
// Time for the first request on a connection during a drain.
constexpr std::chrono::seconds kFirstRequestGrace(1);
// A refused body of at most this size is skipped; for a larger one, the connection closes.
constexpr uint64_t kMostSkippedBytes = 64 << 10;
constexpr std::string_view kKeepAlive = " keep-alive";

// All state belongs to the socket's executor, a strand.
template <typename Stream>
class Connection final : public Exchange,
                         public ConnectionControl,
                         public std::enable_shared_from_this<Connection<Stream>> {
  static constexpr bool kTls = !std::is_same_v<Stream, tcp::socket>;

 public:
  Connection(Stream stream, ClientCounts::Place place, ConnectionContext* context)
      : context_(*context),
        entry_{context, this},
        place_(std::move(place)),
        stream_(std::move(stream)),
        deadline_(stream_.get_executor()),
        parser_(context_.limits, context_.memory) {}

  void Run() {
    context_.open.Add(this, this->weak_from_this());
    deadline_.Bind(this->weak_from_this(), [this] { OnDeadline(); });
    if constexpr (!kTls) {
      error_code ignored;
      stream_.non_blocking(true, ignored);  // for WriteAtOnce
    }
    OnStrand([](Connection& self) {
      if constexpr (kTls) {
        self.deadline_.Set(self.context_.limits.header_timeout);
        self.stream_.async_handshake(asio::ssl::stream_base::server,
                                     self.Bound([](Connection& me, const error_code& error) {
                                       error ? me.Close() : me.AwaitFirst();
                                     }));
      } else {
        self.AwaitFirst();
      }
    });
  }

  // Exchange and ConnectionControl: any thread.
  void AddFields(HeaderFields fields) override {
    OnStrand([fields = std::move(fields)](Connection& self) mutable {
      self.out_.AddFields(std::move(fields));
    });
  }
  void Respond(HttpResponse response) override {
    OnStrand([response = std::move(response)](Connection& self) mutable {
      self.answer_memory_ = std::move(response.memory);
      self.GiveResponse(response);
    });
  }
  void StartStream(HttpResponse head, bool has_ids) override {
    OnStrand([head = std::move(head), has_ids](Connection& self) {
      if (self.phase_ == Phase::kClosed) return;
      self.keep_alive_ = self.StaysOpen() && !self.http_1_0_;
      self.out_.StartStream(head, has_ids, self.keep_alive_);
      if (!self.is_writing_) self.AwaitNews();
    });
  }
  bool Write(std::string data, Done done) override {
    if (out_.Reserve(data.size())) {
      OnStrand([data = std::move(data)](Connection& self) {
        self.InStream([&](Outbox& out) { out.Write(data, nullptr); });
      });
      return true;
    }
    OnStrand([data = std::move(data), done = std::move(done)](Connection& self) mutable {
      if (self.phase_ == Phase::kClosed) return std::move(done)(false);
      self.InStream([&](Outbox& out) { out.Write(data, std::move(done)); });
    });
    return false;
  }
  void EndStream(std::string data) override {
    OnStrand([data = std::move(data)](Connection& self) {
      self.InStream([&](Outbox& out) { out.EndStream(data); });
    });
  }
  void FailStream(HttpResponse response, std::string data) override {
    OnStrand([response = std::move(response), data = std::move(data)](Connection& self) {
      if (!self.out_.has_begun()) return self.GiveResponse(response);
      self.InStream([&](Outbox& out) { out.EndStream(data); });
    });
  }
  void OnGone(absl::AnyInvocable<void() &&> action) override {
    OnStrand([action = std::move(action)](Connection& self) mutable {
      if (self.phase_ == Phase::kClosed) return std::move(action)();
      self.on_gone_ = std::move(action);
    });
  }
  bool is_gone() const override { return is_gone_; }
  void CloseIfIdle() override {
    OnStrand([](Connection& self) {
      if (self.phase_ == Phase::kHandshake || self.phase_ == Phase::kNew) {
        // Its first request may be on its way, and the client would not know why it got no answer.
        self.deadline_.Set(kFirstRequestGrace);
      } else if (self.phase_ == Phase::kIdle && self.inbox_.empty()) {
        self.Linger();
      }
    });
  }
  void Abort() override {
    OnStrand([](Connection& self) { self.Close(); });
  }

 private:
  enum class Phase { kHandshake, kNew, kIdle, kHeader, kBody, kAnswering, kLingering, kClosed };

  tcp::socket& socket() {
    if constexpr (kTls) {
      return stream_.next_layer();
    } else {
      return stream_;
    }
  }

  template <typename Action>
  void OnStrand(Action action) {
    asio::dispatch(
        stream_.get_executor(),
        [self = this->shared_from_this(), action = std::move(action)]() mutable { action(*self); });
  }

  // A handler that keeps the connection alive and is skipped once the connection is closed.
  template <typename Action>
  auto Bound(Action action) {
    return [self = this->shared_from_this(), action](const error_code& error, auto... more) {
      if (self->phase_ != Phase::kClosed) action(*self, error, more...);
    };
  }

  bool StaysOpen() const { return keep_alive_ && !context_.draining; }

  // --- Requests ---

  // A client that has sent nothing yet gets less time than one between two requests.
  void AwaitFirst() {
    phase_ = Phase::kNew;
    deadline_.Set(context_.draining ? kFirstRequestGrace : context_.limits.header_timeout);
    Parse();
  }

  void AwaitRequest() {
    phase_ = Phase::kIdle;
    deadline_.Set(context_.limits.idle_timeout);
    Parse();
  }

  void Parse() {
    while (true) {
      const size_t n_skipped = std::min<uint64_t>(n_to_skip_, inbox_.size());
      inbox_.erase(0, n_skipped);
      n_to_skip_ -= n_skipped;
      if (!inbox_.empty()) {
        if (phase_ == Phase::kNew || phase_ == Phase::kIdle) {
          phase_ = Phase::kHeader;
          deadline_.Set(context_.limits.header_timeout);
        }
        inbox_.erase(0, parser_.Feed(inbox_));
      }
      switch (parser_.state()) {
        case RequestParser::State::kFailed:
          return Refuse(parser_.failure());
        case RequestParser::State::kComplete:
          if (phase_ == Phase::kHeader && !Admit()) return;
          return Answer();
        case RequestParser::State::kBody:
          if (phase_ == Phase::kHeader) {
            if (!Admit()) return;
            phase_ = Phase::kBody;
            deadline_.Set(context_.limits.body_timeout);
            if (!inbox_.empty()) continue;
            if (parser_.expects_continue()) {
              out_.Interim(kContinue);
              Flush();
            }
          }
          return Read();
        case RequestParser::State::kHeader:
          return Read();
      }
    }
  }

  // Returns whether to receive the body. If not, answers the header, and skips the body if it is
  // small, or else closes the connection.
  bool Admit() {
    admission_ = context_.admit(parser_.head());
    if (!admission_.answer) return true;
    BeginAnswer(parser_.head());
    const std::optional<uint64_t> left = parser_.body_left();
    keep_alive_ = keep_alive_ && left && *left <= kMostSkippedBytes &&
                  !(*left > 0 && parser_.expects_continue());
    n_to_skip_ = keep_alive_ ? *left : 0;
    parser_.Drop();
    GiveResponse(*std::exchange(admission_.answer, std::nullopt));
    AwaitMore();
    return false;
  }

  void BeginAnswer(const HttpRequest& request) {
    phase_ = Phase::kAnswering;
    deadline_.Clear();
    keep_alive_ = parser_.keep_alive();
    http_1_0_ = parser_.is_http_1_0();
    out_.Begin(http_1_0_, /*bodiless=*/request.method == "HEAD");
    out_.AddFields(std::move(admission_.fields));
  }

  void Answer() {
    BeginAnswer(parser_.head());
    context_.handle(parser_.Take(), std::move(admission_), this->shared_from_this());
    AwaitMore();
  }

  void AwaitMore() {
    if (half_closed_) {
      Probe();
    } else {
      Watch();
    }
  }

  void Refuse(const RequestParser::Failure& failure) {
    phase_ = Phase::kAnswering;
    keep_alive_ = false;
    http_1_0_ = false;
    out_.Begin(/*http_1_0=*/false, /*bodiless=*/false);
    // The path is empty if the header is what failed.
    const ErrorForm form = ErrorFormOf(parser_.head().path);
    GiveResponse(HttpErrorResponse(failure.status, failure.message, "", form));
  }

  void Read() {
    if (reading_) return;
    if (half_closed_) return Close();
    reading_ = true;
    stream_.async_read_some(asio::buffer(read_),
                            Bound([](Connection& self, const error_code& error, size_t n_bytes) {
                              self.OnRead(error, n_bytes);
                            }));
  }

  // Reads while a request is answered, to notice the next request or a disconnect.
  void Watch() {
    if (inbox_.size() < kMaxAheadBytes) Read();
  }

  void OnRead(const error_code& error, size_t n_bytes) {
    reading_ = false;
    if (phase_ == Phase::kLingering) return error ? Close() : Discard();
    if (error == asio::error::eof && phase_ == Phase::kAnswering && !kTls && !http_1_0_) {
      half_closed_ = true;
      return Probe();
    }
    if (error) return Close();
    inbox_.append(read_.data(), n_bytes);
    if (phase_ == Phase::kAnswering) return Watch();
    Parse();
  }

  // The client has stopped sending. It may still read, or be gone; only its reaction to sent data
  // tells. Every client skips an interim response, so send one. Repeats after some time without
  // data, since the client may leave later.
  void Probe() {
    if (!out_.is_complete()) {
      if (out_.has_begun()) {
        out_.Comment("");
      } else {
        out_.Interim(kContinue);
      }
      Flush();
    }
    if (std::exchange(awaiting_reset_, true)) return;
    socket().async_wait(tcp::socket::wait_error,
                        Bound([](Connection& self, const error_code&) { self.Close(); }));
  }

  // --- Responses ---

  void GiveResponse(const HttpResponse& response) {
    context_.metrics->CountResponse(response.status);
    out_.Respond(response, StaysOpen());
    Flush();
  }

  template <typename Action>
  void InStream(Action say) {
    if (phase_ == Phase::kClosed) return;
    if (!out_.has_begun()) context_.metrics->CountResponse(200);
    say(out_);
    Flush();
  }

  void Flush() {
    if (phase_ == Phase::kClosed || is_writing_) return;
    is_writing_ = true;
    WriteSome();
  }

  // For a running stream: writes synchronously, and returns whether the network took everything,
  // which it nearly always does. One event loop operation per token would cost more than the write.
  bool WriteAtOnce() {
    const std::string_view bytes = out_.Next();
    error_code error;
    const size_t n_bytes = socket().write_some(asio::buffer(bytes.data(), bytes.size()), error);
    if (error || !out_.Written(n_bytes) || !out_.empty()) return false;
    is_writing_ = false;
    AwaitNews();
    return true;
  }

  void WriteSome() {
    if constexpr (!kTls) {
      const bool goes_on = out_.is_stream() && !out_.is_complete();
      // If it stopped early, the code below handles the rest or the error.
      if (phase_ == Phase::kAnswering && goes_on && WriteAtOnce()) return;
    }
    deadline_.Set(context_.limits.write_timeout);
    const std::string_view bytes = out_.Next();
    stream_.async_write_some(asio::buffer(bytes.data(), bytes.size()),
                             Bound([](Connection& self, const error_code& error, size_t n_bytes) {
                               self.OnWritten(error, n_bytes);
                             }));
  }

  void OnWritten(const error_code& error, size_t n_bytes) {
    if (error) return Close();
    if (!out_.Written(n_bytes) || !out_.empty()) return WriteSome();
    is_writing_ = false;
    if (phase_ == Phase::kAnswering) {
      out_.is_complete() ? FinishAnswer() : AwaitNews();
    } else if (phase_ == Phase::kBody) {
      // "100 Continue" was sent: the body starts now.
      deadline_.Set(context_.limits.body_timeout);
    }
  }

  // Everything queued is written, and the answer is not complete.
  void AwaitNews() {
    deadline_.Clear();
    if (half_closed_) {
      deadline_.Set(kProbeInterval);
    } else if (out_.is_stream() && context_.limits.keep_alive_interval.count() > 0) {
      deadline_.Set(context_.limits.keep_alive_interval);
    }
  }

  void FinishAnswer() {
    on_gone_ = nullptr;
    out_.Rest();
    answer_memory_.ShrinkTo(0);
    if (!StaysOpen()) return Linger();
    AwaitRequest();
  }

  // --- The end ---

  void Linger() {
    phase_ = Phase::kLingering;
    deadline_.Set(kLinger);
    inbox_.clear();
    if constexpr (kTls) {
      stream_.async_shutdown(
          Bound([](Connection& self, const error_code&) { self.ShutDownAndDiscard(); }));
    } else {
      ShutDownAndDiscard();
    }
  }

  void ShutDownAndDiscard() {
    error_code ignored;
    socket().shutdown(tcp::socket::shutdown_send, ignored);
    if (half_closed_) return Close();
    if (!reading_) Discard();
  }

  void Discard() {
    socket().async_read_some(asio::buffer(read_),
                             Bound([](Connection& self, const error_code& error, size_t) {
                               error ? self.Close() : self.Discard();
                             }));
  }

  void Close() {
    if (phase_ == Phase::kClosed) return;
    phase_ = Phase::kClosed;
    is_gone_ = true;
    deadline_.Clear();
    error_code ignored;
    socket().close(ignored);
    out_.Abandon();
    if (on_gone_ != nullptr) std::move(on_gone_)();
    on_gone_ = nullptr;
  }

  void OnDeadline() {
    if (is_writing_) return Close();  // a client that does not read cannot receive an error either
    if (phase_ == Phase::kHeader || phase_ == Phase::kBody) {
      return Refuse({.status = 408, .message = "the request did not arrive in time"});
    }
    if (phase_ != Phase::kAnswering) return Close();
    if (half_closed_) return Probe();
    InStream([](Outbox& out) { out.Comment(kKeepAlive); });
  }

  ConnectionContext& context_;
  // Declared before all members that use the server, because the server may be destroyed after it.
  const ConnectionEntry entry_;
  const ClientCounts::Place place_;
  Stream stream_;
  Deadline deadline_;
  Phase phase_ = Phase::kHandshake;
  std::atomic<bool> is_gone_{false};  // true when phase_ is kClosed

  RequestParser parser_;
  std::array<char, kReadBytes> read_;
  std::string inbox_;       // read, not yet parsed
  uint64_t n_to_skip_ = 0;  // bytes of a refused request's body to skip, in inbox_ and after
  Admission admission_;     // of the request being received
  bool reading_ = false;
  bool half_closed_ = false;  // the client has shut down its sending side
  bool awaiting_reset_ = false;

  Outbox out_;
  MemoryBudget::Lease answer_memory_;  // of a whole answer in out_
  bool is_writing_ = false;

  // State of the request being answered.
  bool keep_alive_ = true;
  bool http_1_0_ = false;
  absl::AnyInvocable<void() &&> on_gone_;
};

}  // namespace

void StartConnection(tcp::socket socket, ClientCounts::Place place, asio::ssl::context* tls,
                     ConnectionContext* context) {
  if (tls == nullptr) {
    std::make_shared<Connection<tcp::socket>>(std::move(socket), std::move(place), context)->Run();
  } else {
    using TlsStream = asio::ssl::stream<tcp::socket>;
    std::make_shared<Connection<TlsStream>>(TlsStream(std::move(socket), *tls), std::move(place),
                                            context)
        ->Run();
  }
}

}  // namespace stagecoach::router::http
