#include "router/frontend/stream_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <vector>

#include "router/frontend/new_request_id.h"
#include "router/frontend/router_metrics.h"
#include "router/text/error_code.h"

namespace stagecoach::router {
namespace {

// Memory overhead per entry.
constexpr size_t kEntryOverheadBytes = 64;
constexpr char kStreamNotFound[] = "stream_not_found";
constexpr char kStreamOnOtherReplica[] = "stream_on_other_replica";

}  // namespace

struct StreamStore::Stream {
  struct Entry {
    uint64_t start = 0;  // tokens of the stream before this entry
    std::string data;

    size_t bytes() const { return data.size() + kEntryOverheadBytes; }
  };

  Key key;
  Account account;
  uint64_t number = 0;    // in order of creation
  bool is_kept = true;    // it is in streams_
  bool has_place = true;  // counts against max_streams; false: it goes with its last reader
  bool started = false;
  std::deque<Entry> entries;
  uint64_t n_dropped = 0;  // number of dropped entries before the first of `entries`
  uint64_t n_lost = 0;     // reading from below this many tokens would need a dropped entry
  uint64_t n_tokens = 0;
  size_t n_bytes = 0;
  bool ended = false;
  absl::Status status;
  absl::AnyInvocable<void(const absl::Status&) &&> cancel;  // null after the end
  absl::AnyInvocable<void() &&> removed;                    // null: nobody asks
  std::vector<StreamReader*> readers;
  // Valid while there are no readers:
  std::list<std::shared_ptr<Stream>>::iterator unread;
  Clock::time_point expires;
};

struct StreamStore::Aftermath {
  std::vector<Wake> wakes;
  std::vector<std::pair<absl::AnyInvocable<void(const absl::Status&) &&>, absl::Status>> cancels;

  std::vector<absl::AnyInvocable<void() &&>> removals;

  void Do() {
    for (const Wake& wake : wakes) (*wake)();
    for (auto& removed : removals) std::move(removed)();
    for (auto& [cancel, status] : cancels) std::move(cancel)(status);
    // Destroying a callback may destroy a writer, whose destructor takes the lock.
    cancels.clear();
  }
};

std::string StreamOwner(StreamProtocol protocol, const Caller& caller) {
  return (protocol == StreamProtocol::kGrpc ? "grpc/" : "http/") + caller.tenant;
}

StreamStore::StreamStore(const StreamLimits& limits, const RouterMetrics* metrics)
    : limits_(limits), metrics_(metrics), waiter_([this] { WaitForReaders(); }) {}

StreamStore::~StreamStore() { StopWaiting(); }

void StreamStore::StopWaiting() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (waiter_.joinable()) waiter_.join();
}

absl::Status StreamStore::NoStream(const std::string& id) const {
  if (IsOfAnotherInstance(id)) {
    return WithErrorCode(
        absl::NotFoundError(fmt::format("stream '{}' belongs to another replica; this one is {}: "
                                        "send the request to the replica that started the stream",
                                        id, InstanceId())),
        kStreamOnOtherReplica);
  }
  return WithErrorCode(
      absl::NotFoundError(fmt::format("no stream '{}' is kept: it was not resumable, nobody read "
                                      "it for {} s, or another replica has it",
                                      id, std::chrono::duration<double>(limits_.keep).count())),
      kStreamNotFound);
}

absl::StatusOr<NewStream> StreamStore::Create(
    const std::string& owner, const Account& account, const std::string& id,
    absl::AnyInvocable<void(const absl::Status&) &&> cancel,
    absl::AnyInvocable<void() &&> removed) {
  if (limits_.keep.count() == 0) {
    return absl::InvalidArgumentError("resumable: this server keeps no streams (--resume-time 0)");
  }
  Aftermath after;
  NewStream made;
  {
    MutexLock lock(mutex_);
    const Key key(owner, id);
    if (streams_.contains(key)) {
      return absl::AlreadyExistsError(fmt::format(
          "request_id: a stream '{}' exists already; read it, or choose another id", id));
    }
    if (n_places_ >= limits_.max_streams) {
      if (absl::Status place = MakePlace(account, after); !place.ok()) return place;
    }
    auto stream = std::make_shared<Stream>();
    stream->key = key;
    stream->account = account;
    stream->number = n_created_++;
    ++HeldBy(*stream).n_streams;
    ++n_places_;
    stream->cancel = std::move(cancel);
    stream->removed = std::move(removed);
    streams_.emplace(key, stream);
    Report();
    made.reader = MakeReader(stream, 0);
    made.writer.reset(new StreamWriter(this, std::move(stream)));
  }
  after.Do();
  return made;
}

