// What a router needs to write down so that its resumable streams outlive it: each stream's
// request, and what the scheduler reports about its sequences. The router that opens the journal
// next takes over its predecessor's names and streams.
//
// A thread of its own writes, in one transaction for all that came meanwhile. An event reaches its
// stream only after that, so a successor knows every token that a client has. The journal never
// stands in the way of serving: when it cannot be written, all that was in it is given up, events
// pass through, and streams that begin later are written again as soon as that works. A journal
// that another router has taken is not opened again.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "common/closable_queue.h"
#include "common/mutex.h"
#include "router/journal/journal_store.h"
#include "stagecoach/v1/journal.pb.h"

namespace stagecoach::router {

struct JournalOptions {
  // A folder on a local file system (JournalFile), or the URL of a Redis, with ?name=NAME if
  // several routers share it (RedisJournal).
  std::string place;
  // Largest size of what it holds. A journal that gets larger gives up its oldest stream.
  size_t max_bytes = 256 << 20;
  // Streams of a router that has written nothing for this long are dropped: their clients are gone.
  std::chrono::seconds keep{60};
  // Time from a failure to the next attempt to write.
  std::chrono::milliseconds retry_after{5'000};
  // A journal in Redis takes this: see RedisJournalOptions.
  std::chrono::milliseconds lease{10'000};
  std::chrono::milliseconds deadline{1'000};
};

// Thread-safe, except for TakeStreams and Stop.
class Journal {
 public:
  using Stream = JournalStream;
  using Committed = absl::AnyInvocable<void(v1::SequenceEvent) &&>;
  // Routers in a row that may take the same streams over without writing an event of them. After
  // more, the streams are dropped: one of them may be what ends the routers.
  static constexpr uint64_t kMostRestores = 3;

  // `router` is written to a new journal. In Redis, this waits until the lease of a router has
  // ended that does not renew it. FAILED_PRECONDITION: another router has it open.
  // PERMISSION_DENIED or INVALID_ARGUMENT: the place cannot be used. A damaged journal is replaced
  // by an empty one; a full disk, or a Redis that does not answer, is no error.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(const JournalOptions& options,
                                                       v1::RouterRecord router);
  ~Journal();  // calls Stop

  // The names that this router has: those of the router before.
  const v1::RouterRecord& router() const { return router_; }
  // The predecessor's streams, in the order of their beginnings. Call it once, before the rest.
  std::vector<Stream> TakeStreams();

  // A number for a new stream.
  uint64_t NewNumber() { return next_number_++; }
  void Begin(uint64_t stream, v1::StreamRecord record);
  // Writes an event of a stream; then calls `committed` with it on the journal's thread. After
  // Stop, both are dropped.
  void Append(uint64_t stream, v1::SequenceEvent event, Committed committed);
  // The stream is not kept any more.
  void Remove(uint64_t stream);
  // Writes all that came before, and closes the journal.
  void Stop();
  // The same at the router's orderly end. Its successor takes another lease holder, because the
  // model's files may change until it comes, and then the workers must load again.
  void StopInOrder();

  struct Report {
    bool failing = false;     // nothing can be written at present
    uint64_t n_failures = 0;  // that gave up all streams
    uint64_t n_given_up = 0;  // streams given up because the journal was full
    uint64_t n_streams = 0;   // in the journal
    uint64_t n_bytes = 0;     // of what it holds
  };
  Report Read() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Beginning {
    uint64_t stream = 0;
    v1::StreamRecord record;
  };
  struct Happening {
    v1::SequenceEvent event;
    Committed committed;
  };
  struct Removal {
    uint64_t stream = 0;
  };
  struct Opened {};  // `opening_` has its result
  using Entry = std::variant<Opened, Removal, Beginning, Happening>;
  using Opening = absl::StatusOr<std::unique_ptr<JournalStore>>;

  Journal(const JournalOptions& options, v1::RouterRecord router);
  // Reads what is there. An error is final.
  absl::Status Open();
  // A new journal with this router's names.
  Opening OpenNew() const;
  void Finish();
  void Run();
  // When Run has something to do without an entry.
  Clock::time_point NextTask() const;
  // Writes the entries, and keeps the lease.
  void WriteAll(std::vector<Entry>& entries);
  // Opens a new journal beside this thread, as that may take long, unless it is too early for that.
  void OpenAgain();
  void TakeOpened();
  absl::Status WriteTransaction(std::vector<Entry>& entries);
  absl::Status RemoveUnusedRows();
  // Drops the oldest streams while the journal is too large.
  absl::Status KeepSmall();
  void GiveUpAll(const absl::Status& why);
  // Changes the report under the lock.
  template <typename Change>
  void Tell(const Change& change) {
    const MutexLock lock(mutex_);
    change(report_);
  }

  const JournalOptions options_;
  std::unique_ptr<JournalPlace> place_;  // used by `opening_`, while that runs
  v1::RouterRecord router_;
  std::vector<Stream> left_;  // until TakeStreams
  std::atomic<uint64_t> next_number_{1};
  ClosableQueue<Entry> queue_;
  mutable Mutex mutex_;
  Report report_ ABSL_GUARDED_BY(mutex_);

  // Used only by the thread, once it runs.
  std::unique_ptr<JournalStore> store_;  // null: the last attempt to write has failed
  std::future<Opening> opening_;
  Clock::time_point retry_at_;               // without a store
  Clock::time_point keep_lease_at_;          // with one
  std::map<uint64_t, uint64_t> first_rows_;  // of the streams in the store, by number
  uint64_t next_row_ = 1;
  bool is_proven_ = false;  // an event was written since the start
  std::thread thread_;      // last: uses all above
};

}  // namespace stagecoach::router
