// Streams that can be gone on with: what each has said is kept for a while, for a client that has
// lost its connection.
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
#include "common/mutex.h"
#include "router/scheduler/request.h"

namespace stagecoach::router {

class RouterMetrics;

struct StreamLimits {
  // For how long a stream is kept that nobody reads, whether it still runs or has ended. 0: none
  // can be kept.
  std::chrono::milliseconds keep{60'000};
  size_t max_streams = 1024;
  size_t max_bytes = 64 << 20;  // of what all of them have said
};

class StreamWriter;
class StreamReader;

struct NewStream {
  std::unique_ptr<StreamWriter> writer;
  std::unique_ptr<StreamReader> reader;  // the first
};

// Memory and the number of streams are bounded as a whole, and shared between tenants. When memory
// is short, the tenant that has most of it for its weight loses first: its streams that have ended,
// oldest first, then the beginnings of those that run. When streams are too many, the one that has
// most of them for its weight, with the new one, loses one: the oldest that has ended; if another
// tenant comes, one that runs, which is then kept for as long only as somebody reads it.
// Thread-safe; outlives its writers and readers.
class StreamStore {
 public:
  StreamStore(const StreamLimits& limits, const RouterMetrics* metrics);
  ~StreamStore();

  // A stream of `owner`, who alone can find it, on `account`. `cancel` is called once, from any
  // thread, when nobody comes to read it, or somebody cancels it, before its End.
  // ALREADY_EXISTS; RESOURCE_EXHAUSTED when too many of the tenant's run; INVALID_ARGUMENT when
  // none can be kept.
  absl::StatusOr<NewStream> Create(const std::string& owner, const Account& account,
                                   const std::string& id,
                                   absl::AnyInvocable<void(const absl::Status&) &&> cancel);

  // From behind the stream's first `from` tokens on. Any number of readers at a time, each of which
  // gets all. NOT_FOUND; INVALID_ARGUMENT when the stream is not that long; OUT_OF_RANGE when its
  // beginning is no longer kept.
  absl::StatusOr<std::unique_ptr<StreamReader>> Read(const std::string& owner,
                                                     const std::string& id, uint64_t from);

  // Readers get CANCELLED. NOT_FOUND.
  absl::Status Cancel(const std::string& owner, const std::string& id);

  // No stream ends for want of a reader any more.
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
    size_t n_streams = 0;  // that have a place
    size_t n_bytes = 0;
  };
  // What is to be done once the lock is released.
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
  // A place for one more. RESOURCE_EXHAUSTED.
  absl::Status MakePlace(const Account& account, Aftermath& after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // One that runs no longer counts, and goes with its last reader.
  void TakePlace(const std::string& tenant, Aftermath& after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveUpPlace(Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Held& HeldBy(const Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddBytes(Stream& stream, size_t n_bytes, int sign) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetIfNone(const std::string& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<Stream> OldestEnded(const std::string& tenant) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CutLargest(const std::string& tenant, Aftermath& after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // REQUIRES: mutex_ held.
  static void WakeReaders(Stream& stream, Aftermath& after);
  void Unread(const std::shared_ptr<Stream>& stream, Aftermath& after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Report() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WaitForReaders();

  const StreamLimits limits_;
  const RouterMetrics* const metrics_;
  mutable Mutex mutex_;
  std::map<Key, std::shared_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Held> by_tenant_ ABSL_GUARDED_BY(mutex_);  // of those that have streams
  size_t n_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t n_places_ ABSL_GUARDED_BY(mutex_) = 0;  // that are taken
  uint64_t n_created_ ABSL_GUARDED_BY(mutex_) = 0;
  // Those without a reader, the longest so first.
  std::list<std::shared_ptr<Stream>> unread_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar changed_;
  std::thread waiter_;  // last
};

// What a stream says. One thread at a time.
class StreamWriter {
 public:
  ~StreamWriter();

  // The request was accepted: it can be read about from now on, until it is dropped. A stream that
  // ends before leaves no trace but for those who read it already.
  void Start();
  // `data` brings the stream to `n_tokens` tokens. Empty data: it comes with the next.
  void Append(uint64_t n_tokens, std::string data);
  // Nothing follows.
  void End(absl::Status status);

 private:
  friend class StreamStore;
  StreamWriter(StreamStore* store, std::shared_ptr<StreamStore::Stream> stream);

  StreamStore* const store_;
  const std::shared_ptr<StreamStore::Stream> stream_;
};

// One reader's place in a stream. One thread at a time.
class StreamReader {
 public:
  struct Piece {
    bool started = false;  // the stream's Start was called
    std::string data;      // empty: nothing new
    bool ended = false;    // nothing follows the data; with `status`
    absl::Status status;
  };

  ~StreamReader();

  // `wake` is called, from any thread, once after each Next that gave no data, when there is news.
  // Before the first Next; without it who reads has to ask again.
  void OnNews(std::function<void()> wake);
  // What comes next: data as it was appended, put together up to `max_bytes`, but one at least.
  Piece Next(size_t max_bytes);

 private:
  friend class StreamStore;
  StreamReader(StreamStore* store, std::shared_ptr<StreamStore::Stream> stream, uint64_t next);

  StreamStore* const store_;
  const std::shared_ptr<StreamStore::Stream> stream_;
  uint64_t next_;  // of the stream's entries
  StreamStore::Wake wake_;
  bool waits_ = false;  // guarded by the store's mutex
};

}  // namespace stagecoach::router
