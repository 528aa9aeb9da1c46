// What a router needs to write down so that its resumable streams outlive it: each stream's
// request, and what the scheduler reports about its sequences. The router that opens the journal
// next takes over its predecessor's names and streams.
//
// A thread of its own writes, in one transaction for all that came meanwhile. An event reaches its
// stream only after that, so a successor knows every token that a client has. The journal never
// stands in the way of serving: when it cannot be written, all that was in it is given up, events
// pass through, and streams that begin later are written again as soon as that works.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
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
#include "router/journal/journal_file.h"
#include "stagecoach/v1/journal.pb.h"

namespace stagecoach::router {

struct JournalOptions {
  std::string folder;  // on a local file system
  // Largest size of the file. A journal that gets larger gives up its oldest stream.
  size_t max_bytes = 256 << 20;
  // Streams of a router that has written nothing for this long are dropped: their clients are gone.
  std::chrono::seconds keep{60};
  // Time from a failure to the next attempt to write.
  std::chrono::milliseconds retry_after{5'000};
};

// Thread-safe, except for TakeStreams and Stop.
class Journal {
 public:
  using Stream = JournalFile::Stream;
  using Committed = absl::AnyInvocable<void(v1::SequenceEvent) &&>;
  // Routers in a row that may take the same streams over without writing an event of them. After
  // more, the streams are dropped: one of them may be what ends the routers.
  static constexpr uint64_t kMostRestores = 3;

  // `router` is written to a new journal. FAILED_PRECONDITION: another router has it open.
  // PERMISSION_DENIED: the folder cannot be used. A damaged journal is replaced by an empty one; a
  // full disk is no error.
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
  // Writes all that came before, and closes the file.
  void Stop();
  // The same at the router's orderly end. Its successor takes another lease holder, because the
  // model's files may change until it comes, and then the workers must load again.
  void StopInOrder();

  struct Report {
    bool failing = false;     // nothing can be written at present
    uint64_t n_failures = 0;  // that gave up all streams
    uint64_t n_given_up = 0;  // streams given up because the file was full
    uint64_t n_streams = 0;   // in the journal
    uint64_t n_bytes = 0;     // of the file, as far as it holds something
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
  using Entry = std::variant<Removal, Beginning, Happening>;

  Journal(const JournalOptions& options, v1::RouterRecord router);
  // Reads what is there. An error is final.
  absl::Status Open();
  absl::Status OpenNew();
  void Finish();
  void Run();
  void WriteAll(std::vector<Entry>& entries);
  absl::Status WriteTransaction(std::vector<Entry>& entries);
  absl::Status RemoveUnusedRows();
  // Drops the oldest streams while the file is too large.
  absl::Status KeepSmall();
  void GiveUpAll(const absl::Status& why);
  // Changes the report under the lock.
  template <typename Change>
  void Tell(const Change& change) {
    const MutexLock lock(mutex_);
    change(report_);
  }

  const JournalOptions options_;
  v1::RouterRecord router_;
  std::vector<Stream> left_;  // until TakeStreams
  std::atomic<uint64_t> next_number_{1};
  ClosableQueue<Entry> queue_;
  mutable Mutex mutex_;
  Report report_ ABSL_GUARDED_BY(mutex_);

  // Used only by the thread, once it runs.
  std::unique_ptr<JournalFile> file_;  // null: the last attempt to write has failed
  Clock::time_point retry_at_;
  std::map<uint64_t, uint64_t> first_rows_;  // of the streams in the file, by number
  uint64_t next_row_ = 1;
  bool is_proven_ = false;  // an event was written since the start
  std::thread thread_;      // last: uses all above
};

}  // namespace stagecoach::router
