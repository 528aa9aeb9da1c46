// Resumable streams: keeps the output of each stream for a while, for a client that lost its
// connection.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "common/flags/front_end_flags.h"
#include "common/mutex.h"
#include "router/access/caller.h"
#include "router/scheduler/request.h"

namespace stagecoach::router {

class RouterMetrics;

// A stream holds the bytes of one protocol, and only clients of this protocol can find it.
enum class StreamProtocol { kGrpc, kHttp };

// The owner under which a tenant's streams of a protocol are kept.
std::string StreamOwner(StreamProtocol protocol, const Caller& caller);

class StreamWriter;
class StreamReader;

struct NewStream {
  std::unique_ptr<StreamWriter> writer;
  std::unique_ptr<StreamReader> reader;  // the first reader
};

// The memory and the number of streams are limited as a whole, and shared between tenants by
// weight. If memory is short, the tenant that uses most relative to its weight loses first its
// ended streams, the oldest first, then the beginnings of its running streams. If there are too
// many streams, the tenant that has most relative to its weight, including the new stream, loses
// one: the oldest ended stream, or, if another tenant creates the new stream, a running one, which
// is then kept only as long as it has a reader. Thread-safe; outlives its writers and readers.
class StreamStore {
 public:
  StreamStore(const StreamLimits& limits, const RouterMetrics* metrics);
  ~StreamStore();

  // Creates a stream that only `owner` can find; it is charged to `account`. `cancel` is called
  // once, from any thread, if before End nobody comes to read the stream, or somebody cancels it.
  // `removed` (may be null) is called once, from any thread, when the stream is dropped, but not
  // when the store goes. ALREADY_EXISTS: the owner has a stream with this id. RESOURCE_EXHAUSTED:
  // too many of the tenant's streams run. INVALID_ARGUMENT: streams cannot be kept.
  absl::StatusOr<NewStream> Create(const std::string& owner, const Account& account,
                                   const std::string& id,
                                   absl::AnyInvocable<void(const absl::Status&) &&> cancel,
                                   absl::AnyInvocable<void() &&> removed = nullptr);

  // Reads the stream after its first `from` tokens. Several readers may read at the same time; each
  // gets the whole stream. NOT_FOUND; INVALID_ARGUMENT: the stream has fewer tokens. OUT_OF_RANGE:
  // these tokens are no longer kept.
  absl::StatusOr<std::unique_ptr<StreamReader>> Read(const std::string& owner,
                                                     const std::string& id, uint64_t from);

  // Ends and removes the stream; its readers get CANCELLED. NOT_FOUND.
  absl::Status Cancel(const std::string& owner, const std::string& id);

  // From now on, no stream ends because it has no reader.
  void StopWaiting();

 private:
  friend class StreamWriter;
  friend class StreamReader;
  using Clock = std::chrono::steady_clock;
  using Key = std::pair<std::string, std::string>;  // owner, id
  using Wake = std::shared_ptr<std::function<void()>>;
  struct Stream;
  struct Held {
    uint32_t weight = 1;
    size_t n_streams = 0;  // streams that have a place
    size_t n_bytes = 0;
  };
  // Actions to run after the lock is released.
  struct Aftermath;

  std::unique_ptr<StreamReader> MakeReader(const std::shared_ptr<Stream>& stream, uint64_t next)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status NoStream(const std::string& id) const;
  void Append(Stream& stream, uint64_t n_tokens, std::string data);
  void End(const std::shared_ptr<Stream>& stream, absl::Status status);
  void EndLocked(Stream& stream, absl::Status status, Aftermath& after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Remove(const std::shared_ptr<Stream>& stream, Aftermath& after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeRoom(Aftermath& after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes a place for one more stream. RESOURCE_EXHAUSTED if it cannot.
  absl::Status MakePlace(const Account& account, Aftermath& after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes the place of a running stream, which then goes with its last reader.
  void TakePlace(const std::string& tenant, Aftermath& after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveUpPlace(Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Held& HeldBy(const Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddBytes(Stream& stream, size_t n_bytes, int sign) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetIfNone(const std::string& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<Stream> OldestEnded(const std::string& tenant) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CutLargest(const std::string& tenant, Aftermath& after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // REQUIRES: mutex_ is held.
  static void WakeReaders(Stream& stream, Aftermath& after);
  void Unread(const std::shared_ptr<Stream>& stream, Aftermath& after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Report() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WaitForReaders();

  const StreamLimits limits_;
  const RouterMetrics* const metrics_;
  mutable Mutex mutex_;
  std::map<Key, std::shared_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
  // Only tenants that have streams.
  std::map<std::string, Held> by_tenant_ ABSL_GUARDED_BY(mutex_);
  size_t n_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t n_places_ ABSL_GUARDED_BY(mutex_) = 0;  // places in use
  uint64_t n_created_ ABSL_GUARDED_BY(mutex_) = 0;
  // Streams without a reader, in the order in which they lost it.
  std::list<std::shared_ptr<Stream>> unread_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar changed_;
  std::thread waiter_;  // last member: uses all above
};

// Writes the output of a stream. One thread at a time.
class StreamWriter {
 public:
  ~StreamWriter();

  // The request was accepted: from now on the stream can be read until it is dropped. A stream that
  // ends before Start is removed; only its current readers see its end.
  void Start();
  // Appends `data`, which brings the stream to `n_tokens` tokens. Empty data: it comes with the
  // next call.
  void Append(uint64_t n_tokens, std::string data);
  // Ends the stream.
  void End(absl::Status status);

 private:
  friend class StreamStore;
  StreamWriter(StreamStore* store, std::shared_ptr<StreamStore::Stream> stream);

  StreamStore* const store_;
  const std::shared_ptr<StreamStore::Stream> stream_;
};

// The position of one reader in a stream. One thread at a time.
class StreamReader {
 public:
  struct Piece {
    bool started = false;  // the stream's Start was called
    std::string data;      // empty: no new data
    bool ended = false;    // the stream ends after the data, with `status`
    absl::Status status;
  };

  ~StreamReader();

  // Sets `wake`, which is called once, from any thread, when there is news after a Next that
  // returned no data. Call it before the first Next. Without it, the reader must poll.
  void OnNews(std::function<void()> wake);
  // Returns the next entries as they were appended, concatenated up to `max_bytes`, but at least
  // one.
  Piece Next(size_t max_bytes);

 private:
  friend class StreamStore;
  StreamReader(StreamStore* store, std::shared_ptr<StreamStore::Stream> stream, uint64_t next);

  StreamStore* const store_;
  const std::shared_ptr<StreamStore::Stream> stream_;
  uint64_t next_;  // index of the next entry of the stream
  StreamStore::Wake wake_;
  bool waits_ = false;  // guarded by the store's mutex
};

}  // namespace stagecoach::router
