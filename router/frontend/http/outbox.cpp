#include "router/frontend/http/outbox.h"

#include <utility>

#include "router/frontend/http/wire_format.h"

namespace stagecoach::router::http {
namespace {

// Bytes that may wait for a client before its writer must wait.
constexpr size_t kWindowBytes = 16 << 10;
// An idle connection keeps at most this much buffer memory.
constexpr size_t kKeptBytes = 8 << 10;

}  // namespace

void Outbox::Begin(bool http_1_0, bool bodiless) {
  http_1_0_ = http_1_0;
  bodiless_ = bodiless;
  fields_.clear();
  is_stream_ = false;
  stream_head_.clear();
  has_begun_ = false;
  is_complete_ = false;
}

void Outbox::AddFields(HeaderFields fields) {
  for (auto& field : fields) fields_.push_back(std::move(field));
}

void Outbox::Respond(const HttpResponse& response, bool keep_alive) {
  has_begun_ = true;
  is_complete_ = true;
  queued_ += ResponseHead(response, fields_, BodyFraming::kLength, keep_alive);
  if (!bodiless_) queued_ += response.body;
}

void Outbox::StartStream(const HttpResponse& head, bool has_ids, bool keep_alive) {
  is_stream_ = true;
  has_ids_ = has_ids;
  stream_head_ = ResponseHead(head, fields_,
                              http_1_0_ ? BodyFraming::kToEnd : BodyFraming::kChunked, keep_alive);
}

bool Outbox::Reserve(size_t n_bytes) {
  return n_unwritten_.fetch_add(n_bytes) + n_bytes < kWindowBytes;
}

void Outbox::Write(std::string_view data, Done done) {
  if (done != nullptr) done_when_written_.push_back(std::move(done));
  n_queued_ += data.size();
  Queue(data);
}

void Outbox::Comment(std::string_view text) {
  std::string line = ":";
  line += text;
  // Some clients split the stream at empty lines, so they need one.
  line += has_ids_ ? "\n" : "\n\n";
  Queue(line);
}

void Outbox::EndStream(std::string_view data) {
  Queue(data);
  is_complete_ = true;
  if (!http_1_0_) queued_ += kLastChunk;
}

void Outbox::Queue(std::string_view stream_data) {
  if (!std::exchange(has_begun_, true)) queued_ += stream_head_;
  if (http_1_0_) {
    queued_ += stream_data;
  } else {
    AppendChunk(queued_, stream_data);
  }
}

std::string_view Outbox::Next() {
  if (n_written_ == writing_.size()) {
    writing_.swap(queued_);
    queued_.clear();
    n_written_ = 0;
    n_writing_ = std::exchange(n_queued_, 0);
    done_writing_.swap(done_when_written_);
  }
  return std::string_view(writing_).substr(n_written_);
}

bool Outbox::Written(size_t n_bytes) {
  n_written_ += n_bytes;
  if (n_written_ < writing_.size()) return false;
  n_unwritten_ -= n_writing_;
  for (Done& done : done_writing_) std::move(done)(true);
  done_writing_.clear();
  return true;
}

void Outbox::Rest() {
  n_written_ = 0;
  for (std::string* memory : {&writing_, &queued_}) {
    memory->clear();
    if (memory->capacity() > kKeptBytes) memory->shrink_to_fit();
  }
}

void Outbox::Abandon() {
  for (auto* waiting : {&done_writing_, &done_when_written_}) {
    for (Done& done : *waiting) std::move(done)(false);
    waiting->clear();
  }
}

}  // namespace stagecoach::router::http
