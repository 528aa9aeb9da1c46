#include "router/frontend/http/connection.h"

#include <array>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/check.h"
#include "router/frontend/http/api_error.h"
#include "router/frontend/http/http_metrics.h"
#include "router/frontend/http/request_parser.h"
#include "router/frontend/http/wire_format.h"

namespace stagecoach::router::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr size_t kReadBytes = 8 << 10;
// What is written for a client before its writer has to wait for it.
constexpr size_t kWriteWindowBytes = 16 << 10;
// What a client may send ahead while its request is answered; the rest waits in the network.
constexpr size_t kMaxAheadBytes = 16 << 10;
// For a client that is still sending to read why it was refused: closing at once would reset the
// connection and take the answer away.
constexpr std::chrono::seconds kLinger(2);
constexpr std::chrono::seconds kProbeInterval(1);

// All state belongs to the socket's executor, a strand, but for the count of unwritten bytes.
template <typename Stream>
class Connection final : public Exchange,
                         public ConnectionControl,
                         public std::enable_shared_from_this<Connection<Stream>> {
  static constexpr bool kTls = !std::is_same_v<Stream, tcp::socket>;

 public:
  Connection(Stream stream, ConnectionContext* context)
      : context_(*context),
        entry_{context, this},
        stream_(std::move(stream)),
        timer_(stream_.get_executor()),
        parser_(context_.limits, context_.bodies) {}

  void Run() {
    context_.open.Add(this, this->weak_from_this());
    OnStrand([](Connection& self) {
      if constexpr (kTls) {
        self.SetDeadline(self.context_.limits.header_timeout);
        self.stream_.async_handshake(asio::ssl::stream_base::server,
                                     self.Bound([](Connection& me, const error_code& error) {
                                       error ? me.Close() : me.AwaitRequest();
                                     }));
      } else {
        self.AwaitRequest();
      }
    });
  }

  // Exchange and ConnectionControl: from any thread.
  void AddFields(HeaderFields fields) override {
    OnStrand([fields = std::move(fields)](Connection& self) mutable {
      for (auto& field : fields) self.fields_.push_back(std::move(field));
    });
  }
  void Respond(HttpResponse response) override {
    OnStrand([response = std::move(response)](Connection& self) mutable {
      self.QueueResponse(std::move(response));
    });
  }
  void StartStream(HttpResponse head) override {
    OnStrand([head = std::move(head)](Connection& self) mutable {
      self.context_.metrics->CountResponse(head.status);
      self.keep_alive_ = self.StaysOpen() && !self.http_1_0_;
      self.stream_head_ = ResponseHead(head, self.fields_,
                                       self.http_1_0_ ? BodyFraming::kToEnd : BodyFraming::kChunked,
                                       self.keep_alive_);
    });
  }
  bool Write(std::string data, Done done) override {
    if (n_unwritten_.fetch_add(data.size()) + data.size() < kWriteWindowBytes) {
      OnStrand([data = std::move(data)](Connection& self) { self.QueueWrite(data); });
      return true;
    }
    OnStrand([data = std::move(data), done = std::move(done)](Connection& self) mutable {
      if (self.phase_ == Phase::kClosed) return std::move(done)(false);
      self.done_when_written_.push_back(std::move(done));
      self.QueueWrite(data);
    });
    return false;
  }
  void EndStream(std::string data) override {
    OnStrand([data = std::move(data)](Connection& self) {
      self.ending_ = true;
      self.QueueStreamData(data);
    });
  }
  void OnGone(absl::AnyInvocable<void() &&> action) override {
    OnStrand([action = std::move(action)](Connection& self) mutable {
      if (self.phase_ == Phase::kClosed) return std::move(action)();
      self.on_gone_ = std::move(action);
    });
  }
  void CloseIfIdle() override {
    OnStrand([](Connection& self) {
      if (self.phase_ == Phase::kHandshake) self.Close();
      if (self.phase_ == Phase::kIdle && self.inbox_.empty()) self.Linger();
    });
  }
  void Abort() override {
    OnStrand([](Connection& self) { self.Close(); });
  }

 private:
  enum class Phase { kHandshake, kIdle, kHeader, kBody, kAnswering, kLingering, kClosed };

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

  // A handler that keeps the connection alive and is not called once it is closed.
  template <typename Action>
  auto Bound(Action action) {
    return [self = this->shared_from_this(), action](const error_code& error, auto... more) {
      if (self->phase_ != Phase::kClosed) action(*self, error, more...);
    };
  }

  bool StaysOpen() const { return keep_alive_ && !context_.draining; }

  // --- Requests ---

  void AwaitRequest() {
    phase_ = Phase::kIdle;
    SetDeadline(context_.limits.idle_timeout);
    Parse();
  }

  void Parse() {
    while (true) {
      if (!inbox_.empty()) {
        if (phase_ == Phase::kIdle) {
          phase_ = Phase::kHeader;
          SetDeadline(context_.limits.header_timeout);
        }
        inbox_.erase(0, parser_.Feed(inbox_));
      }
      switch (parser_.state()) {
        case RequestParser::State::kFailed:
          return Refuse(parser_.failure());
        case RequestParser::State::kComplete:
          return Answer();
        case RequestParser::State::kBody:
          if (phase_ == Phase::kHeader) {
            phase_ = Phase::kBody;
            SetDeadline(context_.limits.body_timeout);
            if (!inbox_.empty()) continue;
            if (parser_.expects_continue()) Queue(kContinue);
          }
          return Read();
        case RequestParser::State::kHeader:
          return Read();
      }
    }
  }

  void Answer() {
    phase_ = Phase::kAnswering;
    ClearDeadline();
    keep_alive_ = parser_.keep_alive();
    http_1_0_ = parser_.is_http_1_0();
    HttpRequest request = parser_.Take();
    bodiless_ = request.method == "HEAD";
    context_.handle(std::move(request), this->shared_from_this());
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
    bodiless_ = false;
    QueueResponse(HttpErrorResponse(failure.status, failure.message, ""));
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

  // While a request is answered: to see what comes next, or that the client goes.
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

  // The client sends no more. It may still be reading, or be gone: only its answer to something
  // sent tells which, and an interim response is something that every client skips. Again after
  // some time without data, as it may go later.
  void Probe() {
    if (stream_begun_ && !ending_) {
      std::string comment;
      AppendChunk(comment, ":\n\n");
      Queue(comment);
    } else if (!ending_) {
      Queue(kContinue);
    }
    if (std::exchange(awaiting_reset_, true)) return;
    socket().async_wait(tcp::socket::wait_error,
                        Bound([](Connection& self, const error_code&) { self.Close(); }));
  }

  // --- Responses ---

  void QueueResponse(HttpResponse response) {
    context_.metrics->CountResponse(response.status);
    ending_ = true;
    std::string bytes = ResponseHead(response, fields_, BodyFraming::kLength, StaysOpen());
    if (!bodiless_) bytes += response.body;
    Queue(bytes);
  }

  void QueueWrite(std::string_view data) {
    n_queued_ += data.size();
    QueueStreamData(data);
  }

  void QueueStreamData(std::string_view data) {
    if (!std::exchange(stream_begun_, true)) queued_ += stream_head_;
    if (http_1_0_) {
      queued_ += data;
    } else {
      AppendChunk(queued_, data);
      if (ending_) queued_ += kLastChunk;
    }
    Queue("");
  }

  void Queue(std::string_view bytes) {
    if (phase_ == Phase::kClosed) return;
    queued_ += bytes;
    if (!is_writing_) StartWrite();
  }

  void StartWrite() {
    is_writing_ = true;
    writing_.swap(queued_);
    queued_.clear();
    n_written_ = 0;
    n_writing_ = std::exchange(n_queued_, 0);
    done_writing_.swap(done_when_written_);
    WriteSome();
  }

  void WriteSome() {
    SetDeadline(context_.limits.write_timeout);
    stream_.async_write_some(asio::buffer(writing_) + n_written_,
                             Bound([](Connection& self, const error_code& error, size_t n_bytes) {
                               self.OnWritten(error, n_bytes);
                             }));
  }

  void OnWritten(const error_code& error, size_t n_bytes) {
    if (error) return Close();
    n_written_ += n_bytes;
    if (n_written_ < writing_.size()) return WriteSome();
    is_writing_ = false;
    n_unwritten_ -= n_writing_;
    for (Done& done : done_writing_) std::move(done)(true);
    done_writing_.clear();
    if (!queued_.empty()) return StartWrite();
    if (phase_ == Phase::kAnswering) {
      half_closed_ ? SetDeadline(kProbeInterval) : ClearDeadline();
      if (ending_) FinishAnswer();
    } else if (phase_ == Phase::kBody) {
      SetDeadline(context_.limits.body_timeout);  // "100 Continue" went out: the body starts now
    }
  }

  void FinishAnswer() {
    on_gone_ = nullptr;
    ending_ = false;
    stream_begun_ = false;
    fields_.clear();
    // A large response's memory is not for an idle connection to keep.
    if (writing_.capacity() > kReadBytes) writing_ = {};
    if (!StaysOpen()) return Linger();
    AwaitRequest();
  }

  // --- The end ---

  void Linger() {
    phase_ = Phase::kLingering;
    SetDeadline(kLinger);
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
    timer_.cancel();
    error_code ignored;
    socket().close(ignored);
    for (auto* waiting : {&done_writing_, &done_when_written_}) {
      for (Done& done : *waiting) std::move(done)(false);
      waiting->clear();
    }
    if (on_gone_ != nullptr) std::move(on_gone_)();
    on_gone_ = nullptr;
  }

  // --- Time ---

  // Moving the deadline back, as every write does, costs no timer operation.
  void SetDeadline(Clock::duration from_now) {
    deadline_ = Clock::now() + from_now;
    if (deadline_ < timer_set_to_) SetTimer();
  }
  void ClearDeadline() { deadline_ = Clock::time_point::max(); }

  void SetTimer() {
    timer_set_to_ = deadline_;
    timer_.expires_at(deadline_);
    timer_.async_wait(Bound([](Connection& self, const error_code& error) {
      if (error) return;  // set anew
      self.timer_set_to_ = Clock::time_point::max();
      if (Clock::now() >= self.deadline_) {
        self.OnDeadline();
      } else if (self.deadline_ != Clock::time_point::max()) {
        self.SetTimer();
      }
    }));
  }

  void OnDeadline() {
    ClearDeadline();
    if (phase_ == Phase::kHeader || phase_ == Phase::kBody) {
      return Refuse({.status = 408, .message = "the request did not arrive in time"});
    }
    if (phase_ == Phase::kAnswering && !is_writing_) return Probe();
    Close();
  }

  // Counts the connection as open until its last member but this is gone: the server's end waits
  // for that.
  struct Entry {
    Entry(ConnectionContext* context, ConnectionControl* connection)
        : context(*context), connection(connection) {
      context->metrics->ConnectionOpened();
    }
    ~Entry() {
      context.metrics->ConnectionClosed();
      context.open.Remove(connection);
    }
    ConnectionContext& context;
    ConnectionControl* const connection;
  };

  ConnectionContext& context_;
  const Entry entry_;  // before all that uses the event loop
  Stream stream_;
  asio::steady_timer timer_;
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::time_point timer_set_to_ = Clock::time_point::max();
  Phase phase_ = Phase::kHandshake;

  RequestParser parser_;
  std::array<char, kReadBytes> read_;
  std::string inbox_;  // read, not yet parsed
  bool reading_ = false;
  bool half_closed_ = false;  // the client has sent all it will
  bool awaiting_reset_ = false;

  // Of the request that is answered.
  bool keep_alive_ = true;
  bool http_1_0_ = false;
  bool bodiless_ = false;
  HeaderFields fields_;
  absl::AnyInvocable<void() &&> on_gone_;
  std::string stream_head_;    // until the first data
  bool stream_begun_ = false;  // the head is queued
  bool ending_ = false;        // nothing is queued behind what is

  std::string writing_;
  std::string queued_;
  size_t n_written_ = 0;  // of writing_
  bool is_writing_ = false;
  // Of Write's data, as the writers count it.
  std::atomic<size_t> n_unwritten_{0};
  size_t n_queued_ = 0;                  // in queued_
  size_t n_writing_ = 0;                 // in writing_
  std::vector<Done> done_writing_;       // for writing_
  std::vector<Done> done_when_written_;  // for queued_
};

}  // namespace

