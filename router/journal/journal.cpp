#include "router/journal/journal.h"

#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "common/unix_time.h"
#include "router/journal/journal_place.h"

namespace stagecoach::router {
namespace {

uint64_t UnixSeconds() { return UnixNanoseconds() / 1'000'000'000; }

// 0: never.
uint64_t LastWritten(const JournalContent& content) {
  if (content.streams.empty()) return content.last_unix_s;
  const auto began =
      static_cast<uint64_t>(content.streams.back().record.arrived_unix_us()) / 1'000'000;
  return std::max(content.last_unix_s, began);
}

std::string_view Message(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(const JournalOptions& options,
                                                       v1::RouterRecord router) {
  std::unique_ptr<Journal> journal(new Journal(options, std::move(router)));
  SC_RETURN_IF_ERROR(journal->Open());
  Journal* const self = journal.get();
  journal->thread_ = std::thread([self] { self->Run(); });
  return journal;
}

Journal::Journal(const JournalOptions& options, v1::RouterRecord router)
    : options_(options), router_(std::move(router)) {}

Journal::~Journal() { Stop(); }

absl::Status Journal::Open() {
  absl::StatusOr<std::unique_ptr<JournalPlace>> place = MakeJournalPlace(options_);
  if (!place.ok()) {
    return absl::InvalidArgumentError(fmt::format("--journal: {}", Message(place.status())));
  }
  place_ = *std::move(place);
  Opening opened = place_->Open();
  if (absl::IsFailedPrecondition(opened.status())) {
    return absl::FailedPreconditionError(
        fmt::format("--journal {}: another router has this journal open ({}); give each router one "
                    "of its own",
                    place_->name(), Message(opened.status())));
  }
  if (absl::IsPermissionDenied(opened.status()) || absl::IsInvalidArgument(opened.status())) {
    return {opened.status().code(),
            fmt::format("--journal {}: {}", place_->name(), Message(opened.status()))};
  }
  absl::StatusOr<JournalContent> content =
      opened.ok() ? (*opened)->Read() : absl::StatusOr<JournalContent>(opened.status());
  if (opened.ok()) store_ = *std::move(opened);
  if (!content.ok()) {
    GiveUpAll(content.status());
    retry_at_ = Clock::now();
    return absl::OkStatus();
  }
  // Absent after an orderly end.
  const bool has_holder = content->router && !content->router->lease_holder().empty();
  if (content->router) router_.MergeFrom(*content->router);
  const bool is_late =
      LastWritten(*content) + static_cast<uint64_t>(options_.keep.count()) < UnixSeconds();
  if (!content->streams.empty() && (is_late || content->n_restores >= kMostRestores)) {
    spdlog::warn("journal: {} streams are dropped, because {}", content->streams.size(),
                 is_late ? "nothing was written for longer than --resume-time"
                         : "the routers that took them over ended without a new token");
    place_->Discard(std::move(store_));
    SC_ASSIGN_OR_RETURN(store_, OpenNew());
    return absl::OkStatus();
  }
  absl::Status marked =
      has_holder ? store_->SetRestores(content->n_restores + 1) : store_->SetRouter(router_);
  if (!marked.ok()) spdlog::warn("journal: {}", Message(marked));
  left_ = std::move(content->streams);
  for (const Stream& stream : left_) first_rows_.emplace(stream.number, stream.first_row);
  next_row_ = content->next_row;
  next_number_ = content->next_number;
  return absl::OkStatus();
}

Journal::Opening Journal::OpenNew() const {
  Opening store = place_->OpenNew();
  if (store.ok()) SC_RETURN_IF_ERROR((*store)->SetRouter(router_));
  return store;
}

std::vector<Journal::Stream> Journal::TakeStreams() { return std::exchange(left_, {}); }

void Journal::Begin(uint64_t stream, v1::StreamRecord record) {
  queue_.Push(Beginning{.stream = stream, .record = std::move(record)}).IgnoreError();
}

void Journal::Append(uint64_t stream, v1::SequenceEvent event, Committed committed) {
  event.set_stream(stream);
  queue_.Push(Happening{.event = std::move(event), .committed = std::move(committed)})
      .IgnoreError();
}

void Journal::Remove(uint64_t stream) { queue_.Push(Removal{.stream = stream}).IgnoreError(); }

void Journal::Stop() {
  Finish();
  store_.reset();
}

void Journal::StopInOrder() {
  Finish();
  if (store_ == nullptr) return;
  router_.clear_lease_holder();
  if (const absl::Status status = store_->SetRouter(router_); !status.ok()) {
    spdlog::warn("journal: {}", Message(status));
  }
  store_.reset();
}

void Journal::Finish() {
  queue_.Close(absl::CancelledError("the journal is closed"), ClosableQueue<Entry>::Rest::kKeep);
  if (thread_.joinable()) thread_.join();
  if (opening_.valid()) opening_.get().IgnoreError();  // it uses this object
}

Journal::Report Journal::Read() const {
  const MutexLock lock(mutex_);
  return report_;
}

void Journal::Run() {
  pthread_setname_np(pthread_self(), "journal");
  std::vector<Entry> entries;
  while (true) {
    const absl::Status waited = queue_.WaitUntil(NextTask());
    if (!waited.ok() && !absl::IsDeadlineExceeded(waited)) return;
    queue_.TakeAll(&entries);
    WriteAll(entries);
    for (Entry& entry : entries) {
      if (auto* happening = std::get_if<Happening>(&entry)) {
        std::move(happening->committed)(std::move(happening->event));
      }
    }
  }
}

Journal::Clock::time_point Journal::NextTask() const {
  if (store_ == nullptr) return opening_.valid() ? Clock::time_point::max() : retry_at_;
  return store_->keep_lease_every().count() == 0 ? Clock::time_point::max() : keep_lease_at_;
}

void Journal::WriteAll(std::vector<Entry>& entries) {
  const bool is_opened = std::ranges::any_of(
      entries, [](const Entry& entry) { return std::holds_alternative<Opened>(entry); });
  if (is_opened) TakeOpened();
  if (store_ == nullptr) return OpenAgain();
  const absl::Status written = entries.empty() ? store_->KeepLease() : WriteTransaction(entries);
  if (!written.ok()) return GiveUpAll(written);
  keep_lease_at_ = Clock::now() + store_->keep_lease_every();
}

void Journal::OpenAgain() {
  if (opening_.valid() || Clock::now() < retry_at_) return;
  opening_ = std::async(std::launch::async, [this] {
    Opening opened = OpenNew();
    queue_.Push(Opened{}).IgnoreError();
    return opened;
  });
}

void Journal::TakeOpened() {
  Opening opened = opening_.get();
  if (!opened.ok()) return GiveUpAll(opened.status());
  store_ = *std::move(opened);
  spdlog::info("journal: works again");
  Tell([](Report& report) { report.failing = false; });
}

absl::Status Journal::WriteTransaction(std::vector<Entry>& entries) {
  SC_RETURN_IF_ERROR(store_->Begin());
  std::string events;
  v1::SequenceEvents one;  // messages that are concatenated are one message with the events of all
  one.add_events();
  bool has_removed = false;
  for (Entry& entry : entries) {
    if (auto* beginning = std::get_if<Beginning>(&entry)) {
      first_rows_.emplace(beginning->stream, next_row_);
      SC_RETURN_IF_ERROR(
          store_->AddStream(beginning->stream, next_row_, beginning->record.SerializeAsString()));
    } else if (auto* removal = std::get_if<Removal>(&entry)) {
      if (first_rows_.erase(removal->stream) == 0) continue;
      has_removed = true;
      SC_RETURN_IF_ERROR(store_->RemoveStream(removal->stream));
    } else if (auto* happening = std::get_if<Happening>(&entry)) {
      v1::SequenceEvent& event = happening->event;
      if (!first_rows_.contains(event.stream())) continue;
      one.mutable_events(0)->Swap(&event);
      one.AppendToString(&events);
      one.mutable_events(0)->Swap(&event);
    }
  }
  if (!events.empty()) {
    SC_RETURN_IF_ERROR(store_->AddEvents(next_row_++, UnixSeconds(), events));
    if (!std::exchange(is_proven_, true)) SC_RETURN_IF_ERROR(store_->SetRestores(0));
  }
  if (has_removed) SC_RETURN_IF_ERROR(RemoveUnusedRows());
  SC_RETURN_IF_ERROR(KeepSmall());
  return store_->Commit();
}

absl::Status Journal::RemoveUnusedRows() {
  uint64_t first = next_row_;
  for (const auto& [stream, row] : first_rows_) first = std::min(first, row);
  return store_->RemoveRowsBefore(first);
}

absl::Status Journal::KeepSmall() {
  SC_ASSIGN_OR_RETURN(uint64_t n_bytes, store_->UsedBytes());
  uint64_t n_given_up = 0;
  while (n_bytes > options_.max_bytes && !first_rows_.empty()) {
    ++n_given_up;
    SC_RETURN_IF_ERROR(store_->RemoveStream(first_rows_.begin()->first));
    first_rows_.erase(first_rows_.begin());
    SC_RETURN_IF_ERROR(RemoveUnusedRows());
    SC_ASSIGN_OR_RETURN(n_bytes, store_->UsedBytes());
  }
  if (n_given_up > 0) {
    spdlog::warn("journal: full, so {} streams would not outlive the router (--journal-size)",
                 n_given_up);
  }
  Tell([&](Report& report) {
    report.n_given_up += n_given_up;
    report.n_streams = first_rows_.size();
    report.n_bytes = n_bytes;
  });
  return absl::OkStatus();
}

void Journal::GiveUpAll(const absl::Status& why) {
  // Not the streams alone: that would need a disk that is not full.
  const bool is_of_another = absl::IsFailedPrecondition(why);
  if (!is_of_another) place_->Discard(std::move(store_));
  store_.reset();
  bool was_failing = false;
  Tell([&](Report& report) {
    was_failing = std::exchange(report.failing, true);
    ++report.n_failures;
    report.n_streams = 0;
    report.n_bytes = 0;
  });
  if (!was_failing) {
    spdlog::error("journal: {}; the {} streams in it would not outlive the router any more",
                  Message(why), first_rows_.size());
  }
  first_rows_.clear();
  retry_at_ = is_of_another ? Clock::time_point::max() : Clock::now() + options_.retry_after;
}

}  // namespace stagecoach::router