std::unique_ptr<StreamReader> StreamStore::MakeReader(const std::shared_ptr<Stream>& stream,
                                                      uint64_t next) {
  std::unique_ptr<StreamReader> reader(new StreamReader(this, stream, next));
  stream->readers.push_back(reader.get());
  return reader;
}

absl::StatusOr<std::unique_ptr<StreamReader>> StreamStore::Read(const std::string& owner,
                                                                const std::string& id,
                                                                uint64_t from) {
  MutexLock lock(mutex_);
  const auto found = streams_.find({owner, id});
  if (found == streams_.end()) return NoStream(id);
  const std::shared_ptr<Stream>& stream = found->second;
  if (from > stream->n_tokens) {
    return absl::InvalidArgumentError(
        fmt::format("from: {} is past the end of the stream, which has {} tokens so far", from,
                    stream->n_tokens));
  }
  if (from < stream->n_lost) {
    return absl::OutOfRangeError(
        fmt::format("from: the stream's first {} tokens are no longer kept, because the memory for "
                    "streams was full (--resume-memory)",
                    stream->n_lost));
  }
  const auto& entries = stream->entries;
  const auto first =
      std::partition_point(entries.begin(), entries.end(),
                           [from](const Stream::Entry& entry) { return entry.start < from; });
  if (stream->readers.empty()) unread_.erase(stream->unread);
  if (from > 0) metrics_->CountStreamResumed();
  return MakeReader(stream, stream->n_dropped + static_cast<uint64_t>(first - entries.begin()));
}

absl::Status StreamStore::Cancel(const std::string& owner, const std::string& id) {
  Aftermath after;
  {
    MutexLock lock(mutex_);
    const auto found = streams_.find({owner, id});
    if (found == streams_.end()) return NoStream(id);
    const std::shared_ptr<Stream> stream = found->second;
    EndLocked(*stream, absl::CancelledError("the stream was cancelled"), after);
    Remove(stream, after);
  }
  after.Do();
  return absl::OkStatus();
}

void StreamStore::Append(Stream& stream, uint64_t n_tokens, std::string data) {
  Aftermath after;
  {
    MutexLock lock(mutex_);
    const uint64_t start = std::exchange(stream.n_tokens, n_tokens);
    if (stream.ended || data.empty()) return;
    Stream::Entry entry{.start = start, .data = std::move(data)};
    const size_t n_bytes = entry.bytes();
    stream.entries.push_back(std::move(entry));
    WakeReaders(stream, after);
    if (stream.is_kept) {
      AddBytes(stream, n_bytes, 1);
      MakeRoom(after);
      Report();
    }
  }
  after.Do();
}

void StreamStore::End(const std::shared_ptr<Stream>& stream, absl::Status status) {
  Aftermath after;
  decltype(stream->cancel) unused;  // destroyed outside the lock
  {
    MutexLock lock(mutex_);
    unused = std::exchange(stream->cancel, nullptr);
    EndLocked(*stream, std::move(status), after);
    if (!stream->started && stream->is_kept) Remove(stream, after);
  }
  after.Do();
}

void StreamStore::EndLocked(Stream& stream, absl::Status status, Aftermath& after) {
  if (std::exchange(stream.ended, true)) return;
  if (stream.cancel != nullptr) {
    after.cancels.emplace_back(std::move(stream.cancel), status);
    stream.cancel = nullptr;
  }
  stream.status = std::move(status);
  WakeReaders(stream, after);
}