void ConnectionRegistry::Add(ConnectionControl* connection, std::weak_ptr<ConnectionControl> weak) {
  std::lock_guard lock(mutex_);
  connections_.emplace(connection, std::move(weak));
}

void ConnectionRegistry::Remove(ConnectionControl* connection) {
  std::lock_guard lock(mutex_);
  connections_.erase(connection);
  if (connections_.empty()) changed_.notify_all();
}

size_t ConnectionRegistry::size() const {
  std::lock_guard lock(mutex_);
  return connections_.size();
}

void ConnectionRegistry::ForEach(const std::function<void(ConnectionControl&)>& action) const {
  std::vector<std::shared_ptr<ConnectionControl>> all;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [pointer, weak] : connections_) {
      if (auto connection = weak.lock()) all.push_back(std::move(connection));
    }
  }
  for (const auto& connection : all) action(*connection);
}

bool ConnectionRegistry::WaitUntilEmpty(
    std::optional<std::chrono::steady_clock::time_point> deadline) {
  std::unique_lock lock(mutex_);
  const auto is_empty = [this] { return connections_.empty(); };
  if (deadline) return changed_.wait_until(lock, *deadline, is_empty);
  changed_.wait(lock, is_empty);
  return true;
}

void StartConnection(tcp::socket socket, asio::ssl::context* tls, ConnectionContext* context) {
  if (tls == nullptr) {
    std::make_shared<Connection<tcp::socket>>(std::move(socket), context)->Run();
  } else {
    using TlsStream = asio::ssl::stream<tcp::socket>;
    std::make_shared<Connection<TlsStream>>(TlsStream(std::move(socket), *tls), context)->Run();
  }
}

}  // namespace stagecoach::router::http