void StreamStore::Remove(const std::shared_ptr<Stream>& stream, Aftermath& after) {
  EndLocked(*stream, absl::CancelledError("the stream was removed because no client read it"),
            after);
  stream->is_kept = false;
  if (stream->removed != nullptr) after.removals.push_back(std::move(stream->removed));
  AddBytes(*stream, stream->n_bytes, -1);
  if (stream->has_place) GiveUpPlace(*stream);
  ForgetIfNone(stream->account.tenant);
  if (stream->readers.empty()) unread_.erase(stream->unread);
  streams_.erase(stream->key);
  Report();
}

void StreamStore::MakeRoom(Aftermath& after) {
  if (n_bytes_ <= limits_.max_bytes) return;
  // Frees one eighth of the memory at once, so that not every token triggers this.
  while (n_bytes_ > limits_.max_bytes - limits_.max_bytes / 8) {
    const auto most =
        std::max_element(by_tenant_.begin(), by_tenant_.end(), [](const auto& a, const auto& b) {
          return a.second.n_bytes * b.second.weight < b.second.n_bytes * a.second.weight;
        });
    const std::string tenant = most->first;
    metrics_->CountStreamDropped();
    if (const auto ended = OldestEnded(tenant)) {
      Remove(ended, after);
    } else {
      CutLargest(tenant, after);
    }
  }
}

absl::Status StreamStore::MakePlace(const Account& account, Aftermath& after) {
  const auto own = by_tenant_.find(account.tenant);
  const size_t n_own = own == by_tenant_.end() ? 0 : own->second.n_streams;
  std::string most = account.tenant;
  size_t n_most = n_own + 1, weight = account.weight;
  for (const auto& [name, held] : by_tenant_) {
    if (held.n_streams * weight <= n_most * held.weight) continue;
    most = name;
    n_most = held.n_streams;
    weight = held.weight;
  }
  if (const auto ended = OldestEnded(most)) {
    metrics_->CountStreamDropped();
    Remove(ended, after);
    return absl::OkStatus();
  }
  if (most == account.tenant) {
    return absl::ResourceExhaustedError(
        fmt::format("{} resumable streams are running, {} of them yours: this is the limit "
                    "(--resume-streams); try again later, or without resumable",
                    n_places_, n_own));
  }
  metrics_->CountStreamDropped();
  TakePlace(most, after);
  return absl::OkStatus();
}

void StreamStore::TakePlace(const std::string& tenant, Aftermath& after) {
  std::shared_ptr<Stream> youngest;
  for (const auto& [key, stream] : streams_) {
    if (stream->account.tenant != tenant || !stream->has_place || stream->readers.empty()) continue;
    if (youngest == nullptr || youngest->number < stream->number) youngest = stream;
  }
  if (youngest != nullptr) return GiveUpPlace(*youngest);
  // No stream has a reader: remove the one that has been without a reader longest.
  for (const std::shared_ptr<Stream>& stream : unread_) {
    if (stream->account.tenant == tenant) return Remove(std::shared_ptr<Stream>(stream), after);
  }
}

StreamStore::Held& StreamStore::HeldBy(const Stream& stream) {
  Held& held = by_tenant_[stream.account.tenant];
  held.weight = stream.account.weight;
  return held;
}

void StreamStore::GiveUpPlace(Stream& stream) {
  stream.has_place = false;
  --HeldBy(stream).n_streams;
  --n_places_;
}

void StreamStore::AddBytes(Stream& stream, size_t n_bytes, int sign) {
  stream.n_bytes += sign * n_bytes;
  n_bytes_ += sign * n_bytes;
  HeldBy(stream).n_bytes += sign * n_bytes;
}

void StreamStore::ForgetIfNone(const std::string& tenant) {
  const auto found = by_tenant_.find(tenant);
  if (found == by_tenant_.end()) return;
  if (found->second.n_streams == 0 && found->second.n_bytes == 0) by_tenant_.erase(found);
}

std::shared_ptr<StreamStore::Stream> StreamStore::OldestEnded(const std::string& tenant) const {
  for (const std::shared_ptr<Stream>& stream : unread_) {
    if (stream->ended && stream->account.tenant == tenant) return stream;
  }
  return nullptr;
}

void StreamStore::CutLargest(const std::string& tenant, Aftermath& after) {
  Stream* largest = nullptr;
  for (const auto& [key, stream] : streams_) {
    if (stream->account.tenant != tenant) continue;
    if (largest == nullptr || stream->n_bytes > largest->n_bytes) largest = stream.get();
  }
  size_t to_drop = (largest->entries.size() + 1) / 2;
  size_t n_bytes = 0;
  for (; to_drop > 0; --to_drop) {
    n_bytes += largest->entries.front().bytes();
    largest->n_lost = largest->entries.front().start + 1;
    largest->entries.pop_front();
    ++largest->n_dropped;
  }
  AddBytes(*largest, n_bytes, -1);
  WakeReaders(*largest, after);
}

void StreamStore::WakeReaders(Stream& stream, Aftermath& after) {
  for (StreamReader* reader : stream.readers) {
    if (std::exchange(reader->waits_, false)) after.wakes.push_back(reader->wake_);
  }
}

void StreamStore::Unread(const std::shared_ptr<Stream>& stream, Aftermath& after) {
  if (!stream->has_place) {
    stream->unread = unread_.insert(unread_.end(), stream);
    return Remove(stream, after);
  }
  stream->expires = Clock::now() + limits_.keep;
  stream->unread = unread_.insert(unread_.end(), stream);
  if (unread_.size() == 1) changed_.notify_one();
}

void StreamStore::Report() const { metrics_->SetStreams(streams_.size(), n_bytes_); }

void StreamStore::WaitForReaders() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (unread_.empty()) {
      changed_.wait(lock);
    } else if (Clock::now() < unread_.front()->expires) {
      changed_.wait_until(lock, Clock::time_point(unread_.front()->expires));
    } else {
      Aftermath after;
      Remove(std::shared_ptr<Stream>(unread_.front()), after);
      lock.unlock();
      after.Do();
      lock.lock();
    }
  }
}

StreamWriter::StreamWriter(StreamStore* store, std::shared_ptr<StreamStore::Stream> stream)
    : store_(store), stream_(std::move(stream)) {}

StreamWriter::~StreamWriter() {
  store_->End(stream_, absl::InternalError("the stream ended unexpectedly"));
}

void StreamWriter::Start() {
  StreamStore::Aftermath after;
  {
    MutexLock lock(store_->mutex_);
    stream_->started = true;
    StreamStore::WakeReaders(*stream_, after);
  }
  after.Do();
}

void StreamWriter::Append(uint64_t n_tokens, std::string data) {
  store_->Append(*stream_, n_tokens, std::move(data));
}

void StreamWriter::End(absl::Status status) { store_->End(stream_, std::move(status)); }

StreamReader::StreamReader(StreamStore* store, std::shared_ptr<StreamStore::Stream> stream,
                           uint64_t next)
    : store_(store), stream_(std::move(stream)), next_(next) {}

StreamReader::~StreamReader() {
  StreamStore::Aftermath after;
  {
    MutexLock lock(store_->mutex_);
    std::erase(stream_->readers, this);
    if (stream_->readers.empty() && stream_->is_kept) store_->Unread(stream_, after);
  }
  after.Do();
}

void StreamReader::OnNews(std::function<void()> wake) {
  wake_ = std::make_shared<std::function<void()>>(std::move(wake));
}

StreamReader::Piece StreamReader::Next(size_t max_bytes) {
  MutexLock lock(store_->mutex_);
  Piece piece;
  piece.started = stream_->started;
  if (next_ < stream_->n_dropped) {
    piece.ended = true;
    piece.status = absl::OutOfRangeError(
        "the stream's next tokens are no longer kept, because the memory for streams was full "
        "(--resume-memory)");
    return piece;
  }
  const uint64_t end = stream_->n_dropped + stream_->entries.size();
  while (next_ < end) {
    const std::string& data = stream_->entries[next_ - stream_->n_dropped].data;
    if (!piece.data.empty() && piece.data.size() + data.size() > max_bytes) break;
    piece.data += data;
    ++next_;
  }
  if (next_ == end && stream_->ended) {
    piece.ended = true;
    piece.status = stream_->status;
  }
  waits_ = wake_ != nullptr && piece.data.empty() && !piece.ended;
  return piece;
}

}  // namespace stagecoach::router
